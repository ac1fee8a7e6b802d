"""The store contract, part one: a history is appended to, read, replaced from a place on, and rewritten by seq."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_context_core.errors import ContextError, StoreError
from amplifier_context_core.stores import Extent, Store
from amplifier_context_core.transcript.transcript import Entry

from .store_claims import MakeStore, StoreFixtures, assert_same, assert_unknown, whole
from .store_samples import differing, entries, entry

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
BEYOND = [4, 5, 10**6, -1]  # no places in a history of three


class Appending(StoreFixtures):
    """Entries are added at the end, all or none."""

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

    async def test_appending_needs_no_open(self, store: Store) -> None:
        await store.append("s", entries(1, 1))
        assert await store.extent("s") == Extent(1, 1)

    async def test_appending_nothing_creates_nothing(self, store: Store) -> None:
        await store.append("s", [])
        await store.append("s", ())
        await assert_unknown(store, "s")

    async def test_appending_nothing_changes_nothing(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 3, b"three")
        before = await whole(store)
        await store.append("s", [])
        assert not (await whole(store)).differs(before)

    async def test_a_batch_of_a_thousand_is_one_append(self, store: Store) -> None:
        given = entries(1, 1_000)
        await store.append("s", given)
        assert_same(await store.read("s"), given)
        assert await store.extent("s") == Extent(1_000, 1_000)

    async def test_any_sequence_of_entries_is_a_batch(self, store: Store) -> None:
        await store.append("s", tuple(entries(1, 2)))
        assert_same(await store.read("s"), entries(1, 2))

    async def test_a_batch_that_need_not_be_atomic_is_appended_in_order_between_others(self, store: Store) -> None:
        given = entries(1, 40)
        await asyncio.gather(
            store.append("s", given[:1]),
            store.append("s", given[1:20], atomic=False),
            store.append("s", given[20:30]),
            store.append("s", given[30:], atomic=False),
        )
        assert_same(await store.read("s"), given)
        assert await store.extent("s") == Extent(40, 40)

    @pytest.mark.parametrize("atomic", [True, False])
    async def test_a_batch_is_appended_whole_or_not_at_all(self, store: Store, atomic: bool) -> None:
        """JSON cannot hold one entry of the batch. (The memory store writes no JSON; there it cannot fail.)"""
        if not self.persistent:
            return
        await store.append("s", entries(1, 2))
        unwritable = entry(4)._replace(message={"role": "user", "content": b"no JSON"})
        with pytest.raises((ContextError, TypeError, ValueError)):
            await store.append("s", [entry(3), unwritable, entry(5)], atomic=atomic)
        assert_same(await store.read("s"), entries(1, 2))
        assert (await store.extent("s")).length == 2
        await store.append("s", entries(6, 7))
        assert_same(await store.read("s"), [*entries(1, 2), *entries(6, 7)])

    async def test_seqs_may_have_gaps_and_be_large(self, store: Store) -> None:
        given = [entry(seq) for seq in (3, 4, 90, 2**31, 2**40)]
        await store.append("s", given)
        assert_same(await store.read("s"), given)
        assert await store.extent("s") == Extent(5, 2**40)

    async def test_the_last_seq_is_the_highest_wherever_it_stands(self, store: Store) -> None:
        given = [entry(seq) for seq in (9, 4, 7)]
        await store.append("s", given)
        assert await store.extent("s") == Extent(3, 9)
        await store.append("s", [entry(2)])
        assert_same(await store.read("s"), [*given, entry(2)])
        assert await store.extent("s") == Extent(4, 9)

    async def test_sessions_are_apart(self, store: Store) -> None:
        await store.append("a", entries(1, 3))
        await store.append("b", entries(1, 5, session_id="b"))
        await store.replace("a", 0, [])
        assert await store.extent("a") == Extent(0, 3)
        assert_same(await store.read("b"), entries(1, 5, session_id="b"))
        assert await store.archived("b") == []

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


class Reading(StoreFixtures):
    """Ranges are places; seqs are identities."""

    async def test_a_range_is_read_as_python_slices(self, store: Store) -> None:
        await store.append("s", entries(1, 4))
        await store.append("s", entries(5, 10))
        for start, stop in RANGES:
            problem = differing(await store.read("s", start, stop), entries(1, 10)[start:stop])
            assert not problem, f"from {start} to {stop}: {problem}"

    async def test_places_move_up_when_what_came_before_them_was_replaced(self, store: Store) -> None:
        await store.append("s", entries(1, 6))
        await store.replace("s", 2, [entry(6), entry(7)])
        assert_same(await store.read("s", 2, 3), [entry(6)])
        assert_same(await store.read("s", -1), [entry(7)])
        assert_same(await store.read("s", 4), [])

    async def test_find_answers_in_the_order_of_the_history(self, store: Store) -> None:
        await store.append("s", entries(1, 6))
        await store.replace("s", 2, [entry(6), entry(4), entry(8)])
        assert_same(await store.find("s", [8, 4, 1, 6, 4]), [entries(1, 1)[0], entry(6), entry(4), entry(8)])

    async def test_find_leaves_out_what_the_history_does_not_hold(self, store: Store) -> None:
        await store.append("s", entries(1, 6))
        await store.replace("s", 2, [])
        assert_same(await store.find("s", [-1, 0, 2, 3, 6, 7, 10**17]), entries(2, 2))
        assert await store.find("s", []) == []

    async def test_find_takes_any_number_of_seqs(self, store: Store) -> None:
        await store.append("s", entries(1, 40))
        assert_same(await store.find("s", range(20, 90_000)), entries(20, 40))


class Replacing(StoreFixtures):
    """The history is kept up to a place and goes on differently from there."""

    async def test_what_comes_after_the_kept_makes_room_for_other_entries(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 3, [entry(6), entry(7), entry(8)])
        assert_same(await store.read("s"), [*entries(1, 3), entry(6), entry(7), entry(8)])
        assert await store.extent("s") == Extent(6, 8)

    async def test_the_newest_entries_can_be_taken_back(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 3, [])
        assert_same(await store.read("s"), entries(1, 3))
        await self.assert_archived(store, entries(4, 5))

    async def test_what_was_replaced_goes_to_the_archive_oldest_replacement_first(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 3, entries(6, 7))  # 4 5 leave
        await store.append("s", entries(8, 8))
        await store.replace("s", 1, entries(9, 9))  # 2 3 6 7 8 leave
        await store.replace("s", 0, [])  # 1 9 leave
        left = [*entries(4, 5), *entries(2, 3), *entries(6, 8), *entries(1, 1), *entries(9, 9)]
        await self.assert_archived(store, left)
        assert await store.read("s") == []

    async def test_entries_that_stood_there_may_move_and_are_not_archived(self, store: Store) -> None:
        given = entries(1, 6)
        await store.append("s", given)
        order = [given[5], *entries(7, 7), given[3], given[2]]  # 5 leaves
        await store.replace("s", 2, order)
        assert_same(await store.read("s"), [*given[:2], *order])
        await self.assert_archived(store, [given[4]])
        assert await store.extent("s") == Extent(6, 7)

    async def test_the_whole_history_can_change_its_order(self, store: Store) -> None:
        given = entries(1, 8)
        await store.append("s", given)
        await store.replace("s", 0, given[::-1])
        assert_same(await store.read("s"), given[::-1])
        assert await store.archived("s") == []
        assert await store.extent("s") == Extent(8, 8)

    async def test_entries_can_be_put_in_before_others(self, store: Store) -> None:
        given = entries(1, 4)
        await store.append("s", given)
        await store.replace("s", 1, [*entries(5, 6), *given[1:]])
        assert_same(await store.read("s"), [given[0], *entries(5, 6), *given[1:]])
        assert await store.archived("s") == []

    async def test_a_history_goes_on_after_it_was_replaced(self, store: Store) -> None:
        await store.append("s", entries(1, 4))
        await store.replace("s", 2, [])
        await store.append("s", entries(5, 6))
        assert_same(await store.read("s"), [*entries(1, 2), *entries(5, 6)])
        assert_same(await store.read("s", -1), entries(6, 6))

    async def test_keeping_all_and_adding_is_an_append(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.replace("s", 3, entries(4, 5))
        assert_same(await store.read("s"), entries(1, 5))
        assert await store.archived("s") == []

    async def test_keeping_all_and_adding_nothing_changes_nothing(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 3, b"three")
        before = await whole(store)
        await store.replace("s", 3, [])
        assert not (await whole(store)).differs(before)

    async def test_an_unknown_session_can_be_replaced_by_entries(self, store: Store) -> None:
        await store.replace("s", 0, entries(1, 3))
        assert_same(await store.read("s"), entries(1, 3))
        assert await store.archived("s") == []

    async def test_replacing_nothing_by_nothing_creates_nothing(self, store: Store) -> None:
        await store.replace("s", 0, [])
        await assert_unknown(store, "s")

    async def test_keeping_nothing_clears_the_session_and_it_is_still_there(self, store: Store) -> None:
        await store.append("s", entries(1, 4))
        await store.replace("s", 0, [])
        assert await store.read("s") == []
        assert [(info.session_id, info.length) for info in await store.sessions()] == [("s", 0)]
        await self.assert_archived(store, entries(1, 4))

    async def test_seqs_are_not_given_again(self, store: Store) -> None:
        await store.append("s", entries(1, 4))
        await store.replace("s", 2, [])
        assert await store.extent("s") == Extent(2, 4)
        await store.replace("s", 0, [])
        assert await store.extent("s") == Extent(0, 4)
        await store.append("s", entries(9, 9))
        await store.replace("s", 0, [])
        assert await store.extent("s") == Extent(0, 9)

    async def test_seqs_that_were_only_ever_replacements_are_not_given_again_either(self, store: Store) -> None:
        await store.append("s", entries(1, 2))
        await store.replace("s", 1, [entry(7)])
        await store.replace("s", 1, [entry(3)])
        assert await store.extent("s") == Extent(2, 7)

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

    async def test_keeping_some_of_an_unknown_session_raises_and_creates_nothing(self, store: Store) -> None:
        with pytest.raises(StoreError):
            await store.replace("s", 1, entries(1, 2))
        await assert_unknown(store, "s")

    @pytest.mark.parametrize(("keep", "stands"), [(0, False), (2, False), (3, True), (5, True)])
    async def test_a_checkpoint_stands_as_long_as_all_it_stands_for_is_kept(
        self, store: Store, keep: int, stands: bool
    ) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"the first three")
        await store.replace("s", keep, entries(6, 9))
        assert await store.load_checkpoint("s") == (b"the first three" if stands else None)

    async def test_a_checkpoint_that_is_gone_does_not_come_back(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 4, b"four")
        await store.replace("s", 2, [])
        await store.append("s", entries(6, 9))
        assert await store.load_checkpoint("s") is None

    async def test_a_checkpoint_for_nothing_outlives_everything(self, store: Store) -> None:
        await store.append("s", entries(1, 2))
        await store.save_checkpoint("s", 0, b"nothing")
        await store.replace("s", 0, [])
        assert await store.load_checkpoint("s") == b"nothing"

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
        """The archive holds these, or nothing where none is kept."""
        assert_same(await store.archived("s"), expected if self.archives else [])


def _said(seq: int, text: str, **more: Any) -> Entry:
    return entry(seq, {"role": "assistant", "content": text}, **more)


class Rewriting(StoreFixtures):
    """Entries are put in place of those of the same seqs; the former messages are gone."""

    async def test_entries_are_rewritten_where_they_stand(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        new = [_said(2, "two, anew"), _said(4, "four, anew")]
        await store.rewrite("s", new[::-1])
        given = entries(1, 5)
        assert_same(await store.read("s"), [given[0], new[0], given[2], new[1], given[4]])
        assert_same(await store.find("s", [4, 2]), new)
        assert await store.extent("s") == Extent(5, 5)
        assert await store.archived("s") == []

    async def test_all_of_an_entry_is_rewritten(self, store: Store) -> None:
        await store.append("s", entries(1, 2))
        new = _said(2, "anew", turn=9, tokens=99, session_id="other", created="then", completed="later")
        await store.rewrite("s", [new])
        assert_same(await store.read("s", 1), [new])

    async def test_entries_are_rewritten_in_the_archive_too(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 2, entries(6, 6))
        new = [_said(2, "two"), _said(3, "three"), _said(5, "five"), _said(6, "six")]
        await store.rewrite("s", new)
        assert_same(await store.read("s"), [*entries(1, 1), new[0], new[3]])
        archived = [new[1], *entries(4, 4), new[2]] if self.archives else []
        assert_same(await store.archived("s"), archived)

    async def test_an_entry_that_stands_only_in_the_archive_is_rewritten(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.replace("s", 1, [])
        await store.rewrite("s", [_said(3, "gone")])
        assert_same(await store.archived("s"), [*entries(2, 2), _said(3, "gone")] if self.archives else [])
        assert_same(await store.read("s"), entries(1, 1))

    async def test_an_entry_that_moved_is_rewritten_where_it_is_now(self, store: Store) -> None:
        given = entries(1, 4)
        await store.append("s", given)
        await store.replace("s", 1, [given[3], given[2], given[1]])
        await store.rewrite("s", [_said(4, "four")])
        assert_same(await store.read("s"), [given[0], _said(4, "four"), given[2], given[1]])

    async def test_a_rewritten_entry_is_archived_as_it_is_now(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.rewrite("s", [_said(3, "anew")])
        await store.replace("s", 2, [])
        assert_same(await store.archived("s"), [_said(3, "anew")] if self.archives else [])

    async def test_a_rewritten_entry_can_be_longer_or_shorter(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        for text in ("x" * 300_000, "", "y" * 40):
            await store.rewrite("s", [_said(2, text)])
            assert_same(await store.read("s"), [*entries(1, 1), _said(2, text), *entries(3, 3)])
            await store.append("s", entries(4, 4))
            await store.replace("s", 3, [])

    async def test_a_changed_message_drops_the_checkpoint(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"the first three")
        await store.rewrite("s", [_said(2, "anew")])
        assert await store.load_checkpoint("s") is None

    async def test_a_message_changed_in_the_archive_drops_the_checkpoint(self, store: Store) -> None:
        """What it quotes may be what has to be forgotten."""
        if not self.archives:
            return
        await store.append("s", entries(1, 5))
        await store.replace("s", 4, [])
        await store.save_checkpoint("s", 3, b"the first three")
        await store.rewrite("s", [_said(5, "anew")])
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
        await store.rewrite("s", [_said(4, "no"), _said(10**9, "no")])
        assert not (await whole(store)).differs(before)
        await store.rewrite("s", [_said(4, "no"), _said(2, "yes")])
        assert_same(await store.read("s"), [*entries(1, 1), _said(2, "yes"), *entries(3, 3)])
        assert await store.extent("s") == Extent(3, 3)

    async def test_rewriting_an_unknown_session_creates_nothing(self, store: Store) -> None:
        await store.rewrite("s", entries(1, 3))
        await assert_unknown(store, "s")

    async def test_rewriting_nothing_changes_nothing(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 2, b"two")
        before = await whole(store)
        await store.rewrite("s", [])
        assert not (await whole(store)).differs(before)

    async def test_many_entries_are_rewritten_at_once(self, store: Store, further: MakeStore) -> None:
        await store.append("s", entries(1, 400))
        recounted = [one._replace(tokens=1) for one in entries(1, 400)]
        await store.rewrite("s", recounted)
        assert_same(await store.read("s"), recounted)
        await store.close()
        assert_same(await (await further()).read("s"), recounted)
