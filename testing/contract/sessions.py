"""The store contract, sessions: opened, listed, forked, deleted, by ids of all kinds, each with its checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from amplifier_context_core.errors import ConfigError, StoreError
from amplifier_context_core.stores import Extent, Store

from .fixtures import MakeStore, StoreFixtures, assert_same, assert_unknown, whole
from .samples import BEYOND, HOSTILE_IDS, ODD_IDS, entries, entry, odd_entries

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


class Sessions(StoreFixtures):
    """Sessions come and go, and each has its own data."""

    async def test_it_is_a_store(self, store: Store) -> None:
        assert isinstance(store, Store)

    async def test_opening_says_how_long_a_session_is(self, store: Store) -> None:
        assert await store.open("s") == Extent()
        await store.append("s", entries(1, 5))
        await store.replace("s", 2, [])
        assert await store.open("s") == Extent(2, 5)

    async def test_a_sound_session_needs_no_repair(self, store: Store) -> None:
        repairs: list[object] = []
        await store.open("s", repairs.append)
        await store.append("s", odd_entries())
        await store.save_checkpoint("s", 3, b"three")
        await store.close()
        await store.open("s", repairs.append)
        await whole(store)
        assert repairs == []

    async def test_closing_twice_is_a_no_op_and_a_later_call_opens_again(self, store: Store) -> None:
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
        await store.rewrite(
            "s", [entry(3, "rewritten"), entry(11, "rewritten in the archive"), entry(901, "rewritten at the end")]
        )
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
        await store.rewrite("child", [entry(1, "rewritten")])
        await store.save_checkpoint("child", 1, b"one")
        assert not (await whole(store)).differs(before)
        await store.delete("child")
        assert not (await whole(store)).differs(before)

    @pytest.mark.parametrize(("length", "copied"), [(None, True), (4, True), (3, True), (2, False), (0, False)])
    async def test_the_checkpoint_is_copied_when_the_fork_holds_what_it_covers(
        self, store: Store, length: int | None, copied: bool
    ) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"\0three\xff")
        await store.fork("s", "child", length)
        assert await store.load_checkpoint("child") == (b"\0three\xff" if copied else None)

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

    @pytest.mark.parametrize("data", CHECKPOINTS.values(), ids=CHECKPOINTS)
    async def test_a_checkpoint_comes_back_byte_for_byte(self, store: Store, data: bytes) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 2, data)
        assert await store.load_checkpoint("s") == data

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
