"""The law of faults: whatever system call fails, every call ends in time, and memory and files never diverge.

A manager makes random calls on files, while opening, reading, writing, syncing and renaming fail at random.

- Every call returns, or raises an error of ours, within a deadline.
- A `forget` that returns marks has erased their text from every byte of every file.
- Once the faults are over the session closes, and opened again it holds what the manager held.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.errors import ContextError
from amplifier_context_core.stores.jsonl.store import JsonlStore
from tests.stores.jsonl.crashes import using
from tests.stores.jsonl.files import Files, fast_folder

DEADLINE = 10.0  # seconds a call may take
CONFIG = load_config({"max_tokens": 700, "token_counter": "heuristic"})
OPENING = frozenset(["open"])
READING = frozenset(["pread", "fstat", "lstat", "stat"])
WRITING = frozenset(["write", "pwrite", "fdatasync", "fsync", "replace", "ftruncate", "unlink", "mkdir", "fchmod"])


class RandomlyFaultyOs:
    """The module `os`, with calls that fail at random while `rate` is above 0. A failing write is cut short."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.rate, self.failed = chance, 0.0, 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name in OPENING:
            return self._failing(name, real, (errno.EMFILE, errno.EMFILE, errno.EIO, errno.ENOSPC))
        if name in READING:
            return self._failing(name, real, (errno.EIO,))
        return self._failing(name, real, (errno.ENOSPC, errno.EIO)) if name in WRITING else real

    def _failing(self, name: str, real: Callable[..., Any], codes: tuple[int, ...]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            if not self.rate or self.chance.random() >= self.rate:
                return real(*arguments, **more)
            self.failed += 1
            if name in ("write", "pwrite"):
                real(arguments[0], arguments[1][: self.chance.randrange(len(arguments[1]) + 1)], *arguments[2:])
            code = self.chance.choice(codes)
            raise OSError(code, os.strerror(code))

        return call


class Trial:
    """One session under random faults.

    Attributes:
        keys: the text that only one message holds, by its mark.
        ended: how calls ended, by their kind.
    """

    def __init__(self, root: Path, seed: int, faults: RandomlyFaultyOs) -> None:
        self.root, self.seed, self.faults = root, seed, faults
        self.chance = random.Random(seed)
        self.keys: dict[str, str] = {}
        self.ended: dict[str, list[bool]] = {}
        self.written = 0
        self.manager = self._opened()

    async def run(self, calls: int, openings: int) -> None:
        """Make calls while the system fails. Compare memory and files after each of several openings."""
        for number in range(openings):
            for _ in range(5):  # something to edit and to forget
                await self._add()
            self.faults.rate = self.chance.choice((0.01, 0.03, 0.1, 0.3))
            for _ in range(calls):
                await self._call()
            if number % 2:
                await self._ends("close", self.manager.close)
            self.faults.rate = 0.0
            held = await self._texts()
            await self._ends("close", self.manager.close, surely=True)
            self.manager = self._opened()
            assert await self._texts() == held, f"seed {self.seed}: memory and files differ"
        await self.manager.close()

    async def _call(self) -> None:
        name = self.chance.choices(
            ("add", "together", "edit", "view", "forget", "interrupt", "clear", "search", "archive"),
            (30, 8, 22, 15, 18, 3, 1, 3, 3),
        )[0]
        await self._ends(name, getattr(self, f"_{name}"))
        self._learn()

    async def _ends(self, name: str, call: Callable[[], Awaitable[object]], *, surely: bool = False) -> None:
        """Fail unless a call ends in time, by returning or, without `surely`, by an error of ours."""
        try:
            await asyncio.wait_for(call(), DEADLINE)
        except TimeoutError:
            pytest.fail(f"seed {self.seed}: {name} hangs")
        except ContextError:
            if surely:
                raise
            self.ended.setdefault(name, []).append(False)
        else:
            self.ended.setdefault(name, []).append(True)

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
        put = self.chance.choice(([], [self._message()], [self._message(), self._message()]))
        await self.manager.set_messages([*messages[:place], *put, *messages[place + self.chance.randrange(3) :]])

    async def _view(self) -> None:
        await self.manager.get_messages_for_request()

    async def _forget(self) -> None:
        marks = self.chance.sample(sorted(self.keys), min(len(self.keys), self.chance.randrange(1, 3)))
        erased = await self.manager.forget(marks)
        kept = [name for name in erased if self._on_disk(self.keys.get(name, "no such text"))]
        assert not kept, f"seed {self.seed}: {kept} were forgotten and are on disk"

    async def _interrupt(self) -> None:
        await self.manager.interrupt()

    async def _clear(self) -> None:
        await self.manager.clear()

    async def _search(self) -> None:
        await self.manager.search("word")

    async def _archive(self) -> None:
        await self.manager.store.archived("s")

    # -- what is there ----------------------------------------------------------------------------------------------

    def _opened(self) -> ContextManager:
        return ContextManager(CONFIG, session_id="s", store=JsonlStore(self.root))

    def _message(self) -> dict[str, Any]:
        self.written += 1
        text = f"KEY{self.written}K " + "word " * self.chance.choice((1, 20, 60))
        return {"role": "user" if self.written % 3 == 1 else "assistant", "content": text}

    def _learn(self) -> None:
        for entry in self.manager.history.snapshot():
            text = str(entry.message["content"])
            if text.startswith("KEY"):
                self.keys.setdefault(entry.mark, text.split(" ")[0])

    def _on_disk(self, key: str) -> bool:
        return any(key.encode() in path.read_bytes() for path in Files(self.root).main.parent.iterdir())

    async def _texts(self) -> list[object]:
        await self.manager.load()
        return [(entry.mark, entry.role, entry.message["content"]) for entry in self.manager.history.snapshot()]


async def law(monkeypatch: pytest.MonkeyPatch, seeds: range, calls: int, openings: int) -> dict[str, list[bool]]:
    """Run the law on several sessions, and return how their calls ended."""
    ended: dict[str, list[bool]] = {}
    for seed in seeds:
        faults = RandomlyFaultyOs(random.Random(-seed))
        with fast_folder() as root, using(monkeypatch, faults):
            trial = Trial(root, seed, faults)
            await trial.run(calls, openings)
        assert faults.failed
        for name, results in trial.ended.items():
            ended.setdefault(name, []).extend(results)
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
