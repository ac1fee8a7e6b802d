"""Read a long history in batches."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..transcript.entry import Entry
from .protocol import Store

BATCH_SIZE = 1_000  # entries read at once: some milliseconds of work


async def read_in_batches(
    store: Store, session_id: str, start: int = 0, stop: int | None = None
) -> AsyncIterator[list[Entry]]:
    """Yield the entries from index `start` up to `stop` (None: to the end), in lists of at most `BATCH_SIZE`."""
    length = (await store.extent(session_id)).length
    stop = length if stop is None else min(stop, length)
    for index in range(start, stop, BATCH_SIZE):
        yield await store.read(session_id, index, min(index + BATCH_SIZE, stop))
