"""A session is loaded, or it must be loaded first: files that could not be opened never count as missing."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.errors import NotErased, StoreError
from amplifier_context_core.stores import Extent, Store
from amplifier_context_core.stores.jsonl.journal import RedoJournal
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.files import NAME, Files, reopen, using_os

SECRET = "TOPSECRET-42"
INDEX = "context-messages.index.jsonl"


class FailingOs:
    """The module `os`, of which calls fail for files with certain names.

    Attributes:
        failed: how often one did.
    """

    def __init__(self, calls: frozenset[str], names: tuple[str, ...], flags: int = 0) -> None:
        self.calls, self.names, self.flags = calls, names, flags  # with flags, only files opened with them
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._failing(real) if name in self.calls else real

    def _failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any) -> Any:
            where = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else str(path)
            if os.path.basename(where) in self.names and (not self.flags or arguments[0] & self.flags):
                self.failed += 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), where)
            return real(path, *arguments)

        return call


CALLS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "open": lambda store: store.open("s"),
    "extent": lambda store: store.extent("s"),
    "read": lambda store: store.read("s"),
    "find": lambda store: store.find("s", [2]),
    "append": lambda store: store.append("s", entries(90, 90)),
    "replace": lambda store: store.replace("s", 1, entries(91, 91)),
    "clear": lambda store: store.replace("s", 0, []),
    "rewrite": lambda store: store.rewrite("s", [entry(2, "rewritten")]),
    "archived": lambda store: store.archived("s"),
    "save checkpoint": lambda store: store.save_checkpoint("s", 1, b"one"),
    "load checkpoint": lambda store: store.load_checkpoint("s"),
    "fork": lambda store: store.fork("s", "child"),
}


@contextmanager
def unloadable(monkeypatch: pytest.MonkeyPatch, name: str) -> Generator[FailingOs]:
    """Make a file fail to open for appending, which is how a session loads it."""
    failing = FailingOs(frozenset(["open"]), (name,), os.O_APPEND)
    with using_os(monkeypatch, failing):
        yield failing


@pytest.mark.parametrize("name", [NAME, INDEX])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_failed_load_after_an_edit_is_reported_by_the_next_call_and_retried(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: Callable[[Store], Awaitable[object]]
) -> None:
    store, other = JsonlStore(root / "one"), JsonlStore(root / "other")
    for one in (store, other):
        await one.append("s", entries(1, 6))
        await one.save_checkpoint("s", 2, b"two")
    with unloadable(monkeypatch, name) as failing:
        await store.replace("s", 4, entries(7, 8))
        with pytest.raises(StoreError, match="too many files open"):
            await call(store)
        assert failing.failed
    await other.replace("s", 4, entries(7, 8))
    await call(store)
    await call(other)
    assert not (await whole(store)).differs(await whole(other))
    await store.close()
    await other.close()
    assert (await reopen(root / "one")).repairs == []


@pytest.mark.parametrize("name", [NAME, INDEX])
async def test_forget_erases_though_the_files_could_not_be_reopened_after_an_edit(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    manager = ContextManager(load_config({}), session_id="s", store=JsonlStore(root))
    for number in range(6):
        await manager.add_message({"role": "user", "content": f"{number} {SECRET if number == 1 else ''}"})
    messages = await manager.get_messages()
    with unloadable(monkeypatch, name):
        await manager.set_messages([*messages[:4], {"role": "user", "content": "edited"}])
        with pytest.raises(StoreError):
            await manager.forget(["m2"])
    assert await manager.forget(["m2"]) == ["m2"]
    assert not [path.name for path in (root / "s").iterdir() if SECRET.encode() in path.read_bytes()]
    held = [message["content"] for message in await manager.get_messages()]
    await manager.close()
    again = ContextManager(load_config({}), session_id="s", store=JsonlStore(root))
    assert [message["content"] for message in await again.get_messages()] == held
    await again.close()


@pytest.mark.parametrize("call", [call for name, call in CALLS.items() if name != "open"])
async def test_a_session_that_cannot_be_examined_does_not_count_as_missing(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Store], Awaitable[object]]
) -> None:
    store = JsonlStore(root)
    await store.append("s", [entry(1), entry(2, SECRET)])
    await store.close()
    with using_os(monkeypatch, FailingOs(frozenset(["open", "lstat"]), (NAME,))), pytest.raises(StoreError):
        await call(store)
    assert_same(await store.read("s"), [entry(1), entry(2, SECRET)])
    await store.close()


async def test_a_fork_that_cannot_be_examined_is_not_taken_for_the_one_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlStore(root, file=root / "talk.jsonl")
    await store.append("s", entries(1, 3))
    await store.fork("s", "child")
    await store.close()
    failing = FailingOs(frozenset(["lstat"]), ("talk.fork-child.jsonl",))
    with using_os(monkeypatch, failing), pytest.raises(StoreError):
        await store.append("child", entries(4, 4))
    assert (await store.extent("s")).length == 3
    await store.close()


async def test_a_forget_that_cannot_erase_yet_says_so_and_the_same_call_finishes_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: RedoJournal, edit: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    manager = ContextManager(load_config({}), session_id="s", store=JsonlStore(root))
    await manager.add_message({"role": "user", "content": SECRET})
    with monkeypatch.context() as patch:
        patch.setattr(RedoJournal, "apply", refused)
        with pytest.raises(NotErased):
            await manager.forget(["m1"])
        assert [message["content"] for message in await manager.get_messages()] == ["(erased)"]
        with pytest.raises(StoreError):
            await manager.forget(["m1"])
    assert SECRET.encode() in Files(root).main.read_bytes()
    assert await manager.forget(["m1"]) == ["m1"]
    assert not [path.name for path in (root / "s").iterdir() if SECRET.encode() in path.read_bytes()]
    await manager.close()


@pytest.mark.parametrize("count", [1, 3])
async def test_a_session_is_not_released_while_a_failed_append_is_in_its_files(
    root: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The write fails, and so does truncating it: reopened then, the session would hold the failed entry."""
    store = JsonlStore(root)
    await store.append("s", entries(1, 3))
    with using_os(monkeypatch, FailingOs(frozenset(["fdatasync", "ftruncate"]), (NAME, "context-messages.pending"))):
        for _ in range(2):
            with pytest.raises(StoreError):
                await store.append("s", entries(4, 3 + count))
        with pytest.raises(StoreError):
            await store.release("s")
    await store.close()
    found = await reopen(root)
    assert found.seqs == [1, 2, 3]
    assert found.repairs == []


async def test_a_committed_edit_survives_an_abandoned_store(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the edit wrote beside the others are needed when it is applied at last."""

    def refused(self: RedoJournal, edit: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = JsonlStore(root)
    await store.append("s", entries(1, 4))
    with monkeypatch.context() as patch:
        patch.setattr(RedoJournal, "apply", refused)
        with pytest.raises(NotErased):
            await store.rewrite("s", [entry(2, "rewritten")])
        await store._worker.run(store._engine.abandon)  # pyright: ignore[reportPrivateUsage]
    assert_same(await store.read("s"), entries(1, 4))  # a read-only session does not apply it
    assert await store.open("s") == Extent(4, 4)
    assert_same(await store.read("s"), [*entries(1, 1), entry(2, "rewritten"), *entries(3, 4)])
    await store.close()


async def test_a_repaired_session_is_reported_though_the_repair_had_to_wait(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, repairs = JsonlStore(root), list[Any]()
    await store.append("s", entries(1, 4))
    await store.close()
    files = Files(root)
    await store.open("s", repairs.append)
    data = bytearray(files.main.read_bytes())
    data[len(files.lines[0])] = ord("[")
    files.main.write_bytes(data)
    real, calls = RedoJournal.apply, list[int]()

    def once(self: RedoJournal, edit: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(self, edit)

    monkeypatch.setattr(RedoJournal, "apply", once)
    with pytest.raises(StoreError):
        await store.read("s")
    assert [one.seq for one in await store.read("s")] == [1, 3, 4]
    assert sum(repair.lost for repair in repairs) == 1
    await store.close()


async def test_the_names_of_new_files_are_synced_though_that_failed_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JsonlStore(root)
    await store.open("s")
    synced: list[str] = []
    real = os.fsync

    class Noting(FailingOs):
        def __getattr__(self, name: str) -> Any:
            return self._fsync if name == "fsync" else getattr(os, name)

        def _fsync(self, descriptor: int) -> None:
            where = os.readlink(f"/proc/self/fd/{descriptor}")
            if not synced:
                synced.append("failed")
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            synced.append(where)
            real(descriptor)

    with using_os(monkeypatch, Noting(frozenset(), ())):
        with pytest.raises(StoreError):
            await store.append("s", entries(1, 1))
        await store.append("s", entries(1, 1))
    assert synced == ["failed", str(root / "s")]
    await store.close()
