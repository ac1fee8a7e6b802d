"""The contract of shared stores: a session has one writer, the first one, and any number of readers."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable

import pytest

from amplifier_context_core.errors import SessionInUse
from amplifier_context_core.stores import Extent, Store

from .concurrency import cancelled
from .fixtures import MakeStore, StoreFixtures, assert_same, whole
from .reference import Pair, Step, hold_for_any
from .samples import entries, entry

Change = Callable[[Store], Awaitable[object]]

CHANGES: dict[str, Change] = {
    "open": lambda store: store.open("s"),
    "append": lambda store: store.append("s", entries(8, 9)),
    "replace": lambda store: store.replace("s", 1, entries(8, 9)),
    "clear": lambda store: store.replace("s", 0, []),
    "rewrite": lambda store: store.rewrite("s", [entry(1, "rewritten")]),
    "save_checkpoint": lambda store: store.save_checkpoint("s", 1, b"one"),
    "delete": lambda store: store.delete("s"),
}
BEGUN = {name: change for name, change in CHANGES.items() if name not in ("open", "delete")}


class WriterContract(StoreFixtures):
    """Two store objects on one session: the one that opens or changes it first is its writer until it releases it.

    Inherit it beside `StoreContract`.
    """

    @pytest.fixture
    async def other(self, further: MakeStore) -> Store:
        """A second store object on the same data, as another process would have it."""
        return await further()

    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
    async def test_a_session_that_is_open_elsewhere_can_not_be_changed(
        self, store: Store, other: Store, change: Change
    ) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 2, b"two")
        before = await whole(store)
        with pytest.raises(SessionInUse, match="session 's' is in use by"):
            await change(other)
        assert not (await whole(store)).differs(before)
        assert not (await whole(other)).differs(before)
        await store.append("s", entries(4, 4))
        assert_same(await store.read("s"), entries(1, 4))

    @pytest.mark.parametrize("change", BEGUN.values(), ids=BEGUN)
    async def test_the_first_change_locks_a_session(self, store: Store, other: Store, change: Change) -> None:
        await store.append("s", entries(1, 3))
        await store.release("s")
        await change(store)
        with pytest.raises(SessionInUse):
            await other.open("s")

    async def test_the_holder_is_named(self, store: Store, other: Store) -> None:
        await store.append("s", entries(1, 3))
        with pytest.raises(SessionInUse) as caught:
            await other.open("s")
        for text in (caught.value.holder, str(caught.value)):
            assert str(os.getpid()) in text
            assert socket.gethostname() in text

    async def test_reading_needs_no_lock_and_takes_none(self, store: Store, other: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.replace("s", 2, entries(4, 4))
        await store.save_checkpoint("s", 2, b"two")
        assert not (await whole(other)).differs(await whole(store))
        assert_same(await other.find("s", [4]), entries(4, 4))
        assert [info.length for info in await other.sessions()] == [3]
        await store.release("s")
        await store.append("s", entries(5, 5))
        await store.release("s")
        await whole(other)
        await other.sessions()
        assert await store.open("s") == Extent(4, 5)

    async def test_what_was_acknowledged_is_read_elsewhere_at_once(self, store: Store, other: Store) -> None:
        for number in range(1, 6):
            await store.append("s", entries(number, number))
            assert_same(await other.read("s"), entries(1, number))
            assert await other.extent("s") == Extent(number, number)
        await store.replace("s", 2, entries(6, 7))
        assert not (await whole(other)).differs(await whole(store))
        await store.rewrite("s", [entry(1, "rewritten")])
        assert not (await whole(other)).differs(await whole(store))
        await store.delete("s")
        assert await other.read("s") == []

    async def test_a_closed_store_has_released_everything(self, store: Store, other: Store) -> None:
        for name in ("a", "b", "c"):
            await store.append(name, entries(1, 1))
        await store.open("never appended to")
        await store.close()
        for name in ("a", "b", "c", "never appended to"):
            await other.open(name)
            await other.append(name, entries(2, 2))

    async def test_writers_that_take_turns_see_each_others_work(self, store: Store, other: Store) -> None:
        history = entries(1, 2)
        await store.append("s", history)
        await store.release("s")
        for number in range(3, 11):
            writer = other if number % 2 else store
            await writer.append("s", entries(number, number))
            history = [*history, *entries(number, number)]
            await writer.release("s")
        assert_same(await store.read("s"), history)
        await other.replace("s", 4, [entry(20), history[-1]])
        await other.rewrite("s", [entry(1, "rewritten")])
        await other.save_checkpoint("s", 3, b"three")
        await other.release("s")
        assert await store.open("s") == Extent(6, 20)
        assert not (await whole(store)).differs(await whole(other))
        await store.append("s", entries(21, 21))
        assert_same(
            await store.read("s"), [entry(1, "rewritten"), *history[1:4], entry(20), history[-1], *entries(21, 21)]
        )

    async def test_a_session_deleted_elsewhere_begins_again(self, store: Store, other: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 2, b"two")
        await store.release("s")
        await other.delete("s")
        await other.release("s")
        assert await store.open("s") == Extent()
        await store.append("s", entries(1, 2))
        assert_same(await store.read("s"), entries(1, 2))
        assert await store.load_checkpoint("s") is None

    async def test_a_session_in_use_can_be_forked_elsewhere(self, store: Store, other: Store) -> None:
        await store.append("s", entries(1, 3))
        await other.fork("s", "child")
        await other.append("child", entries(4, 4, session_id="child"))
        await store.append("s", entries(4, 4))
        assert_same(await store.read("s"), entries(1, 4))
        assert_same(await store.read("child"), [*entries(1, 3), *entries(4, 4, session_id="child")])

    async def test_of_two_that_come_at_the_same_time_one_is_refused(self, store: Store, other: Store) -> None:
        for number in range(12):
            name = f"session {number}"
            came = await asyncio.gather(
                store.append(name, entries(1, 3)), other.append(name, entries(11, 13)), return_exceptions=True
            )
            assert sorted(type(one).__name__ for one in came) == ["NoneType", "SessionInUse"]
            assert_same(await store.read(name), entries(1, 3) if came[0] is None else entries(11, 13))

    async def test_lists_show_the_writer(self, store: Store, other: Store) -> None:
        await store.append("s", entries(1, 1))
        for one in (store, other):
            (info,) = await one.sessions()
            assert str(os.getpid()) in info.holder
        await store.release("s")
        for one in (store, other):
            (info,) = await one.sessions()
            assert info.holder == ""

    async def test_a_lock_outlives_the_event_loop_it_was_taken_on(self, store: Store, other: Store) -> None:
        await asyncio.to_thread(lambda: asyncio.run(store.append("s", entries(1, 1))))
        with pytest.raises(SessionInUse):
            await other.open("s")
        await asyncio.to_thread(lambda: asyncio.run(store.release("s")))
        await other.open("s")

    async def test_writers_that_take_turns_make_what_the_reference_store_makes(
        self, store: Store, other: Store
    ) -> None:
        """The next writer has read an older history; it must not return what it remembers of that."""

        async def hold(drawn: list[Step], names: dict[str, str]) -> None:
            pair = Pair(store, names)
            for number, step in enumerate(drawn):
                pair.store, reader = (store, other) if (number + step.share) % 2 else (other, store)
                await pair.take(step)
                for session_id in names.values():
                    await pair.store.release(session_id)
                pair.store = reader
                await pair.compare(archives=self.archives, name=step.name)
            for session_id in names.values():
                await other.delete(session_id)
                await other.release(session_id)

        await hold_for_any(hold, max(5, self.examples // 2))

    async def test_a_closed_store_writes_nothing_more(self, store: Store, other: Store) -> None:
        chance = random.Random(0)
        for number in range(12):
            name = f"session {number}"
            await store.append(name, entries(1, 2))
            await cancelled(store.append(name, entries(3, 40)), chance)
            await store.close()
            kept = await other.open(name)
            assert kept in (Extent(2, 2), Extent(40, 40))
            await other.append(name, entries(41, 42))
            assert_same(await other.read(name), [*entries(1, kept.length), *entries(41, 42)])
            await other.release(name)
            assert_same(await store.read(name), [*entries(1, kept.length), *entries(41, 42)])
