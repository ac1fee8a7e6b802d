"""The store contract, histories: what is appended is read again, each entry unchanged, a batch whole or not at all."""

from __future__ import annotations

import asyncio

import pytest

from amplifier_context_core.errors import ContextError
from amplifier_context_core.stores import Extent, Store
from amplifier_context_core.transcript.entry import Entry

from ..checks.corpus import conversations
from .fixtures import MakeStore, StoreFixtures, assert_same, assert_unknown
from .samples import differing, entries, entry, odd_entries

_PLACES = (0, 1, 5, 9, 10, 10**9, -1, -3, -10, -(10**9))
RANGES = [(start, stop) for start in _PLACES for stop in (None, 0, 4, 10, 10**9)]  # of a history of ten


class Appending(StoreFixtures):
    """Entries are added at the end, all of a batch or none. Ranges are indices; seqs are identities."""

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

    async def test_odd_messages_appended_one_by_one_come_back_as_they_were(
        self, store: Store, further: MakeStore
    ) -> None:
        given = odd_entries()
        for one in given:
            await store.append("s", [one])
            assert_same(await store.read("s", -1), [one])
        await self.assert_found(store, further, given)

    async def test_odd_conversations_come_back_as_they_were(self, store: Store, further: MakeStore) -> None:
        for talk in conversations():
            given = [entry(seq, message, session_id=talk.name) for seq, message in enumerate(talk.messages, 1)]
            await store.append(talk.name, given)
            assert_same(await store.read(talk.name), given)
        await store.close()
        other = await further()
        for talk in conversations():
            given = [entry(seq, message, session_id=talk.name) for seq, message in enumerate(talk.messages, 1)]
            assert_same(await other.read(talk.name), given)

    async def test_what_was_archived_or_rewritten_comes_back_as_it_was(self, store: Store) -> None:
        given = odd_entries()
        await store.append("s", [entry(one.seq) for one in given])
        await store.rewrite("s", given)
        assert_same(await store.read("s"), given)
        await store.replace("s", 0, [])
        assert_same(await store.archived("s"), given if self.archives else [])

    async def test_a_text_of_5_mb_comes_back_whole(self, store: Store, further: MakeStore) -> None:
        given = [entry(1, "0123456789 line\n" * 320_000), entry(2, "読" * 200_000), entry(3)]
        await store.append("s", given)
        await self.assert_found(store, further, given)

    async def assert_found(self, store: Store, further: MakeStore, given: list[Entry]) -> None:
        """The history is these entries: at once, by range, by seq, with more after them, and elsewhere."""
        assert_same(await store.read("s"), given)
        assert_same(await store.read("s", -2), given[-2:])
        assert_same(await store.find("s", [one.seq for one in given]), given)
        after = entry(10**6)
        await store.append("s", [after])
        await store.close()
        assert_same(await (await further()).read("s"), [*given, after])
