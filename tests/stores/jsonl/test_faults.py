"""Faults of the system: the caller gets advice, acknowledged data stays, and the session continues afterwards."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import NotErased, StoreError
from amplifier_context_core.stores import Extent, MemoryStore
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import Whole, assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.changes import CHANGES, Change, begin
from tests.stores.jsonl.crashes import Disk, using
from tests.stores.jsonl.files import Files, fast_folder, reopen
from tests.stores.small_disks import file_system


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
    """Also if the process dies while nothing works any more: the copy holds the state before or after."""
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
            with using(monkeypatch, faulty):
                expected = before if await refused(change(store)) else after
            shutil.copytree(root, root / "then", ignore=shutil.ignore_patterns("*-shm", "*.lock"))
            crashed = JsonlStore(root / "then")
            await crashed.open("s")
            found = gist(await whole(crashed))
            assert found == gist(after) or found == gist(expected), f"call {number}, and a crash"
            await crashed.append("s", entries(90, 91))
            await crashed.close()
            problem = (await whole(store)).differs(expected)
            assert not problem, f"call {number}: {problem}"
            await store.append("s", entries(90, 91))
            assert_same(await store.read("s"), [*expected.history, *entries(90, 91)])
            await store.close()
            again = await reopen(root)
            assert_same(again.history, [*expected.history, *entries(90, 91)])
            assert again.checkpoint == expected.checkpoint
            assert again.repairs == [], f"call {number}"
        if not faulty.failed:
            return
    pytest.fail("there is no end of calls")


async def test_whatever_call_fails_a_fork_is_made_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 100):
        faulty = FaultyOs(number, lasting=number % 2 == 0)
        with fast_folder() as root:
            store = JsonlStore(root)
            await begin(store)
            before = await whole(store)
            with using(monkeypatch, faulty):
                length = 0 if await refused(store.fork("s", "child", 8), why="free some space") else 8
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
    """Including one that another program wrote to."""
    for number in range(1, 100):
        faulty = FaultyOs(number, lasting=number % 2 == 0)
        with fast_folder() as root:
            store = JsonlStore(root)
            await begin(store)
            await store.close()
            with Files(root).main.open("ab") as file:
                file.write(b'{"role": "user", "content": "theirs"}\n{"torn')
            with using(monkeypatch, faulty):
                await refused(store.open("s"), why="")
            assert (await store.open("s")).length == 11
            assert_same((await store.read("s"))[:10], [*entries(1, 9), *entries(11, 11)])
            assert await store.load_checkpoint("s") == b"four"
            await store.close()
            assert len(Files(root).messages) == 11
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
            with using(monkeypatch, faulty):
                await refused(store.delete("s"), why="")
            await store.delete("s")
            assert not (root / "s").exists()
            await store.append("s", entries(1, 1))
            assert_same(await store.read("s"), entries(1, 1))
            await store.close()
        if not faulty.failed:
            return


async def test_wherever_a_crash_interrupts_an_erasure_no_quarantine_holds_what_was_erased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for call in range(100):
        with fast_folder() as root:
            disk = Disk(root / "now", root / "then")
            store = JsonlStore(root / "now")
            await store.append("s", [entry(1), entry(2, "tulip"), entry(3)])
            await store.release("s")
            with Files(root / "now").main.open("ab") as file:
                file.write(b'{"role": "user", "content": "a tulip\n{"role": "user", "content": "theirs"}\n')
            await store.open("s")
            assert b"tulip" in Files(root / "now").damaged.read_bytes()
            with using(monkeypatch, disk):
                disk.at = disk.calls + call
                await store.rewrite("s", [entry(2, "forgotten")])
            await store.close()
            if not disk.is_copied:
                assert call > 3
                return
            other = JsonlStore(root / "then")
            await other.open("s")
            is_erased = (await other.read("s"))[1].message["content"] == "forgotten"
            await other.close()
            left = [path.name for path in (root / "then" / "s").iterdir() if b"tulip" in path.read_bytes()]
            assert not (is_erased and left), f"call {call}: {left}"
    pytest.fail("there is no end of calls")


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    with file_system(tmp_path, "256k") as folder:
        yield folder


async def test_on_a_full_disk_a_session_that_is_not_open_is_deleted(small_disk: Path) -> None:
    store = JsonlStore(small_disk / "sessions")
    await begin(store)
    await store.append("s", [entry(20, "x" * 40_000)])
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
