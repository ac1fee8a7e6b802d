"""The store contract, replacing: a history is kept up to an index and continues with other entries."""

from __future__ import annotations

import pytest

from amplifier_context_core.errors import ContextError, StoreError
from amplifier_context_core.stores import Extent, Store
from amplifier_context_core.transcript.entry import Entry

from .fixtures import StoreFixtures, assert_same, whole
from .samples import BEYOND, entries, entry


class Replacing(StoreFixtures):
    """A history is kept up to an index and continues with other entries."""

    async def test_what_was_replaced_goes_to_the_archive_oldest_replacement_first(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 3, entries(6, 7))  # 4 5 leave
        await store.append("s", entries(8, 8))
        await store.replace("s", 1, entries(9, 9))  # 2 3 6 7 8 leave
        await store.replace("s", 0, [])  # 1 9 leave
        left = [*entries(4, 5), *entries(2, 3), *entries(6, 8), *entries(1, 1), *entries(9, 9)]
        await self.assert_archived(store, left)
        assert await store.read("s") == []

    async def test_entries_of_the_replaced_range_may_move_and_are_not_archived(self, store: Store) -> None:
        given = entries(1, 6)
        await store.append("s", given)
        order = [given[5], *entries(7, 7), given[3], given[2]]  # 5 leaves
        await store.replace("s", 2, order)
        assert_same(await store.read("s"), [*given[:2], *order])
        await self.assert_archived(store, [given[4]])
        assert await store.extent("s") == Extent(6, 7)

    async def test_seqs_are_not_given_again(self, store: Store) -> None:
        await store.append("s", entries(1, 4))
        await store.replace("s", 2, [])
        assert await store.extent("s") == Extent(2, 4)
        await store.replace("s", 0, [])
        assert await store.extent("s") == Extent(0, 4)
        await store.append("s", entries(9, 9))
        await store.replace("s", 0, [])
        assert await store.extent("s") == Extent(0, 9)

    @pytest.mark.parametrize("keep", BEYOND)
    async def test_keeping_more_than_there_is_raises_and_changes_nothing(self, store: Store, keep: int) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 3, b"three")
        before = await whole(store)
        with pytest.raises(StoreError, match="'s'"):
            await store.replace("s", keep, entries(4, 5))
        with pytest.raises(StoreError):
            await store.replace("s", keep, [])
        assert not (await whole(store)).differs(before)

    @pytest.mark.parametrize(("keep", "valid"), [(0, False), (2, False), (3, True), (5, True)])
    async def test_a_checkpoint_is_kept_as_long_as_all_that_it_covers(
        self, store: Store, keep: int, valid: bool
    ) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"the first three")
        await store.replace("s", keep, entries(6, 9))
        assert await store.load_checkpoint("s") == (b"the first three" if valid else None)

    async def test_a_batch_that_replaces_is_written_whole_or_not_at_all(self, store: Store) -> None:
        if not self.persistent:
            return
        await store.append("s", entries(1, 4))
        await store.save_checkpoint("s", 3, b"three")
        before = await whole(store)
        unwritable = entry(6)._replace(message={"role": "user", "content": b"no JSON"})
        with pytest.raises((ContextError, TypeError, ValueError)):
            await store.replace("s", 1, [entry(5), unwritable])
        assert not (await whole(store)).differs(before)
        await store.append("s", entries(7, 7))
        assert_same(await store.read("s"), [*entries(1, 4), *entries(7, 7)])

    async def assert_archived(self, store: Store, expected: list[Entry]) -> None:
        assert_same(await store.archived("s"), expected if self.archives else [])
