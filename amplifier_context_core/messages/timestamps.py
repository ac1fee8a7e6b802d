"""Timestamps of messages: ISO 8601, UTC, milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime

from .parsing import Message, metadata_of


def utc_now() -> str:
    """ISO 8601, UTC, milliseconds: ``2026-02-03T04:05:06.789+00:00``."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def seconds_of(stamp: str) -> float | None:
    """Return an ISO 8601 time as seconds since 1970, taken for UTC without an offset; None if it is no such time."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def timestamp_of(message: Message) -> str | None:
    """Read the metadata, or the top level, where an older module wrote it."""
    stamp = metadata_of(message).get("timestamp")
    if not isinstance(stamp, str) or not stamp:
        stamp = message.get("timestamp")
    return stamp if isinstance(stamp, str) and stamp else None


def with_timestamp(message: Message, now: str) -> Message:
    """Add a timestamp to the metadata of a message without one, in place (docs/kernel.md: hosts rely on it)."""
    if timestamp_of(message) is None and metadata_of(message).get("timestamp") in (None, ""):
        message["metadata"] = {**metadata_of(message), "timestamp": now}
    return message


def with_top_level_timestamp(message: Message, now: str) -> Message:
    """Add it to the metadata and beside the role, in place, as the replaced `context-persistent` writes it."""
    with_timestamp(message, now)
    if "timestamp" not in message:
        message["timestamp"] = timestamp_of(message) or now
    return message
