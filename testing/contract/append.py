"""The store contract, appending: entries go to the end of a history, a batch whole or not at all."""

from __future__ import annotations

import asyncio

import pytest

from amplifier_context_core.errors import ContextError
from amplifier_context_core.stores import Extent, Store

from .fixtures import StoreFixtures, assert_same, assert_unknown
from .samples import entries, entry


class Appending(StoreFixtures):
    """Entries are added at the end, all of a batch or none."""

    async def test_an_unknown_session_is_empty(self, store: Store) -> None:
        await assert_unknown(store, "never seen")
        assert await store.read("never seen", -5) == []
        assert await store.read("never seen", 3, 8) == []
        assert await store.find("never seen", [1, 2]) == []

    async def test_reading_a_session_does_not_create_it(self, store: Store) -> None:
        await store.open("s")
        await store.read("s")
        await store.load_checkpoint("s")
        await store.rewrite("s", entries(1, 2))
        assert await store.sessions() == []

    async def test_what_was_appended_is_read_in_order(self, store: Store) -> None:
        given = entries(1, 9)
        await store.append("s", given[:1])
        await store.append("s", given[1:6])
        await store.append("s", given[6:])
        assert_same(await store.read("s"), given)
        assert await store.extent("s") == Extent(9, 9)

    async def test_batches_appended_at_the_same_time_are_in_order(self, store: Store) -> None:
        given = entries(1, 40)
        await asyncio.gather(
            store.append("s", given[:1]),
            store.append("s", given[1:20]),
            store.append("s", given[20:30]),
            store.append("s", given[30:]),
        )
        assert_same(await store.read("s"), given)
        assert await store.extent("s") == Extent(40, 40)

    async def test_a_batch_is_appended_whole_or_not_at_all(self, store: Store) -> None:
        """JSON cannot hold one entry of the batch. (The memory store writes no JSON; there it cannot fail.)"""
        if not self.persistent:
            return
        await store.append("s", entries(1, 2))
        unwritable = entry(4)._replace(message={"role": "user", "content": b"no JSON"})
        with pytest.raises((ContextError, TypeError, ValueError)):
            await store.append("s", [entry(3), unwritable, entry(5)])
        assert_same(await store.read("s"), entries(1, 2))
        assert (await store.extent("s")).length == 2
        await store.append("s", entries(6, 7))
        assert_same(await store.read("s"), [*entries(1, 2), *entries(6, 7)])

    async def test_the_last_seq_is_the_highest_wherever_it_is(self, store: Store) -> None:
        given = [entry(seq) for seq in (9, 4, 7)]
        await store.append("s", given)
        assert await store.extent("s") == Extent(3, 9)
        await store.append("s", [entry(2)])
        assert_same(await store.read("s"), [*given, entry(2)])
        assert await store.extent("s") == Extent(4, 9)

    async def test_lists_that_went_in_or_came_out_can_be_changed(self, store: Store) -> None:
        given = entries(1, 3)
        await store.append("s", given)
        given.clear()
        (await store.read("s")).clear()
        (await store.find("s", [1])).clear()
        assert_same(await store.read("s"), entries(1, 3))
        given = entries(2, 4)
        await store.replace("s", 1, given)
        given.clear()
        assert_same(await store.read("s"), entries(1, 4))
        await store.replace("s", 3, [])
        (await store.archived("s")).clear()
        assert_same(await store.archived("s"), entries(4, 4) if self.archives else [])
