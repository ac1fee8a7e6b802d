"""The store contract, sessions: opened, released and reopened, listed, deleted, and named by their ids."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from amplifier_context_core.errors import ConfigError
from amplifier_context_core.stores import Extent, Store

from .fixtures import MakeStore, StoreFixtures, assert_same, assert_unknown, whole
from .samples import HOSTILE_IDS, ODD_IDS, entries, entry, odd_entries


class Lifecycle(StoreFixtures):
    """Opening, releasing, closing, and coming back."""

    async def test_it_is_a_store(self, store: Store) -> None:
        assert isinstance(store, Store)

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


class SessionIds(StoreFixtures):
    """Session ids name folders and appear in logs and keys: some are refused, all others are valid."""

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
