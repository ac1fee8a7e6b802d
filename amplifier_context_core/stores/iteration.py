"""Read a long history in batches."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..transcript.entry import Entry
from .protocol import Store

BATCH_SIZE = 1_000  # entries read at once: some milliseconds of work


async def read_in_batches(
    store: Store, session_id: str, start: int = 0, stop: int | None = None
) -> AsyncIterator[list[Entry]]:
    """Yield the entries from index `start` up to `stop` (None: to the end), in lists of at most `BATCH_SIZE`.

    If damage is repaired during the reading, the history has become shorter and later entries have moved up.
    """
    length = (await store.extent(session_id)).length
    stop = length if stop is None else min(stop, length)
    index = start
    while index < stop:
        end = min(index + BATCH_SIZE, stop)
        entries = await store.read(session_id, index, end)
        yield entries
        moved = 0
        if len(entries) < end - index:
            now = (await store.extent(session_id)).length
            moved, length = max(0, length - now), now
        index, stop = end - moved, stop - moved
