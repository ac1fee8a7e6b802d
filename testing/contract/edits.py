"""The store contract, edits: a history continues otherwise from an index on; entries are replaced by their seqs."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.errors import ContextError, StoreError
from amplifier_context_core.stores import Extent, Store
from amplifier_context_core.transcript.entry import Entry

from .fixtures import StoreFixtures, assert_same, whole
from .samples import BEYOND, entries, entry


def _message(seq: int, text: str, **more: Any) -> Entry:
    return entry(seq, {"role": "assistant", "content": text}, **more)


class Editing(StoreFixtures):
    """What is replaced goes to the archive; what is rewritten is erased, in the archive too."""

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

    async def test_all_of_an_entry_is_rewritten(self, store: Store) -> None:
        await store.append("s", entries(1, 2))
        new = _message(2, "rewritten", turn=9, tokens=99, session_id="other", created="then", completed="later")
        await store.rewrite("s", [new])
        assert_same(await store.read("s", 1), [new])

    async def test_entries_are_rewritten_in_the_archive_too(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 2, entries(6, 6))
        new = [_message(2, "two"), _message(3, "three"), _message(5, "five"), _message(6, "six")]
        await store.rewrite("s", new)
        assert_same(await store.read("s"), [*entries(1, 1), new[0], new[3]])
        archived = [new[1], *entries(4, 4), new[2]] if self.archives else []
        assert_same(await store.archived("s"), archived)

    async def test_a_rewritten_entry_can_be_longer_or_shorter(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        for text in ("x" * 300_000, "", "y" * 40):
            await store.rewrite("s", [_message(2, text)])
            assert_same(await store.read("s"), [*entries(1, 1), _message(2, text), *entries(3, 3)])
            await store.append("s", entries(4, 4))
            await store.replace("s", 3, [])

    async def test_a_changed_message_drops_the_checkpoint(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"the first three")
        await store.rewrite("s", [_message(2, "rewritten")])
        assert await store.load_checkpoint("s") is None

    async def test_a_message_changed_in_the_archive_drops_the_checkpoint(self, store: Store) -> None:
        """What it quotes may be what has to be forgotten."""
        if not self.archives:
            return
        await store.append("s", entries(1, 5))
        await store.replace("s", 4, [])
        await store.save_checkpoint("s", 3, b"the first three")
        await store.rewrite("s", [_message(5, "rewritten")])
        assert await store.load_checkpoint("s") is None

    async def test_where_only_tokens_differ_the_checkpoint_stays(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 5, b"five")
        recounted = [one._replace(tokens=one.tokens + 1_000) for one in entries(2, 4)]
        await store.rewrite("s", recounted)
        assert await store.load_checkpoint("s") == b"five"
        assert_same(await store.read("s", 1, 4), recounted)

    async def test_seqs_that_are_kept_nowhere_are_left_out(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 3, b"three")
        before = await whole(store)
        await store.rewrite("s", [_message(4, "no"), _message(10**9, "no")])
        assert not (await whole(store)).differs(before)
        await store.rewrite("s", [_message(4, "no"), _message(2, "yes")])
        assert_same(await store.read("s"), [*entries(1, 1), _message(2, "yes"), *entries(3, 3)])
        assert await store.extent("s") == Extent(3, 3)
