"""Taking times: of spans, of the event loop's longest stall, of the ladder's rungs; and the process's memory."""

from __future__ import annotations

import asyncio
import gc
import math
import selectors
from collections.abc import Coroutine, Sequence
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self, TypeVar

from amplifier_context_core import Goal, Strategy
from amplifier_context_core.compaction.checkpoint import Draft

T = TypeVar("T")

_TICK = 0.001  # seconds between two looks of the ticking task


def run(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a loop whose timers are exact. The usual one, epoll, waits in whole milliseconds, rounded up:
    beside anything else that happens, a tick comes up to a millisecond late, and no shorter stall could be seen.
    """
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        return runner.run(work)


class Collector:
    """Python's cycle collector, which stops everything: its pauses are told apart from our own time.

    Attributes:
        seconds: all its pauses so far.
        longest: its longest pause since this was last set to 0.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest = 0.0
        self._since = 0.0
        gc.callbacks.append(self._pauses)

    def _pauses(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._since = perf_counter()
        else:
            pause = perf_counter() - self._since
            self.seconds += pause
            self.longest = max(self.longest, pause)


collector = Collector()


class Stall:
    """``async with Stall() as stall:`` how long the span took, and how long at most the event loop stood still in it.

    Attributes:
        seconds: the whole span.
        longest: the longest stall in seconds: how late a tick came, be it for one callback or for many that were ready.
        callback: the longest callback in seconds (a task's step, mostly): what blocks a loop, as asyncio's debug mode
            understands it.
        collecting: the longest pause of the collector in it; part of a stall, not of our making alone.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest = 0.0
        self.callback = 0.0
        self.collecting = 0.0

    async def __aenter__(self) -> Self:
        self._run = asyncio.Handle._run
        loop = asyncio.get_running_loop()

        def timed(handle: asyncio.Handle) -> None:
            started = perf_counter()
            self._run(handle)
            if handle._loop is loop:  # pyright: ignore[reportAttributeAccessIssue]
                self.callback = max(self.callback, perf_counter() - started)

        asyncio.Handle._run = timed
        self._ticking = asyncio.create_task(self._tick())
        await asyncio.sleep(0)
        collector.longest = 0.0
        self._started = perf_counter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = perf_counter() - self._started
        await asyncio.sleep(2 * _TICK)  # a stall at the very end is seen by the tick after it
        self._ticking.cancel()
        asyncio.Handle._run = self._run
        self.collecting = collector.longest

    async def _tick(self) -> None:
        while True:
            slept = perf_counter()
            await asyncio.sleep(_TICK)
            self.longest = max(self.longest, perf_counter() - slept - _TICK)


class TimedStrategy(Strategy):
    """A rung of the ladder whose time is taken.

    Attributes:
        seconds: spent in it so far.
    """

    def __init__(self, rung: Strategy) -> None:
        self.name = rung.name  # pyright: ignore[reportAttributeAccessIssue] - of the class elsewhere, here of the object
        self.seconds = 0.0
        self._rung = rung

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        started = perf_counter()
        try:
            return await self._rung.apply(draft, goal)
        finally:
            self.seconds += perf_counter() - started


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all values does not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def resident_bytes() -> int:
    """Memory of this process that is in RAM, after the collector has run."""
    gc.collect()
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024
    import resource  # macOS: only the peak is to be had, in bytes

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
