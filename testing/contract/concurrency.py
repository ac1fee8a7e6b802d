"""The store contract, concurrent and cancelled calls, also from several event loops and threads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from amplifier_context_core.stores import Store
from amplifier_context_core.transcript.entry import Entry

from .fixtures import MakeStore, StoreFixtures, assert_same, whole
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


async def cancelled(call: Awaitable[object], chance: random.Random) -> None:
    """Start a call and cancel it: before its first step, soon after, or when it may be complete."""
    task = asyncio.ensure_future(call)
    for _ in range(chance.choice((0, 1, 1, 2, 3, 5, 8))):
        await asyncio.sleep(0)
    if chance.random() < 0.5:
        await asyncio.sleep(chance.random() * 0.004)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class Cancellation(StoreFixtures):
    """A cancelled call is carried out or not, never half; the next call waits for it."""

    @pytest.mark.parametrize("seed", range(3))
    async def test_a_cancelled_append_is_there_whole_or_not_at_all(
        self, store: Store, further: MakeStore, seed: int
    ) -> None:
        chance = random.Random(seed)
        history: list[Entry] = []
        first = 1
        for _ in range(25):
            batch = entries(first, first + chance.choice((0, 3, 60)))
            first = batch[-1].seq + 1
            await cancelled(store.append("s", batch), chance)
            kept = await store.extent("s")
            assert kept.length in (len(history), len(history) + len(batch))
            history.extend(batch[: kept.length - len(history)])
            assert_same(await store.read("s"), history)
            await store.append("s", [entry(first)])
            history.append(entry(first))
            first += 1
        assert_same(await store.read("s"), history)
        await store.close()
        assert_same(await (await further()).read("s"), history)

    async def test_a_cancelled_replacement_is_made_whole_or_not_at_all(self, store: Store) -> None:
        chance = random.Random(0)
        history = entries(1, 6)
        await store.append("s", history)
        next_seq = 7
        for _ in range(25):
            keep = chance.randrange(len(history) + 1)
            moved = [history[-1]] if keep < len(history) else []
            new = [*history[:keep], *entries(next_seq, next_seq + 3), *moved]
            next_seq += 4
            await cancelled(store.replace("s", keep, new[keep:]), chance)
            found = await store.read("s")
            assert [one.seq for one in found] in ([one.seq for one in history], [one.seq for one in new])
            history = new if found and found[-len(moved) - 1 :][0].seq == new[-len(moved) - 1].seq else history
            assert_same(found, history)
            archived = [one.seq for one in await store.archived("s")]
            assert len(set(archived)) == len(archived)
            assert not {one.seq for one in history} & set(archived)

    async def test_a_cancelled_checkpoint_leaves_the_old_one_or_the_new_one(self, store: Store) -> None:
        chance = random.Random(0)
        await store.append("s", entries(1, 6))
        await store.save_checkpoint("s", 1, b"first")
        was = b"first"
        for number in range(20):
            data = bytes([number]) * chance.choice((0, 10, 200_000))
            await cancelled(store.save_checkpoint("s", 1 + number % 6, data), chance)
            found = await store.load_checkpoint("s")
            assert found in (was, data)
            was = found
        assert_same(await store.read("s"), entries(1, 6))

    async def test_cancelled_reads_opens_and_forks_disturb_nothing(self, store: Store) -> None:
        chance = random.Random(0)
        history = entries(1, 40)
        await store.append("s", history)
        await store.save_checkpoint("s", 9, b"nine")
        before = await whole(store)
        for number in range(12):
            await cancelled(store.read("s"), chance)
            await cancelled(store.find("s", [3, 4]), chance)
            await cancelled(store.load_checkpoint("s"), chance)
            await cancelled(store.sessions(), chance)
            await cancelled(store.release("s"), chance)
            await cancelled(store.open("s"), chance)
            await cancelled(store.fork("s", f"child {number}"), chance)
            assert not (await whole(store)).differs(before)
            child = await whole(store, f"child {number}")
            if child.extent.length:
                assert not child.differs(before)
        await store.append("s", entries(41, 42))
        assert_same(await store.read("s"), entries(1, 42))
