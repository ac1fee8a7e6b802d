"""The time as messages carry it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from .parsing import Message, metadata_of

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


def timestamp_of(message: Message) -> str | None:
    """When it was made, as it says itself: in its metadata, or at the top (an older module's place)."""
    stamp = metadata_of(message).get("timestamp")
    if not isinstance(stamp, str) or not stamp:
        stamp = message.get("timestamp")
    return stamp if isinstance(stamp, str) and stamp else None


def with_timestamp(message: Message, now: str) -> Message:
    """The message with a timestamp in its metadata, if it has none (KERNEL.md: hosts rely on it)."""
    if timestamp_of(message) is None and metadata_of(message).get("timestamp") in (None, ""):
        message["metadata"] = {**metadata_of(message), "timestamp": now}
    return message


def with_top_level_timestamp(message: Message, now: str) -> Message:
    """The same, and with a `timestamp` beside its role, as the `context-persistent` we replace writes it."""
    with_timestamp(message, now)
    if "timestamp" not in message:
        message["timestamp"] = timestamp_of(message) or now
    return message
