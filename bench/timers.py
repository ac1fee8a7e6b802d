"""Quantiles, and the memory of the process."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


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
