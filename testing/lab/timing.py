"""How long requests took and how much memory a session needs: the only figures that depend on the machine."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence


def quantile(times: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile; 0 of nothing."""
    if not times:
        return 0.0
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def peak_memory(work: Callable[[], Awaitable[None]]) -> int:
    """Bytes that Python objects took at most while something ran, above what was there before. Slow."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await work()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before
