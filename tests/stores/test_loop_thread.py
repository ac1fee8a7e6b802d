"""The background loop of network clients, objects that stores share by URL, and changes that are sent together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_servers.leased.batching import MicroBatcher
from amplifier_context_servers.leased.loop_thread import LoopThread


async def where() -> tuple[int, asyncio.AbstractEventLoop]:
    return threading.get_ident(), asyncio.get_running_loop()


@pytest.fixture
def loop_thread() -> LoopThread:
    return LoopThread("test")


class TestLoopThread:
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


class TestMicroBatcher:
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
