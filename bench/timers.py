"""Measure time spans, stalls of the event loop, and the memory of the process."""

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

T = TypeVar("T")

_TICK = 0.001  # seconds between two wake-ups of the ticking task


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop with exact timers.

    The default selector, epoll, waits in whole milliseconds, rounded up. A tick would be up to a millisecond late
    without any stall, and shorter stalls could not be measured.
    """
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        return runner.run(work)


class Stall:
    """Measure a span and the longest stall of the event loop in it: ``async with Stall() as stall:``.

    Attributes:
        longest: the longest stall in seconds: the delay of a tick, caused by one callback or by many ready ones.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest = 0.0

    async def __aenter__(self) -> Self:
        self._ticking = asyncio.create_task(self._tick())
        await asyncio.sleep(0)
        self._started = perf_counter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = perf_counter() - self._started
        await asyncio.sleep(2 * _TICK)  # the next tick measures a stall at the end
        self._ticking.cancel()

    async def _tick(self) -> None:
        while True:
            slept = perf_counter()
            await asyncio.sleep(_TICK)
            self.longest = max(self.longest, perf_counter() - slept - _TICK)


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
