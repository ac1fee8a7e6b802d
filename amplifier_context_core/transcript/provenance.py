"""What comes in: is a list the history itself, and what does a message tell of its time and its provider?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from ..errors import InvalidMessage
from ..futures import in_thread
from ..messages.parsing import INSTRUCTING, Message, metadata_of, read_message
from ..view.meter import usage_of
from .alignment import Alignment, Incoming, align, same_message, timestamp_of
from .transcript import Entry, Response, Snapshot

# What a message may say of where it came from, whichever loop or provider wrote it.
_MODEL, _PROVIDER = ("model", "model_id"), ("provider", "provider_id")
_FINISH, _ERROR, _USAGE = ("finish_reason", "stop_reason"), ("error",), "usage"
_PROVENANCE = frozenset((*_MODEL, *_PROVIDER, *_FINISH, *_ERROR, _USAGE))
_BREATHE = 500  # messages compared in between two breaths of the event loop


async def echoed(stored: Snapshot, incoming: Sequence[object]) -> tuple[int, int]:
    """How far a list is the history itself: entries passed, and messages passed.

    Stored system and developer messages that a filter left out are passed over. Mostly comparing is all this does, so
    that the echo a host sends every turn costs next to nothing; a message that a filter changed is read and dropped.
    """
    place = heard = 0
    while place < len(stored) and heard < len(incoming):
        entry = stored[place]
        if entry.message == incoming[heard] or _is_filtered(entry, incoming[heard]):
            heard += 1
        elif entry.role not in INSTRUCTING or entry.erased is not None:  # an erased one may have an echo here
            break
        place += 1
        if place % _BREATHE == 0:
            await asyncio.sleep(0)
    if heard == len(incoming) and heard:
        while place < len(stored) and stored[place].role in INSTRUCTING:
            place += 1
    return (place, heard) if heard else (0, 0)


async def aligned(stored: Sequence[Entry], incoming: Sequence[Incoming]) -> Alignment:
    """Line up a list with entries; a long one in a thread."""
    small = len(stored) + len(incoming) <= _BREATHE
    return align(stored, incoming) if small else await in_thread(align, stored, incoming)


def _is_filtered(entry: Entry, raw: object) -> bool:
    """Is it this entry as a host's filter left it (no thinking, no null keys)? What cannot be read is not."""
    if not isinstance(raw, dict) or cast("Message", raw).get("role") != entry.role:
        return False
    try:
        return same_message(entry, *read_message(cast(object, raw)))
    except InvalidMessage:
        return False


def stamped(message: Message, now: str) -> Message:
    """The message with a timestamp in its metadata, if it has none (KERNEL.md: hosts rely on it)."""
    if timestamp_of(message) is None and metadata_of(message).get("timestamp") in (None, ""):
        message["metadata"] = {**metadata_of(message), "timestamp": now}
    return message


def stamped_on_top(message: Message, now: str) -> Message:
    """The same, and with a `timestamp` beside its role, as the `context-persistent` we replace writes it."""
    stamped(message, now)
    if "timestamp" not in message:
        message["timestamp"] = timestamp_of(message) or now
    return message


def response_of(message: Message, heard: Response | None) -> Response | None:
    """Provenance of an assistant message: what it says itself, and what the last response event told."""
    metadata = metadata_of(message)
    if _PROVENANCE.isdisjoint(message) and _PROVENANCE.isdisjoint(metadata):
        return heard

    def said(names: tuple[str, ...]) -> str | None:
        for name in names:
            for place in (message, metadata):
                value = place.get(name)
                if isinstance(value, str) and value:
                    return value
        return None

    usage = usage_of(message.get(_USAGE)) or usage_of(metadata.get(_USAGE))
    model, provider, finish, error = said(_MODEL), said(_PROVIDER), said(_FINISH), said(_ERROR)
    if heard is None:
        if not (usage or model or provider or finish or error):
            return None
        return Response(model, provider, usage, finish, error)
    return Response(
        model or heard.model,
        provider or heard.provider,
        usage or heard.usage,
        finish or heard.finish_reason,
        error or heard.error,
    )
