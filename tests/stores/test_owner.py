"""The background loop that network clients live on, what is shared by address, and changes that go together."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores.servers.batches import Batches
from amplifier_context_core.stores.servers.owner import Owner, Shared


async def where() -> tuple[int, asyncio.AbstractEventLoop]:
    return threading.get_ident(), asyncio.get_running_loop()


@pytest.fixture
def owner() -> Owner:
    return Owner("test")


class TestOwner:
    async def test_coroutines_run_on_one_loop_in_another_thread(self, owner: Owner) -> None:
        first, second = await owner.run(where()), await owner.run(where())
        assert first == second
        assert first[0] != threading.get_ident()
        assert first[1] is not asyncio.get_running_loop()
        owner.stop()

    async def test_what_it_raises_is_raised_here(self, owner: Owner) -> None:
        async def fail() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await owner.run(fail())
        owner.stop()

    async def test_a_cancelled_caller_does_not_cancel_the_work(self, owner: Owner) -> None:
        begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

        async def work() -> None:
            begun.set()
            while not may_end.is_set():
                await asyncio.sleep(0.001)
            ended.set()

        task = asyncio.create_task(owner.run(work()))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_end.set()
        assert await asyncio.to_thread(ended.wait, 10)
        owner.stop()

    async def test_what_is_handed_over_by_one_thread_starts_in_that_order(self, owner: Owner) -> None:
        order: list[int] = []

        async def note(number: int) -> None:
            order.append(number)

        await asyncio.gather(*(owner.run(note(number)) for number in range(200)))
        assert order == list(range(200))
        owner.stop()

    def test_loops_of_callers_come_and_go(self, owner: Owner) -> None:
        seen = {asyncio.run(owner.run(where())) for _ in range(5)}
        assert len(seen) == 1
        owner.stop()

    def test_many_loops_call_at_the_same_time(self, owner: Owner) -> None:
        async def add(number: int) -> int:
            await asyncio.sleep(0)
            return number + 1

        async def talk(base: int) -> list[int]:
            return await asyncio.gather(*(owner.run(add(base + number)) for number in range(100)))

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda base: asyncio.run(talk(base)), range(0, 8_000, 1_000)))
        assert answers == [[base + number + 1 for number in range(100)] for base in range(0, 8_000, 1_000)]
        owner.stop()

    def test_a_caller_whose_loop_ended_hurts_nobody(self, owner: Owner) -> None:
        async def slow() -> None:
            await asyncio.sleep(0.02)
            raise ValueError("nobody is there to hear this")

        async def leave() -> None:
            task = asyncio.create_task(owner.run(slow()))
            await asyncio.sleep(0)
            task.cancel()

        asyncio.run(leave())
        asyncio.run(owner.run(asyncio.sleep(0.05)))
        assert asyncio.run(owner.run(where()))
        gc.collect()
        owner.stop()

    @pytest.mark.parametrize("problem", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration()])
    async def test_whatever_one_coroutine_raises_the_others_are_answered(
        self, owner: Owner, problem: BaseException
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
                await owner.run(fail())
            except BaseException as raised:  # noqa: BLE001 - `SystemExit` would end the event loop of the test
                ended.append(raised)

        waiting = asyncio.create_task(owner.run(wait()))
        await asyncio.wait_for(call(), 5)
        assert len(ended) == 1
        assert await asyncio.wait_for(waiting, 5) == "answered"
        assert await asyncio.wait_for(owner.run(wait()), 5) == "answered"
        owner.stop()

    async def test_a_call_after_the_stop_starts_it_again(self, owner: Owner) -> None:
        first = await owner.run(where())
        owner.stop()
        owner.stop()
        second = await owner.run(where())
        assert first[1] is not second[1]
        owner.stop()

    async def test_stopping_cancels_what_runs_and_ends_the_thread(self, owner: Owner) -> None:
        ended: list[str] = []

        async def linger() -> None:
            try:
                await asyncio.sleep(3_600)
            finally:
                ended.append("cleaned up")

        _, loop = await owner.run(where())
        task = asyncio.create_task(owner.run(linger()))
        await owner.run(asyncio.sleep(0.01))
        owner.stop()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)
        assert ended == ["cleaned up"]
        while not loop.is_closed():
            await asyncio.sleep(0.005)

    def test_a_forked_child_has_a_loop_of_its_own(self, owner: Owner) -> None:
        asyncio.run(owner.run(where()))
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(asyncio.wait_for(owner.run(where()), 10))
            except BaseException:  # noqa: BLE001 - the child must end here, whatever happened
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert asyncio.run(owner.run(where()))
        owner.stop()


class TestShared:
    def test_one_thing_for_each_key_until_its_last_user_gives_it_back(self) -> None:
        shared: Shared[str, list[str]] = Shared(lambda key: [key])
        one, again, other = shared.take("a"), shared.take("a"), shared.take("b")
        assert one is again
        assert one is not other
        assert not shared.give_back("a", one)
        assert shared.give_back("a", one)
        assert shared.take("a") is not one
        assert shared.give_back("b", other)

    def test_what_was_given_back_by_all_is_not_given_back_again(self) -> None:
        shared: Shared[str, list[str]] = Shared(lambda key: [key])
        one = shared.take("a")
        assert shared.give_back("a", one)
        other = shared.take("a")
        assert not shared.give_back("a", one)
        assert shared.take("a") is other


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


class TestBatches:
    async def test_what_comes_alone_goes_at_once(self) -> None:
        sender = Sender()
        batches = Batches(sender.send)
        assert [await batches.add(number) for number in range(3)] == [0, 10, 20]
        assert sender.batches == [[0], [1], [2]]

    async def test_what_comes_together_goes_together_and_each_gets_its_answer(self) -> None:
        sender = Sender()
        batches = Batches(sender.send, lanes=2, most=30)
        answers = await asyncio.gather(*(batches.add(number) for number in range(20, 120)))
        assert answers == [number * 10 for number in range(20, 120)]
        assert sender.most == 2
        assert sorted(item for batch in sender.batches for item in batch) == list(range(20, 120))
        assert max(map(len, sender.batches)) == 30
        assert len(sender.batches) < 10

    async def test_an_error_of_one_is_raised_for_that_one_alone(self) -> None:
        batches = Batches(Sender().send)
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

        batches = Batches(fail, lanes=1, most=5)
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

        batches = Batches(fail, lanes=1)
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

        batches = Batches(short, lanes=1)
        work = asyncio.gather(*(batches.add(number) for number in range(5)), return_exceptions=True)
        answers = await asyncio.wait_for(work, 5)
        assert answers[:3] == [0, 1, 2]
        assert [type(answer) for answer in answers[3:]] == [StoreError] * 2
