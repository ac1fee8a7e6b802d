"""Faults of the system: the caller gets advice, acknowledged data stays, and the session continues afterwards."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import NotErased, StoreError
from amplifier_context_core.stores import Extent, MemoryStore
from amplifier_context_core.stores.jsonl import file_ops
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import Whole, assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.changes import CHANGES, Change, begin
from tests.stores.jsonl.files import Files, fast_folder, reopen, using_os
from tests.stores.small_disks import file_system, largest_file


def gist(found: Whole) -> object:
    """Return a session without its counts: a failed line that could not be truncated is adopted later."""
    history = [(one.seq, one.message) for one in found.history]
    return found.extent, history, [(one.seq, one.message) for one in found.archive], found.checkpoint


async def refused(call: Awaitable[object], *, why: str = "free some space") -> bool:
    """True if a call failed with this advice. A call that could only not erase yet counts as done."""
    try:
        await call
    except NotErased:
        return False
    except StoreError as problem:
        if why not in str(problem):
            raise
        return True
    return False


class FaultyOs:
    """The module `os`; one call that changes files fails, or all from one on. A failing write is cut short."""

    CHANGING = frozenset(["write", "pwrite", "fdatasync", "fsync", "replace", "ftruncate", "unlink", "mkdir", "fchmod"])

    def __init__(self, number: int, *, lasting: bool, code: int = errno.ENOSPC) -> None:
        self.left, self.lasting, self.code = number, lasting, code
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._failing(name, real) if name in self.CHANGING else real

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left > 0 or (self.left < 0 and not self.lasting):
                return real(*arguments, **more)
            self.failed = True
            if name in ("write", "pwrite"):
                real(arguments[0], arguments[1][: len(arguments[1]) // 2], *arguments[2:])
            raise OSError(self.code, os.strerror(self.code))

        return call


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_whatever_call_fails_a_change_is_made_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, change: Change, lasting: bool
) -> None:
    model = MemoryStore()
    await begin(model)
    before = await whole(model)
    await change(model)
    after = await whole(model)
    for number in range(1, 100):
        faulty = FaultyOs(number, lasting=lasting)
        with fast_folder() as root:
            store = JsonlStore(root)
            await begin(store)
            with using_os(monkeypatch, faulty):
                expected = before if await refused(change(store)) else after
            problem = (await whole(store)).differs(expected)
            assert not problem, f"call {number}: {problem}"
            await store.append("s", entries(90, 91))
            assert_same(await store.read("s"), [*expected.history, *entries(90, 91)])
            await store.close()
            found = await reopen(root)
            assert_same(found.history, [*expected.history, *entries(90, 91)])
            assert found.checkpoint == expected.checkpoint
            assert found.repairs == [], f"call {number}"
        if not faulty.failed:
            assert number > 3
            return
    pytest.fail("there is no end of calls")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_crash_after_a_fault_leaves_a_change_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    """The process dies while nothing works any more: the disk holds the state before or after."""
    model = MemoryStore()
    await begin(model)
    states = [await whole(model)]
    await change(model)
    states.append(await whole(model))
    for number in range(1, 100):
        faulty = FaultyOs(number, lasting=True)
        with fast_folder() as root:
            store = JsonlStore(root)
            await begin(store)
            with using_os(monkeypatch, faulty):
                raised = await refused(change(store))
                await _die(store)
            other = JsonlStore(root)
            await other.open("s")
            found = await whole(other)
            fitting = [state for state in states if gist(found) == gist(state)]
            assert fitting, f"call {number}: {[found.differs(state) for state in states]}"
            assert raised or states[1] in fitting, f"call {number} was acknowledged"
            await other.append("s", entries(90, 91))
            await other.close()
        if not faulty.failed:
            return


@pytest.mark.parametrize("written", ["whole", "half"])
@pytest.mark.parametrize("ends", ["goes on", "closes", "dies"])
async def test_a_refused_message_that_cannot_be_cut_off_is_kept_once_at_most(
    root: Path, monkeypatch: pytest.MonkeyPatch, written: str, ends: str
) -> None:
    """The write or its sync fails, and so does the rollback; the caller tries again meanwhile."""

    class DoublyFaultyOs:
        def __getattr__(self, name: str) -> Any:
            real = getattr(os, name)

            def fails(*arguments: Any) -> Any:
                if name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise OSError(errno.EIO, os.strerror(errno.EIO))

            return fails if name in ("ftruncate", "fdatasync" if written == "whole" else "write") else real

    store = JsonlStore(root)
    await store.append("s", entries(1, 3))
    with using_os(monkeypatch, DoublyFaultyOs()):
        for _ in range(3):
            with pytest.raises(StoreError):
                await store.append("s", entries(4, 4))
        if ends == "dies":
            await _die(store)
        elif ends == "closes":
            with pytest.raises(StoreError):
                await store.close()
    if ends == "goes on":
        await store.append("s", entries(4, 4))
        assert_same(await store.read("s"), entries(1, 4))
    await store.close()
    found = await reopen(root)
    assert [one.message for one in found.history[:3]] == [one.message for one in entries(1, 3)]
    kept = [4] if ends == "goes on" or written == "whole" else []
    assert [one.seq for one in found.history[3:]] == kept  # a complete line is a message, even of another program
    other = JsonlStore(root)
    await other.append("s", entries(9, 9))
    assert [one.seq for one in await other.read("s")] == [1, 2, 3, *kept, 9]
    assert await other.verify("s") == []
    await other.close()


async def _die(store: JsonlStore) -> None:
    """Drop locks and descriptors like a killed process: nothing is written any more."""
    engine = store._engine  # pyright: ignore[reportPrivateUsage]

    def die() -> None:
        for session in engine._open_sessions.values():  # pyright: ignore[reportPrivateUsage]
            session._unload()  # pyright: ignore[reportPrivateUsage]
            session._lock._lock.release()  # pyright: ignore[reportPrivateUsage]
        engine._open_sessions.clear()  # pyright: ignore[reportPrivateUsage]

    await store._worker.run(die)  # pyright: ignore[reportPrivateUsage]


async def test_whatever_call_fails_a_fork_is_made_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 100):
        faulty = FaultyOs(number, lasting=number % 2 == 0)
        with fast_folder() as root:
            store = JsonlStore(root)
            await begin(store)
            before = await whole(store)
            with using_os(monkeypatch, faulty):
                length = 0 if await refused(store.fork("s", "child", 8), why="room") else 8
            assert not (await whole(store)).differs(before)
            if not length:
                assert faulty.lasting or await store.extent("child") == Extent()
                assert len(await store.sessions()) == 1 + (await store.extent("child")).length // 8
                # A change that could not be rolled back is there, complete, at the next opening.
                assert not await refused(store.fork("s", "child", 8), why="already") or faulty.lasting
            assert_same(await store.read("child"), before.history[:8])
            assert await store.load_checkpoint("child") == b"four"
            await store.close()
        if not faulty.failed:
            return


async def test_whatever_call_fails_a_session_is_opened_or_can_be_opened_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Including a session that the opening must repair."""
    for number in range(1, 100):
        faulty = FaultyOs(number, lasting=number % 2 == 0)
        with fast_folder() as root:
            store = JsonlStore(root)
            await begin(store)
            await store.close()
            files = Files(root)
            lines = files.lines
            files.main.write_bytes(b"".join([*lines[:6], b"garbage\n", *lines[6:], b'{"torn']))
            with using_os(monkeypatch, faulty):
                await refused(store.open("s"))
            assert (await store.open("s")).length == 10
            assert_same(await store.read("s"), [*entries(1, 9), *entries(11, 11)])
            assert await store.load_checkpoint("s") == b"four"
            quarantined = files.damaged.read_bytes()
            assert b"garbage\n" in quarantined
            assert b'{"torn' in quarantined
            await store.close()
        if not faulty.failed:
            return


async def test_whatever_call_fails_a_session_is_deleted_or_can_be_deleted_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(1, 100):
        faulty = FaultyOs(number, lasting=number % 2 == 0)
        with fast_folder() as root:
            store = JsonlStore(root)
            await begin(store)
            with using_os(monkeypatch, faulty):
                await refused(store.delete("s"))
            await store.delete("s")
            assert not (root / "s").exists()
            await store.append("s", entries(1, 1))
            assert_same(await store.read("s"), entries(1, 1))
            await store.close()
        if not faulty.failed:
            return


@pytest.mark.parametrize("count", [1, 40])
async def test_a_file_at_its_largest_size_takes_nothing_more_and_the_rest_stays(root: Path, count: int) -> None:
    store = JsonlStore(root)
    await store.append("s", [entry(1, "x" * 30_000)])
    with largest_file(Files(root).main.stat().st_size + 100):
        with pytest.raises(StoreError, match=r"s/context-messages|File too large") as caught:
            await store.append("s", entries(2, 1 + count))
        assert "ulimit -f" in str(caught.value)
        assert await store.extent("s") == Extent(1, 1)
        with pytest.raises(StoreError):
            await store.append("s", entries(2, 1 + count))
    await store.append("s", entries(2, 1 + count))
    assert_same((await store.read("s"))[1:], entries(2, 1 + count))
    await store.close()
    assert (await reopen(root)).repairs == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    with file_system(tmp_path, "256k") as folder:
        yield folder


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_on_a_full_disk_a_change_is_refused_and_after_it_the_session_goes_on(
    small_disk: Path, change: Change
) -> None:
    store = JsonlStore(small_disk / "sessions")
    await begin(store)
    before = await whole(store)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 1024):
                pass
        except OSError:
            pass
    if not await refused(change(store)):  # the last pages had space
        filler.unlink()
    else:
        assert not (await whole(store)).differs(before)
        filler.unlink()
        await change(store)
    model = MemoryStore()
    await begin(model)
    await change(model)
    assert not (await whole(store)).differs(await whole(model))
    await store.close()


async def test_on_a_full_disk_a_session_can_be_deleted(small_disk: Path) -> None:
    store = JsonlStore(small_disk / "sessions")
    await store.append("s", entries(1, 5))
    seq = 6
    while not await refused(store.append("s", [entry(seq, "x" * 20_000)])):
        seq += 1
    await store.delete("s")
    await store.append("s", entries(1, 5))
    await store.close()


async def test_on_a_full_disk_a_session_that_is_not_open_is_deleted(small_disk: Path) -> None:
    store = JsonlStore(small_disk / "sessions")
    await begin(store)
    await store.close()
    with (small_disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 1024):
            pass
    assert await refused(store.append("t", entries(1, 5)))
    await store.delete("s")
    assert [info.session_id for info in await store.sessions()] == []
    await store.append("t", entries(1, 5))
    await store.close()


async def test_on_a_file_system_that_is_read_only_a_session_is_read_and_not_opened(small_disk: Path) -> None:
    store = JsonlStore(small_disk / "sessions")
    await begin(store)
    before = await whole(store)
    await store.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert not (await whole(store)).differs(before)
    assert await store.verify("s") == []
    assert [info.length for info in await store.sessions()] == [10]
    more: list[Change] = [lambda store: store.open("s"), lambda store: store.delete("s")]
    for change in (*CHANGES.values(), *more):
        with pytest.raises(StoreError, match="read-only"):
            await change(store)
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    await store.append("s", entries(90, 91))
    assert_same(await store.read("s", -2), entries(90, 91))
    await store.close()


async def test_an_append_that_did_not_reach_the_disk_is_rolled_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed fsync may have dropped what it could not write, so the file is reopened."""
    store = JsonlStore(root)
    await store.append("s", entries(1, 3))

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    opened: list[str] = []
    real = file_ops.open_file

    def opening(path: str, flags: int) -> int:
        opened.append(Path(path).name)
        return real(path, flags)

    monkeypatch.setattr(file_ops, "open_file", opening)
    with monkeypatch.context() as patch:
        patch.setattr(file_ops, "_sync", broken)
        for _ in range(3):
            with pytest.raises(StoreError, match="disk reports a fault"):
                await store.append("s", entries(4, 4))
            assert len(Files(root).messages) == 3
    assert opened.count("context-messages.jsonl") >= 3
    await store.append("s", entries(5, 5))
    assert [one.seq for one in await store.read("s")] == [1, 2, 3, 5]
    await store.close()
    assert (await reopen(root)).repairs == []
