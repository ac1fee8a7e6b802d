"""Faults of the system: the caller gets advice, acknowledged data stays, and the session continues afterwards."""

import re
import shutil
from collections.abc import Awaitable

import pytest

from amplifier_context_core.errors import NotErased, StoreError
from amplifier_context_core.stores import MemoryStore
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import Whole, assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.files import (
    CHANGES,
    Change,
    Disk,
    Files,
    begin,
    each_fault,
    fast_folder,
    reopen,
    unlocked,
    using,
)


def gist(found: Whole) -> object:
    """Return a session without its counts: a failed line that could not be truncated is adopted later."""
    history = [(one.seq, one.message) for one in found.history]
    return found.extent, history, [(one.seq, one.message) for one in found.archive], found.checkpoint


async def is_refused(call: Awaitable[object], *, why: str = r"free some space|cannot be|could not") -> bool:
    """True if a call failed with this advice. A call that could only not erase yet counts as done."""
    try:
        await call
    except NotErased:
        return False
    except StoreError as problem:
        assert re.search(why, str(problem)), problem  # noqa: PT017 - either is right
        return True
    return False


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
    for root, faulty, number in each_fault(lasting):
        store = JsonlStore(root)
        await begin(store)
        with using(monkeypatch, faulty):
            expected = before if await is_refused(change(store)) else after
        shutil.copytree(root, root / "then", ignore=unlocked)
        crashed = JsonlStore(root / "then")
        await crashed.open("s")
        found = gist(await whole(crashed))
        assert found == gist(after) or found == gist(expected), f"call {number}, and a crash"
        await crashed.append("s", entries(90, 91))
        await crashed.close()
        problem = (await whole(store)).differs(expected)
        assert not problem, f"call {number}: {problem}"
        await store.append("s", entries(90, 91))
        await store.close()
        again, repairs = await reopen(root)
        assert_same(again.history, [*expected.history, *entries(90, 91)])
        assert again.checkpoint == expected.checkpoint
        assert repairs == [], f"call {number}"


async def test_whatever_call_fails_a_fork_is_made_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for root, faulty, number in each_fault():
        store = JsonlStore(root)
        await begin(store)
        before = await whole(store)
        with using(monkeypatch, faulty):
            was_refused = await is_refused(store.fork("s", "child", 8))
        assert not (await whole(store)).differs(before)
        # A change that could not be rolled back is there, complete, at the next opening.
        if was_refused and await is_refused(store.fork("s", "child", 8), why="already"):
            assert number % 2 == 0, "all later calls failed, too"
        assert_same(await store.read("child"), before.history[:8])
        assert await store.load_checkpoint("child") == b"four"
        await store.close()


async def test_whatever_call_fails_a_session_is_opened_and_deleted_then_or_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Including one that another program wrote to."""
    for root, faulty, _ in each_fault():
        store = JsonlStore(root)
        await begin(store)
        await store.close()
        with Files(root).main.open("ab") as file:
            file.write(b'{"role": "user", "content": "theirs"}\n{"torn')
        with using(monkeypatch, faulty):
            await is_refused(store.open("s"), why="")
        assert (await store.open("s")).length == 11
        assert_same((await store.read("s"))[:10], [*entries(1, 9), *entries(11, 11)])
        await store.close()
        assert len(Files(root).messages) == 11
        with using(monkeypatch, faulty):
            await is_refused(store.delete("s"), why="")
        await store.delete("s")
        assert not (root / "s").exists()
        await store.append("s", entries(1, 1))
        await store.close()


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
                break
            other = JsonlStore(root / "then")
            await other.open("s")
            is_erased = (await other.read("s"))[1].message["content"] == "forgotten"
            await other.close()
            left = [path.name for path in (root / "then" / "s").iterdir() if b"tulip" in path.read_bytes()]
            assert not (is_erased and left), f"call {call}: {left}"
    assert 3 < call < 99
