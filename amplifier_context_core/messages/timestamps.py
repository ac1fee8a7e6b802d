"""The time as messages carry it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

_second = (-1, "")  # the last one asked for, and how it is written: most often the next message comes within it


def utc_now() -> str:
    """ISO 8601, UTC, milliseconds: ``2026-02-03T04:05:06.789+00:00``."""
    global _second
    second, millisecond = divmod(time.time_ns() // 1_000_000, 1000)
    known, written = _second
    if known != second:
        written = datetime.fromtimestamp(second, UTC).isoformat()[:19]
        _second = (second, written)  # one tuple: another thread never sees half of it
    return f"{written}.{millisecond:03d}+00:00"
