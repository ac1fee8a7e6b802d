"""Measure time spans, stalls of the event loop, strategies of the ladder, and the memory of the process."""

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

_TICK = 0.001  # seconds between two wake-ups of the ticking task


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop with exact timers.

    The default selector, epoll, waits in whole milliseconds, rounded up. A tick would be up to a millisecond late
    without any stall, and shorter stalls could not be measured.
    """
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        return runner.run(work)


class Collector:
    """Measures the pauses of Python's cycle collector, which stops all threads.

    Attributes:
        seconds: sum of its pauses.
        longest: its longest pause in seconds since this was set to 0.
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
    """Measure a span and the longest stall of the event loop in it: ``async with Stall() as stall:``.

    Attributes:
        seconds: the whole span.
        longest: the longest stall in seconds: the delay of a tick, caused by one callback or by many ready ones.
        callback: the longest callback in seconds (usually a step of a task), as asyncio's debug mode measures it.
        collecting: the longest pause of the cycle collector in seconds; it is part of a stall.
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
        await asyncio.sleep(2 * _TICK)  # the next tick measures a stall at the end
        self._ticking.cancel()
        asyncio.Handle._run = self._run
        self.collecting = collector.longest

    async def _tick(self) -> None:
        while True:
            slept = perf_counter()
            await asyncio.sleep(_TICK)
            self.longest = max(self.longest, perf_counter() - slept - _TICK)


class TimedStrategy(Strategy):
    """Measures the time of a strategy.

    Attributes:
        seconds: time spent in the strategy.
    """

    def __init__(self, strategy: Strategy) -> None:
        self.name = strategy.name  # pyright: ignore[reportAttributeAccessIssue] - of the class elsewhere, here of the object
        self.seconds = 0.0
        self._strategy = strategy

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        started = perf_counter()
        try:
            return self._strategy.apply(draft, goal)
        finally:
            self.seconds += perf_counter() - started


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all values does not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def resident_bytes() -> int:
    """Return the resident memory of this process after a run of the cycle collector."""
    gc.collect()
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024
    import resource  # macOS reports only the peak, in bytes

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
