"""Reading a long history piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..transcript.transcript import Entry
from .protocol import Store

BATCH_SIZE = 1_000  # entries read at once: some milliseconds of work


async def read_in_batches(
    store: Store, session_id: str, start: int = 0, stop: int | None = None, *, size: int = BATCH_SIZE
) -> AsyncIterator[list[Entry]]:
    """The entries from place `start` up to `stop` (None: to the end), in lists of `size` at most.

    Where damage was found and mended on the way, the history has become shorter, and what follows has moved up.
    """
    length = (await store.extent(session_id)).length
    stop = length if stop is None else min(stop, length)
    place = start
    while place < stop:
        end = min(place + size, stop)
        entries = await store.read(session_id, place, end)
        yield entries
        moved = 0
        if len(entries) < end - place:
            now = (await store.extent(session_id)).length
            moved, length = max(0, length - now), now
        place, stop = end - moved, stop - moved
