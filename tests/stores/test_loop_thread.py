"""The background loop of network clients, objects that stores share by URL, and changes that are sent together."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_servers.leased.batching import MicroBatcher
from amplifier_context_servers.leased.loop_thread import LoopThread, RefCounted


async def where() -> tuple[int, asyncio.AbstractEventLoop]:
    return threading.get_ident(), asyncio.get_running_loop()


@pytest.fixture
def loop_thread() -> LoopThread:
    return LoopThread("test")


class TestLoopThread:
    async def test_coroutines_run_on_one_loop_in_another_thread(self, loop_thread: LoopThread) -> None:
        first, second = await loop_thread.run(where()), await loop_thread.run(where())
        assert first == second
        assert first[0] != threading.get_ident()
        assert first[1] is not asyncio.get_running_loop()
        loop_thread.stop()

    async def test_what_it_raises_is_raised_here(self, loop_thread: LoopThread) -> None:
        async def fail() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await loop_thread.run(fail())
        loop_thread.stop()

    async def test_a_cancelled_caller_does_not_cancel_the_work(self, loop_thread: LoopThread) -> None:
        begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

        async def work() -> None:
            begun.set()
            while not may_end.is_set():
                await asyncio.sleep(0.001)
            ended.set()

        task = asyncio.create_task(loop_thread.run(work()))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_end.set()
        assert await asyncio.to_thread(ended.wait, 10)
        loop_thread.stop()

    async def test_calls_of_one_thread_start_in_order(self, loop_thread: LoopThread) -> None:
        order: list[int] = []

        async def note(number: int) -> None:
            order.append(number)

        await asyncio.gather(*(loop_thread.run(note(number)) for number in range(200)))
        assert order == list(range(200))
        loop_thread.stop()

    def test_loops_of_callers_come_and_go(self, loop_thread: LoopThread) -> None:
        seen = {asyncio.run(loop_thread.run(where())) for _ in range(5)}
        assert len(seen) == 1
        loop_thread.stop()

    def test_many_loops_call_at_the_same_time(self, loop_thread: LoopThread) -> None:
        async def add(number: int) -> int:
            await asyncio.sleep(0)
            return number + 1

        async def talk(base: int) -> list[int]:
            return await asyncio.gather(*(loop_thread.run(add(base + number)) for number in range(100)))

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda base: asyncio.run(talk(base)), range(0, 8_000, 1_000)))
        assert answers == [[base + number + 1 for number in range(100)] for base in range(0, 8_000, 1_000)]
        loop_thread.stop()

    def test_a_caller_whose_loop_ended_disturbs_no_other(self, loop_thread: LoopThread) -> None:
        async def slow() -> None:
            await asyncio.sleep(0.02)
            raise ValueError("no caller waits for this")

        async def leave() -> None:
            task = asyncio.create_task(loop_thread.run(slow()))
            await asyncio.sleep(0)
            task.cancel()

        asyncio.run(leave())
        asyncio.run(loop_thread.run(asyncio.sleep(0.05)))
        assert asyncio.run(loop_thread.run(where()))
        gc.collect()
        loop_thread.stop()

    @pytest.mark.parametrize("problem", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration()])
    async def test_whatever_one_coroutine_raises_the_others_are_answered(
        self, loop_thread: LoopThread, problem: BaseException
    ) -> None:
        async def fail() -> None:
            await asyncio.sleep(0.01)
            raise problem

        async def wait() -> str:
            await asyncio.sleep(0.05)
            return "answered"

        ended: list[BaseException] = []

        async def call() -> None:
            try:
                await loop_thread.run(fail())
            except BaseException as raised:  # noqa: BLE001 - `SystemExit` would end the event loop of the test
                ended.append(raised)

        waiting = asyncio.create_task(loop_thread.run(wait()))
        await asyncio.wait_for(call(), 5)
        assert len(ended) == 1
        assert await asyncio.wait_for(waiting, 5) == "answered"
        assert await asyncio.wait_for(loop_thread.run(wait()), 5) == "answered"
        loop_thread.stop()

    async def test_a_call_after_the_stop_starts_it_again(self, loop_thread: LoopThread) -> None:
        first = await loop_thread.run(where())
        loop_thread.stop()
        loop_thread.stop()
        second = await loop_thread.run(where())
        assert first[1] is not second[1]
        loop_thread.stop()

    async def test_stopping_cancels_what_runs_and_ends_the_thread(self, loop_thread: LoopThread) -> None:
        ended: list[str] = []

        async def linger() -> None:
            try:
                await asyncio.sleep(3_600)
            finally:
                ended.append("cleaned up")

        _, loop = await loop_thread.run(where())
        task = asyncio.create_task(loop_thread.run(linger()))
        await loop_thread.run(asyncio.sleep(0.01))
        loop_thread.stop()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)
        assert ended == ["cleaned up"]
        while not loop.is_closed():
            await asyncio.sleep(0.005)


class TestRefCounted:
    def test_one_object_for_each_key_until_its_last_user_releases_it(self) -> None:
        shared: RefCounted[str, list[str]] = RefCounted(lambda key: [key])
        one, again, other = shared.acquire("a"), shared.acquire("a"), shared.acquire("b")
        assert one is again
        assert one is not other
        assert not shared.release("a")
        assert shared.release("a")
        assert shared.acquire("a") is not one
        assert shared.release("b")


class Sender:
    """Sends slowly, and notes what went together."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.at_once = self.most = 0

    async def send(self, items: Sequence[int]) -> list[int | Exception]:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.batches.append(list(items))
        await asyncio.sleep(0.005)
        self.at_once -= 1
        return [ValueError(str(item)) if item < 0 else item * 10 for item in items]


class TestMicroBatcher:
    async def test_a_single_item_is_sent_at_once(self) -> None:
        sender = Sender()
        batches = MicroBatcher(sender.send)
        assert [await batches.add(number) for number in range(3)] == [0, 10, 20]
        assert sender.batches == [[0], [1], [2]]

    async def test_items_that_arrive_together_are_sent_together_and_each_gets_its_answer(self) -> None:
        sender = Sender()
        batches = MicroBatcher(sender.send, max_in_flight=2, max_items=30)
        answers = await asyncio.gather(*(batches.add(number) for number in range(20, 120)))
        assert answers == [number * 10 for number in range(20, 120)]
        assert sender.most == 2
        assert sorted(item for batch in sender.batches for item in batch) == list(range(20, 120))
        assert max(map(len, sender.batches)) == 30
        assert len(sender.batches) < 10

    async def test_an_error_of_one_is_raised_for_that_one_alone(self) -> None:
        batches = MicroBatcher(Sender().send)
        answers = await asyncio.gather(*(batches.add(number) for number in (1, 2, -3, 4, -5)), return_exceptions=True)
        assert [str(answer) for answer in answers] == ["10", "20", "-3", "40", "-5"]
        with pytest.raises(ValueError, match="-7"):
            await batches.add(-7)

    async def test_an_error_of_all_is_raised_for_all_and_the_next_are_sent(self) -> None:
        async def fail(items: Sequence[int]) -> list[int | Exception]:
            await asyncio.sleep(0.001)
            if min(items) < 10:
                raise KeyError("all of it")
            return list(items)

        batches = MicroBatcher(fail, max_in_flight=1, max_items=5)
        answers = await asyncio.gather(*(batches.add(number) for number in range(21)), return_exceptions=True)
        assert [isinstance(answer, KeyError) for answer in answers] == [True] * 11 + [False] * 10
        assert await batches.add(50) == 50

    @pytest.mark.parametrize("problem", [asyncio.CancelledError(), GeneratorExit()])
    async def test_no_item_waits_for_ever_whatever_was_raised(self, problem: BaseException) -> None:
        async def fail(items: Sequence[int]) -> list[int | Exception]:
            await asyncio.sleep(0.001)
            if min(items) > 0:
                raise problem
            return list(items)

        batches = MicroBatcher(fail, max_in_flight=1)
        tasks = [asyncio.create_task(batches.add(number)) for number in range(5)]
        _, waiting = await asyncio.wait(tasks, timeout=5)
        assert not waiting
        assert await tasks[0] == 0
        for task in tasks[1:]:
            assert task.cancelled() or task.exception() is problem

    async def test_an_item_without_an_answer_is_an_error_for_that_item(self) -> None:
        async def short(items: Sequence[int]) -> list[int | Exception]:
            await asyncio.sleep(0.001)
            return list(items)[:2]

        batches = MicroBatcher(short, max_in_flight=1)
        work = asyncio.gather(*(batches.add(number) for number in range(5)), return_exceptions=True)
        answers = await asyncio.wait_for(work, 5)
        assert answers[:3] == [0, 1, 2]
        assert [type(answer) for answer in answers[3:]] == [StoreError] * 2
