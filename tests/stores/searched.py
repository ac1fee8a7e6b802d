"""What the tests of search indexes share: sessions of texts, and the order of an append and a search that indexes."""

from __future__ import annotations

import asyncio

from amplifier_context_testing.contract.samples import entry
from amplifier_context_testing.contract.search import SearchingStore


async def append_texts(store: SearchingStore, *texts: str) -> None:
    await store.append("s", [entry(seq, text) for seq, text in enumerate(texts, 1)])


async def order_of_append_and_search(store: SearchingStore, session_id: str) -> list[str]:
    """Append to a session while the first search indexes 3,000 messages of session `s`; return what ended first."""
    await append_texts(store, *(f"needle {seq}" for seq in range(1, 3_001)))
    ended: list[str] = []

    async def search() -> list[int]:
        found = await store.search("s", "needle 2999", 1)
        ended.append("search")
        return found

    searching = asyncio.create_task(search())
    await asyncio.sleep(0)
    await store.append(session_id, [entry(3_001, "appended")])
    ended.append("append")
    assert await searching == [2999]
    return ended
