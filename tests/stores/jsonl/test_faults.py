"""Faults of the system: the caller gets advice, acknowledged data stays, and the session continues afterwards.

The law of faults, whatever system calls fail: a manager makes random calls on files, while opening, reading, writing,
syncing and renaming fail at random.

- Every call returns, or raises an error of ours, within a deadline.
- A `forget` that returns marks has erased their text from every byte of every file.
- Once the faults are over the session closes, and opened again it holds what the manager held.
"""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.errors import ContextError, NotErased, StoreError
from amplifier_context_core.stores import Extent, MemoryStore
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.contract.fixtures import Whole, assert_same, whole
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.jsonl.crashes import READING, WRITING, Disk, FaultyOs, each_fault, using
from tests.stores.jsonl.files import CHANGES, Change, Files, begin, fast_folder, reopen, unlocked


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
            assert len(await store.sessions()) == 1 + (await store.extent("child")).length // 8
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
        assert await store.load_checkpoint("s") == b"four"
        await store.close()
        assert len(Files(root).messages) == 11
    for root, faulty, _ in each_fault():
        store = JsonlStore(root)
        await begin(store)
        with using(monkeypatch, faulty):
            await refused(store.delete("s"), why="")
        await store.delete("s")
        assert not (root / "s").exists()
        await store.append("s", entries(1, 1))
        assert_same(await store.read("s"), entries(1, 1))
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


DEADLINE = 10.0  # seconds a call may take
CONFIG = load_config({"max_tokens": 700, "token_counter": "heuristic"})
CODES = dict.fromkeys(WRITING, (errno.ENOSPC, errno.EIO)) | dict.fromkeys(READING, (errno.EIO,))
CODES["open"] = (errno.EMFILE, errno.EMFILE, errno.EIO, errno.ENOSPC)
SHARES = {"add": 30, "together": 8, "edit": 22, "view": 15, "forget": 18, "interrupt": 3, "clear": 1, "search": 3}
SHARES["archive"] = 3


class Trial:
    """One session under random faults.

    Attributes:
        rate: share of the system's calls that fail.
        keys: the text that only one message holds, by its mark.
        ended: how calls ended, by their kind.
    """

    def __init__(self, root: Path, seed: int, ended: dict[str, list[bool]]) -> None:
        self.root, self.seed, self.ended = root, seed, ended
        self.chance, self.rate = random.Random(seed), 0.0
        faults = random.Random(-seed)
        self.os = FaultyOs(
            lambda name: faults.choice(CODES[name]) if self.rate and faults.random() < self.rate else 0, faults.random
        )
        self.keys: dict[str, str] = {}
        self.written = 0
        self.manager = self._opened()
        self.calls: dict[str, Callable[[], Awaitable[object]]] = {
            "add": self._add,
            "together": self._together,
            "edit": self._edit,
            "view": lambda: self.manager.get_messages_for_request(),
            "forget": self._forget,
            "interrupt": lambda: self.manager.interrupt(),
            "clear": lambda: self.manager.clear(),
            "search": lambda: self.manager.search("word"),
            "archive": lambda: self.manager.store.archived("s"),
        }

    async def run(self, calls: int, openings: int) -> None:
        """Make calls while the system fails. Compare memory and files after each of several openings."""
        for number in range(openings):
            for _ in range(5):  # something to edit and to forget
                await self._add()
            self.rate = self.chance.choice((0.01, 0.03, 0.1, 0.3))
            for name in self.chance.choices([*SHARES], [*SHARES.values()], k=calls):
                await self._ends(name, self.calls[name])
                self._learn()
            if number % 2:
                await self._ends("close", self.manager.close)
            self.rate = 0.0
            held = await self._texts()
            await self._ends("close", self.manager.close, surely=True)
            self.manager = self._opened()
            assert await self._texts() == held, f"seed {self.seed}: memory and files differ"
        await self.manager.close()

    async def _ends(self, name: str, call: Callable[[], Awaitable[object]], *, surely: bool = False) -> None:
        """Fail unless a call ends in time, by returning or, without `surely`, by an error of ours."""
        is_done = True
        try:
            await asyncio.wait_for(call(), DEADLINE)
        except TimeoutError:
            pytest.fail(f"seed {self.seed}: {name} hangs")
        except ContextError:
            if surely:
                raise
            is_done = False
        self.ended.setdefault(name, []).append(is_done)

    # -- calls ------------------------------------------------------------------------------------------------------

    async def _add(self) -> None:
        await self.manager.add_message(self._message())

    async def _together(self) -> None:
        results = await asyncio.gather(*(self._add() for _ in range(3)), return_exceptions=True)
        for problem in results:
            if problem is not None:
                raise problem

    async def _edit(self) -> None:
        messages = await self.manager.get_messages()
        place = self.chance.randrange(len(messages) + 1)
        put = [self._message() for _ in range(self.chance.randrange(3))]
        await self.manager.set_messages([*messages[:place], *put, *messages[place + self.chance.randrange(3) :]])

    async def _forget(self) -> None:
        marks = self.chance.sample(sorted(self.keys), min(len(self.keys), self.chance.randrange(1, 3)))
        for name in await self.manager.forget(marks):
            key = self.keys.get(name, "no such text").encode()
            held = [path.name for path in Files(self.root).main.parent.iterdir() if key in path.read_bytes()]
            assert not held, f"seed {self.seed}: {name} was forgotten and is in {held}"

    # -- what is there ----------------------------------------------------------------------------------------------

    def _opened(self) -> ContextManager:
        return ContextManager(CONFIG, session_id="s", store=JsonlStore(self.root))

    def _message(self) -> dict[str, Any]:
        self.written += 1
        text = f"KEY{self.written}K " + "word " * self.chance.choice((1, 20, 60))
        return {"role": "user" if self.written % 3 == 1 else "assistant", "content": text}

    def _learn(self) -> None:
        for one in self.manager.history.snapshot():
            text = str(one.message["content"])
            if text.startswith("KEY"):
                self.keys.setdefault(one.mark, text.split(" ")[0])

    async def _texts(self) -> list[object]:
        await self.manager.load()
        return [(one.mark, one.role, one.message["content"]) for one in self.manager.history.snapshot()]


async def law(monkeypatch: pytest.MonkeyPatch, seeds: range, calls: int, openings: int) -> dict[str, list[bool]]:
    """Run the law on several sessions, and return how their calls ended."""
    ended: dict[str, list[bool]] = {}
    for seed in seeds:
        with fast_folder() as root:
            trial = Trial(root, seed, ended)
            with using(monkeypatch, trial.os):
                await trial.run(calls, openings)
        assert trial.os.failed
    return ended


async def test_whatever_system_call_fails_memory_and_files_never_part(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = await law(monkeypatch, range(12), calls=12, openings=4)
    for name in ("add", "together", "edit", "forget", "view"):
        assert True in ended[name], f"{name} was never made"
    for name in ("add", "edit", "forget"):
        assert False in ended[name], f"{name} was never refused"


@pytest.mark.soak
@pytest.mark.parametrize("part", range(8))
async def test_whatever_system_call_fails_memory_and_files_never_part_at_length(
    monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    await law(monkeypatch, range(1_000 + 100 * part, 1_100 + 100 * part), calls=20, openings=6)
