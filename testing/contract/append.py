"""The store contract, appending and reading: a batch goes to the end of a history, whole or not at all."""

from __future__ import annotations

import asyncio

import pytest

from amplifier_context_core.errors import ContextError
from amplifier_context_core.stores import Extent, Store

from .fixtures import StoreFixtures, assert_same, assert_unknown
from .samples import differing, entries, entry


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


RANGES = [
    (0, None),
    (0, 0),
    (0, 1),
    (2, 5),
    (5, 2),
    (3, 3),
    (9, 10),
    (9, None),
    (10, None),
    (10, 20),
    (4, 10**9),
    (10**9, None),
    (10**9, 10**9 + 1),
    (-1, None),
    (-3, None),
    (-3, 9),
    (-10, None),
    (-20, None),
    (-(10**9), 4),
]  # of a history of ten


class Reading(StoreFixtures):
    """Ranges are indices; seqs are identities."""

    async def test_a_range_is_read_as_python_slices(self, store: Store) -> None:
        await store.append("s", entries(1, 4))
        await store.append("s", entries(5, 10))
        for start, stop in RANGES:
            problem = differing(await store.read("s", start, stop), entries(1, 10)[start:stop])
            assert not problem, f"from {start} to {stop}: {problem}"

    async def test_find_answers_in_the_order_of_the_history(self, store: Store) -> None:
        await store.append("s", entries(1, 6))
        await store.replace("s", 2, [entry(6), entry(4), entry(8)])
        assert_same(await store.find("s", [8, 4, 1, 6, 4]), [entries(1, 1)[0], entry(6), entry(4), entry(8)])

    async def test_find_takes_any_number_of_seqs(self, store: Store) -> None:
        await store.append("s", entries(1, 40))
        assert_same(await store.find("s", range(20, 90_000)), entries(20, 40))
