"""Locks, futures, queues and emissions across event loops: none is lost with a loop."""

import asyncio
import gc
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core.errors import ContextError, StoreError
from amplifier_context_core.events import PRE_COMPACT, emit, inside_handler
from amplifier_context_core.futures import in_thread, resolve
from amplifier_context_core.history.append_queue import AppendQueue, PendingAppend
from amplifier_context_core.locks import CrossLoopLock, Hold, OneLoop
from amplifier_context_core.messages.parsing import parse_message
from tests.loops import abandoned


async def let_tasks_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def taken(lock: CrossLoopLock) -> Hold:
    """Wait for the lock, and keep it."""
    hold = lock.hold()
    await hold.__aenter__()
    return hold


async def waiting(lock: CrossLoopLock, names: str, order: list[str]) -> list[asyncio.Task[None]]:
    """Return tasks that wait for a lock that is held, in this order; each notes its name once it has the lock."""

    async def work(name: str) -> None:
        async with lock.hold():
            order.append(name)

    tasks = [asyncio.create_task(work(name)) for name in names]
    await let_tasks_run()
    return tasks


async def test_any_mixture_of_cancellations_leaves_the_lock_free() -> None:
    lock = CrossLoopLock()
    done: list[int] = []

    async def work(number: int) -> None:
        async with lock.hold():
            await asyncio.sleep(0)
            done.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(60)]
    for number in range(0, 60, 3):
        for _ in range(number % 5):
            await asyncio.sleep(0)
        tasks[number].cancel()  # some of them together with the turn that is on its way to them
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert {number for number in range(60) if number % 3} <= set(done)
    async with asyncio.timeout(5), lock.hold():
        pass


def test_a_waiter_whose_loop_stands_still_is_passed_over_and_has_its_turn_when_it_runs() -> None:
    lock = CrossLoopLock()
    order: list[str] = []
    still = asyncio.new_event_loop()

    async def goes_on() -> None:
        async with lock.hold():
            [left] = await asyncio.to_thread(still.run_until_complete, waiting(lock, "a", order))
        async with asyncio.timeout(5), lock.hold():
            order.append("b")
            await asyncio.to_thread(still.run_until_complete, let_tasks_run())
            assert not left.done()
        await asyncio.to_thread(still.run_until_complete, left)

    asyncio.run(goes_on())
    still.close()
    assert order == ["b", "a"]


async def test_a_waiter_gets_the_lock_when_the_loop_of_its_holder_was_closed() -> None:
    lock = CrossLoopLock()
    other = asyncio.new_event_loop()
    await asyncio.to_thread(other.run_until_complete, taken(lock))
    waiting = asyncio.create_task(taken(lock))
    await let_tasks_run()
    other.close()
    async with asyncio.timeout(30):
        await waiting


def test_a_collected_task_of_a_closed_loop_does_not_release_the_next_holder() -> None:
    lock = CrossLoopLock()

    async def stay(entered: asyncio.Event) -> None:
        async with lock.hold():
            entered.set()
            await asyncio.Event().wait()

    async def acquire_again(tasks: list[object]) -> bool:
        async with asyncio.timeout(5), lock.hold():
            tasks.clear()
            gc.collect()
            return lock.is_held

    assert asyncio.run(acquire_again([abandoned(stay)]))


async def works_in(one_loop: OneLoop) -> bool:
    with one_loop.at_work():
        return True


async def test_work_of_one_loop_may_overlap_and_nest_and_that_of_a_second_loop_is_refused_meanwhile() -> None:
    one_loop = OneLoop()

    with one_loop.at_work():
        with one_loop.at_work():
            pass
        with pytest.raises(ContextError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, works_in(one_loop))
    await asyncio.to_thread(asyncio.run, works_in(one_loop))
    with one_loop.at_work():
        pass


def test_work_of_a_closed_loop_refuses_none_and_takes_none_away_when_it_is_collected() -> None:
    one_loop = OneLoop()

    async def never_ends(event: asyncio.Event) -> None:
        with one_loop.at_work():
            event.set()
            await asyncio.Event().wait()

    async def goes_on() -> None:
        nonlocal left
        with one_loop.at_work():
            del left
            gc.collect()
            with pytest.raises(ContextError):
                await asyncio.to_thread(asyncio.run, works_in(one_loop))

    left = abandoned(never_ends)
    asyncio.run(goes_on())


def test_work_of_a_stopped_loop_refuses_none() -> None:
    one_loop, stopped = OneLoop(), asyncio.new_event_loop()

    async def never_ends() -> None:
        with one_loop.at_work():
            stopped.stop()
            await asyncio.Event().wait()

    left = stopped.create_task(never_ends())
    stopped.run_forever()
    assert asyncio.run(works_in(one_loop))
    left.cancel()
    stopped.run_until_complete(asyncio.wait([left]))
    stopped.close()


# -- futures -----------------------------------------------------------------------------------------------------------
class Sub(StopIteration):
    """A subclass, which a future accepts and returns as a result."""


async def test_a_future_takes_any_exception_and_one_that_is_done_or_cancelled_is_left_as_it_is() -> None:
    both = ExceptionGroup("both", [StopIteration()])
    for problem in (StopIteration(), Sub("value"), ValueError(), KeyboardInterrupt(), asyncio.CancelledError(), both):
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        resolve(future, problem=problem)
        raised = future.exception()
        if isinstance(problem, StopIteration):
            assert isinstance(raised, StoreError)
            assert raised.__cause__ is problem
        else:
            assert raised is problem
    done, cancelled = asyncio.Future[str](), asyncio.Future[str]()
    resolve(done, "first")
    cancelled.cancel()
    for future in (done, cancelled):
        resolve(future, "second")
        resolve(future, problem=ValueError())
    assert (done.result(), cancelled.cancelled()) == ("first", True)


async def test_work_in_a_thread_that_ends_with_stop_iteration_ends_for_its_caller() -> None:
    assert await in_thread(int, "11", base=2) == 3
    with pytest.raises(StoreError, match="StopIteration"):
        await asyncio.wait_for(in_thread(next, iter(())), 5)


def test_an_emission_that_a_closed_loop_left_can_be_finalised_anywhere() -> None:
    async def for_ever(event: str, data: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    owner = object()
    emission = emit(SimpleNamespace(emit=for_ever), owner, PRE_COMPACT, {})

    async def host() -> None:
        task = asyncio.create_task(emission)
        await asyncio.sleep(0.01)
        emission.close()  # as the garbage collector does: outside of the context of its task
        assert not inside_handler(owner)
        task.cancel()
        with suppress(asyncio.CancelledError, RuntimeError):
            await task

    asyncio.run(host())
    with pytest.raises(RuntimeError):
        emission.send(None)


def test_a_writer_that_a_signal_ends_leaves_no_caller_waiting() -> None:
    async def interrupted(batch: Sequence[PendingAppend]) -> None:
        raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    queue = AppendQueue(CrossLoopLock(), interrupted, loop.create_task)
    message, info = parse_message({"role": "user", "content": "one"})

    async def add() -> object:
        return await queue.add(PendingAppend(message, info, 1, None, None, loop.create_future()))

    adding = loop.create_task(add())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(adding)
    with pytest.raises(StoreError, match="cut off"):
        loop.run_until_complete(asyncio.wait_for(adding, 5))
    loop.close()
    gc.collect()  # here, not while another test reads source code: CPython 3.11 takes that for a wrong recursion depth
