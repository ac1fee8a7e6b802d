"""The store contract, concurrent calls, also from several event loops and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from amplifier_context_core.stores import Store

from .fixtures import MakeStore, StoreFixtures, assert_same
from .samples import entries, entry

SESSIONS = 16


async def on_own_loop(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run to its end on an event loop of its own, which is closed then, in another thread."""
    await asyncio.to_thread(lambda: asyncio.run(work()))


class Concurrency(StoreFixtures):
    """Different sessions are worked on at the same time; calls come from any event loop."""

    async def test_sixteen_sessions_are_appended_to_at_the_same_time(self, store: Store, further: MakeStore) -> None:
        async def talk(number: int) -> None:
            for first in range(1, 31, 3):
                await store.append(f"session {number}", entries(first, first + 2, session_id=f"session {number}"))

        await asyncio.gather(*(talk(number) for number in range(SESSIONS)))
        await store.close()
        other = await further()
        for number in range(SESSIONS):
            name = f"session {number}"
            assert_same(await other.read(name), entries(1, 30, session_id=name))
        assert len(await other.sessions()) == SESSIONS

    async def test_different_things_are_done_to_sessions_at_the_same_time(self, store: Store) -> None:
        async def work(number: int) -> None:
            name = f"session {number}"
            await store.append(name, entries(1, 6))
            await store.save_checkpoint(name, 2, name.encode())
            await store.replace(name, 4, entries(7, 8))
            await store.fork(name, f"{name}, again")
            await store.rewrite(name, [entry(1, "rewritten")])
            assert await store.load_checkpoint(name) is None
            assert await store.load_checkpoint(f"{name}, again") == name.encode()
            await store.release(name)
            assert_same(await store.read(name), [entry(1, "rewritten"), *entries(2, 4), *entries(7, 8)])
            assert_same(await store.read(f"{name}, again"), [*entries(1, 4), *entries(7, 8)])
            await store.delete(f"{name}, again")

        await asyncio.gather(*(work(number) for number in range(SESSIONS)))
        assert {info.session_id: info.length for info in await store.sessions()} == {
            f"session {number}": 6 for number in range(SESSIONS)
        }

    async def test_one_session_is_read_while_another_is_written(self, store: Store) -> None:
        await store.append("read", entries(1, 50))

        async def read() -> None:
            for _ in range(15):
                assert_same(await store.read("read"), entries(1, 50))

        async def write() -> None:
            for first in range(1, 151, 10):
                await store.append("written", entries(first, first + 9))

        await asyncio.gather(read(), write(), read())
        assert_same(await store.read("written"), entries(1, 150))

    async def test_event_loops_may_come_and_go(self, store: Store) -> None:
        for number in range(1, 6):

            async def work(number: int = number) -> None:
                await store.append("s", entries(number, number))
                assert_same(await store.read("s"), entries(1, number))

            await on_own_loop(work)
        assert_same(await store.read("s"), entries(1, 5))
        await store.append("s", entries(6, 6))

    async def test_a_store_can_be_closed_on_another_loop_than_it_was_used_on(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await on_own_loop(store.close)
        assert_same(await store.read("s"), entries(1, 3))
        await store.append("s", entries(4, 4))
        await on_own_loop(lambda: store.append("s", entries(5, 5)))
        await store.close()
        assert_same(await store.read("s"), entries(1, 5))

    async def test_an_event_loop_may_end_while_a_call_is_on_its_way(self, store: Store) -> None:
        """`asyncio.run` cancels what is left over; the append is there whole or not at all."""

        async def leave() -> None:
            left_over = asyncio.create_task(store.append("s", entries(2, 200)))
            await asyncio.sleep(0)
            assert not left_over.cancelled()

        await store.append("s", entries(1, 1))
        await on_own_loop(leave)
        length = (await store.extent("s")).length
        assert length in (1, 200)
        await store.append("s", entries(201, 201))
        assert_same(await store.read("s"), [*entries(1, length), *entries(201, 201)])

    async def test_threads_with_loops_of_their_own_use_one_store(self, store: Store) -> None:
        def thread(number: int) -> None:
            async def talk() -> None:
                for first in range(1, 21, 2):
                    await store.append(f"thread {number}", entries(first, first + 1))
                    assert (await store.extent(f"thread {number}")).length == first + 1

            asyncio.run(talk())

        with ThreadPoolExecutor(4) as pool:
            await asyncio.gather(*(asyncio.wrap_future(pool.submit(thread, number)) for number in range(4)))
        for number in range(4):
            assert_same(await store.read(f"thread {number}"), entries(1, 20))

    async def test_two_store_objects_work_on_different_sessions(self, store: Store, further: MakeStore) -> None:
        other = await further()

        async def talk(used: Store, name: str) -> None:
            for first in range(1, 21):
                await used.append(name, entries(first, first))

        await asyncio.gather(talk(store, "a"), talk(other, "b"), talk(store, "c"), talk(other, "d"))
        await store.close()
        for name in "abcd":
            assert_same(await other.read(name), entries(1, 20))
