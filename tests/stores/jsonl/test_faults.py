"""Faults of the system: the caller gets advice, acknowledged data stays, and the session continues afterwards."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.errors import NotErased, StoreError
from amplifier_context_core.stores import Extent, MemoryStore
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import Whole, assert_same, whole
from amplifier_context_testing.contract.reference import Pair
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.crashes import READING, WRITING, Disk, FaultyOs, each_fault, using
from tests.stores.jsonl.files import CHANGES, Change, Files, begin, fast_folder, reopen, unlocked
from tests.stores.kills import ALONE, step_of


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
            expected = before if await refused(change(store)) else after
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
            length = 0 if await refused(store.fork("s", "child", 8)) else 8
        assert not (await whole(store)).differs(before)
        if not length:
            lasting = number % 2 == 0
            assert lasting or await store.extent("child") == Extent()
            # A change that could not be rolled back is there, complete, at the next opening.
            assert not await refused(store.fork("s", "child", 8), why="already") or lasting
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
            await refused(store.open("s"), why="")
        assert (await store.open("s")).length == 11
        assert_same((await store.read("s"))[:10], [*entries(1, 9), *entries(11, 11)])
        await store.close()
        assert len(Files(root).messages) == 11
        with using(monkeypatch, faulty):
            await refused(store.delete("s"), why="")
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


CODES = dict.fromkeys(WRITING, (errno.ENOSPC, errno.EIO)) | dict.fromkeys(READING, (errno.EIO,))
CODES["open"] = (errno.EMFILE, errno.EMFILE, errno.EIO, errno.ENOSPC)


async def call_of(pair: Pair, seed: int, number: int) -> tuple[Any, ...]:
    """Return method and arguments of a step; every fourth one erases what an earlier step appended."""
    if number % 4 < 3:
        return await pair._call(step_of(seed, number))
    text = f"{random.Random(seed + number).randrange(number)} says"
    kept = [*await pair.model.read("s"), *await pair.model.archived("s")]
    return "rewrite", "s", [entry(one.seq, "(erased)") for one in kept if one.message["content"].startswith(text)]


async def model_of(seed: int, made: list[int]) -> Pair:
    """Return the reference store after steps."""
    pair = Pair(MemoryStore(), ALONE)
    for number in made:
        method, *arguments = await call_of(pair, seed, number)
        await pair._ask(pair.model, method, arguments)
    return pair


@pytest.mark.parametrize("seed", [*range(10), pytest.param(None, marks=pytest.mark.soak)])
async def test_whatever_system_calls_fail_a_step_is_made_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, root: Path, store: JsonlStore, seed: int | None
) -> None:
    """At random, for a step or for many. An erasure that is not refused leaves its text in no byte of a file."""
    steps, seed = (200, random.randrange(2**32)) if seed is None else (60, seed)
    chance, rate, made = random.Random(seed), 0.0, list[int]()
    outcomes: set[str] = set()
    faulty = FaultyOs(lambda name: chance.choice(CODES.get(name, (0,))) if chance.random() < rate else 0, chance.random)
    with using(monkeypatch, faulty):
        for number in range(steps):
            before, after = await model_of(seed, made), await model_of(seed, [*made, number])
            method, *arguments = await call_of(before, seed, number)
            rate = chance.choice((0.0, 0.01, 0.1, 0.3))
            try:
                await asyncio.wait_for(getattr(store, method)(*arguments), 10)
                outcome = "made"
            except NotErased:
                outcome = "not erased"
            except StoreError:
                outcome = "refused"
            outcomes.add(f"{method} {outcome}")
            if number % 10 == 9:
                with suppress(StoreError):
                    await asyncio.wait_for(store.close(), 10)
            rate = 0.0
            if number % 10 == 9:
                await store.close()
            found = gist(await whole(store))
            if found == gist(await whole(after.model)):
                made.append(number)
            else:
                assert outcome == "refused", f"seed {seed}, step {number}: {method} {outcome}"
                assert found == gist(await whole(before.model)), f"seed {seed}, step {number}: {method}"
            if method == "rewrite" and outcome == "made":
                kept = [*await before.model.read("s"), *await before.model.archived("s")]
                seqs = {one.seq for one in arguments[1]}
                for text in {one.message["content"].split("\n")[0] for one in kept if one.seq in seqs} - {"(erased)"}:
                    left = [
                        path.name
                        for path in Files(root).main.parent.iterdir()
                        if f'"{text}'.encode() in path.read_bytes()
                    ]
                    assert not left, f"seed {seed}, step {number}: {text} was erased and is in {left}"
    assert {"append made", "append refused", "rewrite made"} <= outcomes
