"""Measure appending to a store and its baseline in turns, in the same process and folder, because disks are noisy.

A *turn* runs every kind of append once: first the baseline, then one appender, then sixteen. A figure is the median
over the turns. A figure in units of the baseline is the median of the ratios within a turn.
"""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from statistics import median
from time import perf_counter

from amplifier_context_core import ContextManager, HeuristicTokenCounter, load_config
from amplifier_context_core.stores import Store
from amplifier_context_core.stores.codec import message_json
from amplifier_context_core.transcript.entry import Entry

from .sessions import BUDGET, Message, messages
from .stores_baselines import SIXTEEN, Baseline
from .stores_entries import entries_of
from .timers import Stall

Figures = dict[str, float]
Say = Callable[[str], None]

TURNS = 9
ALLOWED = 1.15  # of the time of a bare commit of the same row, besides what is counted in µs
_SINGLE = 60  # messages of a single appender in a turn, in blocks that alternate with the baseline's
_BLOCK = 20
_MANY = 400  # messages of sixteen appenders in a turn
_WARM = 32


class Feed:
    """Endless messages and entries for appenders, with their JSON lines for the baseline."""

    def __init__(self, count: int) -> None:
        self._messages = list(messages(count))
        self._lines = [message_json(message) + b"\n" for message in self._messages]
        self._sessions: dict[str, Iterator[Entry]] = {}
        self._next = 0

    def take(self, count: int) -> tuple[list[Message], list[bytes]]:
        """Return the next messages, also as lines."""
        places = [(self._next + step) % len(self._messages) for step in range(count)]
        self._next += count
        return [{**self._messages[place]} for place in places], [self._lines[place] for place in places]

    def entries(self, session_id: str, count: int) -> list[Entry]:
        """Return the next entries of a session."""
        if session_id not in self._sessions:
            self._sessions[session_id] = entries_of(session_id, self._endless())
        return list(islice(self._sessions[session_id], count))

    def _endless(self) -> Iterator[Message]:
        while True:
            yield from ({**message} for message in self._messages)


async def measure_appends(store: Store, baseline: Baseline, say: Say) -> Figures:
    """Return all figures of appending to one store."""
    run = f"bench-{uuid.uuid4().hex[:8]}"
    bench = _Appends(store, baseline, run)
    try:
        await bench.warm_up()
        for turn in range(TURNS):
            say(f"appending, turn {turn + 1} of {TURNS}")
            await bench.turn()
    finally:
        await bench.clean()
    return bench.figures()


class _Appends:
    """Runs the turns and collects their figures."""

    def __init__(self, store: Store, baseline: Baseline, run: str) -> None:
        self._store, self._baseline = store, baseline
        self._sessions = [f"{run}-{number}" for number in range(SIXTEEN)]
        self._managers = {
            name: ContextManager(
                load_config({"max_tokens": BUDGET}),
                session_id=f"{run}-{name}",
                store=store,
                counter=HeuristicTokenCounter(),
            )
            for name in ("single", "shared")
        }
        self._feed = Feed(3_000)
        self._noted: dict[str, list[float]] = {}

    async def warm_up(self) -> None:
        """Create connections, files and sessions, and exclude all existing objects from garbage collection."""
        for session_id in self._sessions:
            await self._store.append(session_id, self._feed.entries(session_id, 2))
        for manager in self._managers.values():
            await self._through(manager, self._feed.take(_WARM)[0])
        await self._baseline.many(self._feed.take(_WARM)[1])
        await self._baseline.single(self._feed.take(_WARM)[1])
        gc.collect()
        gc.freeze()

    async def turn(self) -> None:
        """Run one turn."""
        bare = await self._singles()
        before = await self._bare_many()
        for name, work in (("shared", self._shared), ("spread", self._spread)):
            seconds = await self._timed(work())
            after = await self._bare_many()
            stall = await self._watched(work())
            reference = 2 / (1 / before + 1 / after)
            rate = _MANY / seconds
            self._note(f"{name}_rate", rate)
            self._note(f"{name}_baselines", rate / reference)
            self._note(f"{name}_stall", stall.longest * 1000)
            self._note(f"{name}_callback", stall.callback * 1000)
            self._note(f"{name}_gc", stall.collecting * 1000)
            before = after
        self._note("bare_us", bare * 1e6)
        self._note("bare_rate", before)
        await self._beside_nothing()

    async def clean(self) -> None:
        """Delete everything that was created."""
        for session_id in (*self._sessions, *(manager.session_id for manager in self._managers.values())):
            await self._store.delete(session_id)
        await self._store.close()
        await self._baseline.close()

    def figures(self) -> Figures:
        """Return the median of each figure."""
        return {name: median(values) for name, values in self._noted.items()}

    def _note(self, name: str, value: float) -> None:
        self._noted.setdefault(name, []).append(value)

    # -- one appender -------------------------------------------------------------------------------------------------

    async def _singles(self) -> float:
        """Run one appender in blocks that alternate with the baseline's; return the baseline's seconds per message."""
        bares: list[float] = []
        for _ in range(_SINGLE // _BLOCK):
            bare = await self._block(self._bare_one())
            bares.append(bare)
            for name, one in (("append", self._append_one()), ("add", self._add_one())):
                took = await self._block(one)
                self._note(f"{name}_us", took * 1e6)
                self._note(f"{name}_above", (took - bare) * 1e6)
                self._note(f"{name}_excess", (took - ALLOWED * bare) * 1e6)
                self._note(f"{name}_baselines", bare / took)
        return median(bares)

    async def _block(self, one: Callable[[], Callable[[], Awaitable[object]]]) -> float:
        """Return the seconds per message, the median of a block."""
        times: list[float] = []
        works = [one() for _ in range(_BLOCK)]  # created before the clock starts, as for the baseline
        for work in works:
            started = perf_counter()
            await work()
            times.append(perf_counter() - started)
        return median(times)

    def _bare_one(self) -> Callable[[], Callable[[], Awaitable[object]]]:
        def one() -> Callable[[], Awaitable[object]]:
            lines = self._feed.take(1)[1]
            return lambda: self._baseline.single(lines)

        return one

    def _append_one(self) -> Callable[[], Callable[[], Awaitable[object]]]:
        session_id = self._sessions[0]

        def one() -> Callable[[], Awaitable[object]]:
            entries = self._feed.entries(session_id, 1)
            return lambda: self._store.append(session_id, entries)

        return one

    def _add_one(self) -> Callable[[], Callable[[], Awaitable[object]]]:
        manager = self._managers["single"]

        def one() -> Callable[[], Awaitable[object]]:
            (message,) = self._feed.take(1)[0]
            return lambda: manager.add_message(message)

        return one

    # -- sixteen ------------------------------------------------------------------------------------------------------

    async def _bare_many(self) -> float:
        """Return the messages per second of the baseline."""
        lines = self._feed.take(_MANY)[1]
        started = perf_counter()
        await self._baseline.many(lines)
        seconds = perf_counter() - started
        async with Stall() as stall:
            await self._baseline.many(lines)
        self._note("bare_stall", stall.longest * 1000)
        self._note("bare_callback", stall.callback * 1000)
        return _MANY / seconds

    async def _timed(self, tasks: Sequence[Awaitable[object]]) -> float:
        """Return the seconds that all of them take together."""
        started = perf_counter()
        await asyncio.gather(*tasks)
        return perf_counter() - started

    async def _watched(self, tasks: Sequence[Awaitable[object]]) -> Stall:
        """Repeat the run for stalls, because timing them costs part of the time that is measured above."""
        async with Stall() as stall:
            await asyncio.gather(*tasks)
        return stall

    def _shared(self) -> Sequence[Awaitable[object]]:
        """Let sixteen tasks add to one session through its manager."""
        fed = self._feed.take(_MANY)[0]
        return [self._through(self._managers["shared"], fed[number::SIXTEEN]) for number in range(SIXTEEN)]

    def _spread(self) -> Sequence[Awaitable[object]]:
        """Let sixteen tasks append to one session each, all in one store."""
        each = _MANY // SIXTEEN
        return [self._into(session_id, self._feed.entries(session_id, each)) for session_id in self._sessions]

    async def _through(self, manager: ContextManager, fed: Sequence[Message]) -> None:
        for message in fed:
            await manager.add_message(message)

    async def _into(self, session_id: str, entries: Sequence[Entry]) -> None:
        for entry in entries:
            await self._store.append(session_id, [entry])

    async def _beside_nothing(self) -> None:
        """Measure the machine's own stall: of an idle loop."""
        async with Stall() as stall:
            await asyncio.sleep(0.2)
        self._note("idle_stall", stall.longest * 1000)
        self._note("idle_callback", stall.callback * 1000)
