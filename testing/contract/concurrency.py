"""The store contract, concurrent calls, also from several event loops and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from amplifier_context_core.stores import Store

from .fixtures import MakeStore, StoreFixtures, assert_same
from .samples import entries

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

    async def test_event_loops_may_come_and_go(self, store: Store) -> None:
        for number in range(1, 6):

            async def work(number: int = number) -> None:
                await store.append("s", entries(number, number))
                assert_same(await store.read("s"), entries(1, number))

            await on_own_loop(work)
        assert_same(await store.read("s"), entries(1, 5))
        await store.append("s", entries(6, 6))

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
