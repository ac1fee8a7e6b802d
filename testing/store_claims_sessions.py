"""The store contract, part two: checkpoints, forks, lists of sessions, ids, and a store's own life."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest

from amplifier_context_core.errors import ConfigError, StoreError
from amplifier_context_core.stores import Extent, Store

from .store_claims import MakeStore, StoreFixtures, assert_same, assert_unknown, whole
from .store_claims_history import BEYOND
from .store_samples import HOSTILE_IDS, ODD_IDS, entries, entry, odd_entries

CHECKPOINTS = {
    "empty": b"",
    "a NUL": b"\0",
    "every byte": bytes(range(256)) * 3,
    "no UTF-8": b"\xff\xfe\xc3\x28",
    "line ends": b"\n\r\n\n",
    "JSON": b'{"role": "user"}\n',
    "zeros": bytes(70_000),
    "3 MB": bytes(range(251)) * 12_000,
}


class Checkpoints(StoreFixtures):
    """Opaque bytes that stand for a beginning of the history."""

    @pytest.mark.parametrize("data", CHECKPOINTS.values(), ids=CHECKPOINTS)
    async def test_a_checkpoint_comes_back_byte_for_byte(self, store: Store, data: bytes) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 2, data)
        assert await store.load_checkpoint("s") == data

    async def test_a_session_without_a_checkpoint_has_none(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        assert await store.load_checkpoint("s") is None

    async def test_a_checkpoint_takes_the_place_of_the_one_before(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        for covered, data in ((2, b"two" * 1_000), (5, b""), (3, b"three"), (0, b"none"), (1, b"one" * 50_000)):
            await store.save_checkpoint("s", covered, data)
            assert await store.load_checkpoint("s") == data
        await store.replace("s", 1, [])
        assert await store.load_checkpoint("s") == b"one" * 50_000

    async def test_the_place_of_the_last_checkpoint_counts_not_of_one_before(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 2, b"two")
        await store.save_checkpoint("s", 5, b"five")
        await store.replace("s", 3, [])
        assert await store.load_checkpoint("s") is None

    async def test_a_checkpoint_stands_while_the_history_grows(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 3, b"three")
        await store.append("s", entries(4, 9))
        assert await store.load_checkpoint("s") == b"three"
        assert_same(await store.read("s"), entries(1, 9))

    @pytest.mark.parametrize("covered", BEYOND)
    async def test_a_checkpoint_for_more_than_there_is_raises_and_changes_nothing(
        self, store: Store, covered: int
    ) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 2, b"two")
        before = await whole(store)
        with pytest.raises(StoreError, match="'s'"):
            await store.save_checkpoint("s", covered, b"too much")
        assert not (await whole(store)).differs(before)

    async def test_a_checkpoint_of_an_unknown_session_raises_and_creates_nothing(self, store: Store) -> None:
        with pytest.raises(StoreError):
            await store.save_checkpoint("s", 1, b"one")
        await assert_unknown(store, "s")

    async def test_bytes_of_other_kinds_are_bytes_too(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 2, bytes(bytearray(b"two")))
        found = await store.load_checkpoint("s")
        assert type(found) is bytes


class Forking(StoreFixtures):
    """A fork is a session of its own that begins as another did."""

    @pytest.mark.parametrize(("length", "held"), [(None, 5), (5, 5), (3, 3), (1, 1), (0, 0)])
    async def test_a_fork_holds_the_first_entries(self, store: Store, length: int | None, held: int) -> None:
        await store.append("s", entries(1, 5))
        await store.fork("s", "child", length)
        assert_same(await store.read("child"), entries(1, 5)[:held])
        assert (await store.extent("child")).length == held
        assert {info.session_id: info.length for info in await store.sessions()} == {"s": 5, "child": held}

    async def test_seqs_and_session_ids_inside_the_entries_stay(self, store: Store) -> None:
        given = [*odd_entries(), entry(900, session_id="child"), entry(901, session_id="another")]
        await store.append("s", given)
        await store.fork("s", "child")
        assert_same(await store.read("child"), given)
        assert {one.session_id for one in await store.read("child")} >= {"s", "child", "another"}

    async def test_a_fork_of_a_fork_keeps_them_too(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.fork("s", "child")
        await store.append("child", entries(4, 5, session_id="child"))
        await store.fork("child", "grandchild", 4)
        await store.append("grandchild", entries(6, 6, session_id="grandchild"))
        expected = [
            *entries(1, 3),
            *entries(4, 4, session_id="child"),
            *entries(6, 6, session_id="grandchild"),
        ]
        assert_same(await store.read("grandchild"), expected)

    async def test_seqs_of_the_session_are_not_given_again_in_the_fork(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 4, [])
        await store.fork("s", "child", 2)
        assert await store.extent("child") == Extent(2, 5)

    async def test_what_happens_to_a_fork_does_not_happen_to_the_session(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"three")
        before = await whole(store)
        await store.fork("s", "child")
        await store.append("child", entries(6, 7, session_id="child"))
        await store.replace("child", 1, [entry(8)])
        await store.rewrite("child", [entry(1, "anew")])
        await store.save_checkpoint("child", 1, b"one")
        assert not (await whole(store)).differs(before)
        await store.delete("child")
        assert not (await whole(store)).differs(before)

    async def test_what_happens_to_the_session_does_not_happen_to_its_fork(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"three")
        await store.fork("s", "child")
        before = await whole(store, "child")
        await store.append("s", entries(6, 7))
        await store.replace("s", 1, [entry(8)])
        await store.rewrite("s", [entry(1, "anew")])
        await store.save_checkpoint("s", 1, b"one")
        assert not (await whole(store, "child")).differs(before)
        await store.delete("s")
        assert not (await whole(store, "child")).differs(before)

    async def test_the_archive_is_not_copied(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 2, entries(6, 6))
        await store.fork("s", "child")
        assert await store.archived("child") == []
        assert_same(await store.read("child"), [*entries(1, 2), *entries(6, 6)])

    @pytest.mark.parametrize(("length", "copied"), [(None, True), (4, True), (3, True), (2, False), (0, False)])
    async def test_the_checkpoint_is_copied_when_the_fork_holds_what_it_stands_for(
        self, store: Store, length: int | None, copied: bool
    ) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"\0three\xff")
        await store.fork("s", "child", length)
        assert await store.load_checkpoint("child") == (b"\0three\xff" if copied else None)

    async def test_a_copied_checkpoint_stands_for_as_much_as_before(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"three")
        await store.fork("s", "child")
        await store.replace("child", 3, [])
        assert await store.load_checkpoint("child") == b"three"
        await store.replace("child", 2, [])
        assert await store.load_checkpoint("child") is None

    async def test_an_unknown_session_cannot_be_forked(self, store: Store) -> None:
        with pytest.raises(StoreError, match="'s'"):
            await store.fork("s", "child")
        await assert_unknown(store, "child")
        await assert_unknown(store, "s")

    async def test_a_session_cannot_be_forked_onto_one_that_is_there(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.append("child", entries(1, 2, session_id="child"))
        await store.append("cleared", entries(1, 2, session_id="cleared"))
        await store.replace("cleared", 0, [])
        for new_id in ("child", "cleared", "s"):
            with pytest.raises(StoreError, match=repr(new_id)):
                await store.fork("s", new_id)
        assert_same(await store.read("child"), entries(1, 2, session_id="child"))
        assert_same(await store.read("s"), entries(1, 5))

    @pytest.mark.parametrize("length", BEYOND)
    async def test_a_fork_of_more_than_there_is_raises_and_creates_nothing(self, store: Store, length: int) -> None:
        await store.append("s", entries(1, 3))
        with pytest.raises(StoreError, match="'s'"):
            await store.fork("s", "child", length)
        await assert_unknown(store, "child")

    async def test_a_deleted_id_can_be_forked_onto(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.fork("s", "child", 1)
        await store.delete("child")
        await store.fork("s", "child", 2)
        assert_same(await store.read("child"), entries(1, 2))

    async def test_a_fork_can_be_worked_with_at_once(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.fork("s", "child")
        assert await store.open("child") == Extent(3, 3)
        await store.append("child", entries(4, 4, session_id="child"))
        assert (await store.extent("child")).length == 4

    async def test_a_long_history_is_forked_whole(self, store: Store) -> None:
        await store.append("s", entries(1, 1_500))
        await store.fork("s", "child", 1_400)
        assert_same(await store.read("child"), entries(1, 1_400))


class Listing(StoreFixtures):
    """All sessions, the last changed first; and how one is erased."""

    async def test_an_empty_store_has_no_sessions(self, store: Store) -> None:
        assert await store.sessions() == []

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

    async def test_lengths_are_those_of_the_histories(self, store: Store) -> None:
        await store.append("a", entries(1, 5))
        await store.append("b", entries(1, 9))
        await store.replace("b", 2, [entry(10)])
        assert {info.session_id: info.length for info in await store.sessions()} == {"a": 5, "b": 3}

    async def test_times_are_utc_and_now_and_sizes_are_about_right(self, store: Store) -> None:
        await store.append("s", [entry(1, "x" * 100_000)])
        (info,) = await store.sessions()
        if info.updated:
            updated = datetime.fromisoformat(info.updated)
            assert updated.utcoffset() == timedelta(0)
            assert abs(datetime.now(updated.tzinfo) - updated) < timedelta(minutes=10)
        # Stores may compress; 0 is "unknown".
        assert 0 <= info.size < 1_000_000

    async def test_a_deleted_session_is_gone_with_all_that_belongs_to_it(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.append("other", entries(1, 2))
        await store.replace("s", 3, [])
        await store.save_checkpoint("s", 2, b"two")
        await store.delete("s")
        await assert_unknown(store, "s")
        assert [info.session_id for info in await store.sessions()] == ["other"]

    async def test_a_deleted_session_can_begin_anew(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 3, [])
        await store.save_checkpoint("s", 2, b"two")
        await store.delete("s")
        await store.append("s", entries(1, 2))
        assert_same(await store.read("s"), entries(1, 2))
        assert await store.extent("s") == Extent(2, 2)
        assert await store.archived("s") == []
        assert await store.load_checkpoint("s") is None

    async def test_deleting_what_is_not_there_is_a_no_op(self, store: Store) -> None:
        await store.append("other", entries(1, 2))
        await store.delete("s")
        await store.delete("s")
        assert [info.session_id for info in await store.sessions()] == ["other"]

    async def test_a_session_can_be_deleted_whether_it_is_open_or_not(self, store: Store) -> None:
        await store.append("s", entries(1, 2))
        await store.release("s")
        await store.delete("s")
        await assert_unknown(store, "s")
        await store.open("t")
        await store.append("t", entries(1, 2))
        await store.delete("t")
        await assert_unknown(store, "t")

    async def test_many_sessions_are_listed(self, store: Store) -> None:
        for number in range(60):
            await store.append(f"session {number}", entries(1, 1 + number % 3))
        found = await store.sessions()
        assert len(found) == 60
        assert {info.session_id: info.length for info in found} == {f"session {n}": 1 + n % 3 for n in range(60)}


Ask = Callable[[Store, str], Awaitable[object]]

ASKED: dict[str, Ask] = {
    "open": lambda store, session_id: store.open(session_id),
    "extent": lambda store, session_id: store.extent(session_id),
    "append": lambda store, session_id: store.append(session_id, entries(1, 1)),
    "read": lambda store, session_id: store.read(session_id),
    "find": lambda store, session_id: store.find(session_id, [1]),
    "replace": lambda store, session_id: store.replace(session_id, 0, entries(1, 1)),
    "rewrite": lambda store, session_id: store.rewrite(session_id, entries(1, 1)),
    "archived": lambda store, session_id: store.archived(session_id),
    "save_checkpoint": lambda store, session_id: store.save_checkpoint(session_id, 0, b""),
    "load_checkpoint": lambda store, session_id: store.load_checkpoint(session_id),
    "fork": lambda store, session_id: store.fork(session_id, "child"),
    "fork onto": lambda store, session_id: store.fork("s", session_id),
    "delete": lambda store, session_id: store.delete(session_id),
}


class Names(StoreFixtures):
    """Session ids name folders and stand in logs and keys: some cannot be one, and all others are right."""

    async def test_an_id_that_cannot_be_one_is_refused_and_creates_nothing(self, store: Store) -> None:
        await store.append("s", entries(1, 2))
        for wrong, session_id in HOSTILE_IDS.items():
            for name, ask in ASKED.items():
                try:
                    await ask(store, session_id)
                except ConfigError as refused:
                    text = str(refused)
                    assert text.startswith("session_id: "), f"{name}, {wrong}: {text!r}"
                    assert text.isprintable(), f"{name}, {wrong}: {text!r}"
                else:
                    pytest.fail(f"{name} took an id that cannot be one: {wrong}")
        assert [info.session_id for info in await store.sessions()] == ["s"]
        assert_same(await store.read("s"), entries(1, 2))

    async def test_odd_ids_are_sessions_of_their_own(self, store: Store) -> None:
        for number, session_id in enumerate(ODD_IDS, 1):
            await store.append(session_id, [entry(number, f"of {session_id}", session_id=session_id)])
            await store.save_checkpoint(session_id, 1, session_id.encode())
        assert sorted(info.session_id for info in await store.sessions()) == sorted(ODD_IDS)
        for number, session_id in enumerate(ODD_IDS, 1):
            assert_same(await store.read(session_id), [entry(number, f"of {session_id}", session_id=session_id)])
            assert await store.load_checkpoint(session_id) == session_id.encode()
            assert await store.extent(session_id) == Extent(1, number)

    async def test_deleting_an_odd_id_leaves_all_others(self, store: Store) -> None:
        for session_id in ODD_IDS:
            await store.append(session_id, entries(1, 1))
        for number, session_id in enumerate(ODD_IDS, 1):
            await store.delete(session_id)
            assert sorted(info.session_id for info in await store.sessions()) == sorted(ODD_IDS[number:])

    async def test_odd_ids_can_be_forked_opened_and_released(self, store: Store) -> None:
        await store.append("s", entries(1, 2))
        for session_id in ODD_IDS:
            await store.fork("s", session_id)
            assert await store.open(session_id) == Extent(2, 2)
            await store.replace(session_id, 1, [])
            await store.release(session_id)
        assert {(info.session_id, info.length) for info in await store.sessions()} == {
            ("s", 2),
            *((session_id, 1) for session_id in ODD_IDS),
        }


class Living(StoreFixtures):
    """Opening, releasing, closing, and coming back."""

    async def test_it_is_a_store(self, store: Store) -> None:
        assert isinstance(store, Store)

    async def test_opening_says_how_long_a_session_is(self, store: Store) -> None:
        assert await store.open("s") == Extent()
        await store.append("s", entries(1, 5))
        await store.replace("s", 2, [])
        assert await store.open("s") == Extent(2, 5)

    async def test_opening_an_unknown_session_does_not_create_it(self, store: Store) -> None:
        await store.open("s")
        await assert_unknown(store, "s")
        await store.release("s")
        await assert_unknown(store, "s")

    async def test_opening_twice_is_a_no_op(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.open("s")
        await store.open("s", lambda repair: None)
        await store.append("s", entries(6, 6))
        assert await store.open("s") == Extent(6, 6)

    async def test_a_sound_session_needs_no_repair(self, store: Store) -> None:
        told: list[object] = []
        await store.open("s", told.append)
        await store.append("s", odd_entries())
        await store.save_checkpoint("s", 3, b"three")
        await store.close()
        await store.open("s", told.append)
        await whole(store)
        assert told == []

    async def test_releasing_what_is_not_open_is_a_no_op(self, store: Store) -> None:
        await store.release("never seen")
        await store.append("s", entries(1, 2))
        await store.release("s")
        await store.release("s")
        await assert_unknown(store, "never seen")
        assert_same(await store.read("s"), entries(1, 2))

    async def test_a_released_session_goes_on_where_it_was(self, store: Store) -> None:
        await store.append("s", entries(1, 2))
        await store.release("s")
        await store.append("s", entries(3, 4))
        await store.release("s")
        assert await store.open("s") == Extent(4, 4)
        assert_same(await store.read("s"), entries(1, 4))

    async def test_closing_a_store_that_did_nothing_is_a_no_op(self, store: Store) -> None:
        await store.close()
        await store.close()
        assert await store.sessions() == []

    async def test_closing_twice_is_a_no_op_and_a_later_call_opens_anew(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 2, b"two")
        before = await whole(store)
        for _ in range(3):
            await store.close()
            await store.close()
            assert not (await whole(store)).differs(before)
        await store.close()
        await store.append("s", entries(4, 4))
        assert_same(await store.read("s"), entries(1, 4))

    async def test_another_store_object_shows_the_same(self, store: Store, further: MakeStore) -> None:
        """For stores that persist; the memory store's other object is the same one."""
        await store.append("s", odd_entries())
        await store.replace("s", 9, [entry(900), *odd_entries()[12:20], entry(901)])
        await store.rewrite("s", [entry(3, "anew"), entry(11, "anew in the archive"), entry(901, "anew at the end")])
        await store.save_checkpoint("s", 7, bytes(range(256)))
        await store.append("s", entries(902, 905))
        await store.fork("s", "child", 8)
        await store.append("cleared", entries(1, 3))
        await store.replace("cleared", 0, [])
        await store.append("deleted", entries(1, 3))
        await store.delete("deleted")
        ids = ["s", "child", "cleared", "deleted"]
        before = [await whole(store, session_id) for session_id in ids]
        listed = [(info.session_id, info.length) for info in await store.sessions()]
        await store.close()
        other = await further()
        for session_id, was in zip(ids, before, strict=True):
            problem = (await whole(other, session_id)).differs(was)
            assert not problem, f"{session_id}: {problem}"
        assert sorted((info.session_id, info.length) for info in await other.sessions()) == sorted(listed)
        assert await other.open("s") == before[0].extent
        await other.append("s", entries(906, 907))
        assert_same(await other.read("s", -2), entries(906, 907))
        assert_same((await other.read("s"))[:-2], before[0].history)

    async def test_a_store_object_can_be_made_before_there_is_anything(self, store: Store, further: MakeStore) -> None:
        other = await further()
        assert await other.sessions() == []
        assert await other.read("s") == []
        await store.append("s", entries(1, 3))
        await store.close()
        assert_same(await other.read("s"), entries(1, 3))
