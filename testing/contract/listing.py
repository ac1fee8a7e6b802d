"""The store contract, the list of sessions, and deleting one."""

from __future__ import annotations

import asyncio

from amplifier_context_core.stores import Store

from .fixtures import StoreFixtures, assert_unknown
from .samples import entries


class Listing(StoreFixtures):
    """The list of sessions, the last changed first, and deleting a session."""

    async def test_the_last_changed_session_comes_first(self, store: Store) -> None:
        for session_id in ("b", "a", "c"):
            await store.append(session_id, entries(1, 2))
            await asyncio.sleep(self.tick)
        assert [info.session_id for info in await store.sessions()] == ["c", "a", "b"]
        await store.append("b", entries(3, 3))
        await asyncio.sleep(self.tick)
        assert [info.session_id for info in await store.sessions()] == ["b", "c", "a"]
        await store.replace("a", 1, [])
        await asyncio.sleep(self.tick)
        assert [info.session_id for info in await store.sessions()] == ["a", "b", "c"]
        await store.fork("b", "d")
        assert [info.session_id for info in await store.sessions()] == ["d", "a", "b", "c"]

    async def test_reading_a_session_is_no_change_of_it(self, store: Store) -> None:
        for session_id in ("a", "b"):
            await store.append(session_id, entries(1, 2))
            await asyncio.sleep(self.tick)
        await store.open("a")
        await store.read("a")
        await store.load_checkpoint("a")
        await store.append("a", [])
        await store.release("a")
        assert [info.session_id for info in await store.sessions()] == ["b", "a"]

    async def test_a_deleted_session_is_gone_with_all_that_belongs_to_it(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.append("other", entries(1, 2))
        await store.replace("s", 3, [])
        await store.save_checkpoint("s", 2, b"two")
        await store.delete("s")
        await assert_unknown(store, "s")
        assert [info.session_id for info in await store.sessions()] == ["other"]
