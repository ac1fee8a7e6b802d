"""The gate: one task at a time, whatever loop and thread it runs on, and no turn is ever lost."""

from __future__ import annotations

import asyncio
import threading

import pytest

from amplifier_context_core.locks import Gate


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_task_at_a_time_goes_in() -> None:
    gate = Gate()
    inside = most = 0

    async def work() -> None:
        nonlocal inside, most
        async with gate:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(50)))
    assert (inside, most) == (0, 1)


async def test_a_free_gate_is_taken_without_waiting() -> None:
    gate = Gate()
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "something else")
    async with gate:
        assert ran == []


async def test_first_come_is_first_served() -> None:
    gate = Gate()
    order: list[int] = []

    async def work(number: int) -> None:
        async with gate:
            order.append(number)

    async with gate:
        tasks = [asyncio.create_task(work(number)) for number in range(10)]
        await settle()
    await asyncio.gather(*tasks)
    assert order == list(range(10))


async def test_an_error_inside_opens_the_gate_again() -> None:
    gate = Gate()
    with pytest.raises(RuntimeError, match="inside"):
        async with gate:
            raise RuntimeError("inside")
    async with asyncio.timeout(5), gate:
        pass


async def test_a_task_cancelled_inside_opens_the_gate_again() -> None:
    gate = Gate()

    async def hang() -> None:
        async with gate:
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(5), gate:
        pass


async def test_a_task_cancelled_while_waiting_is_passed_over() -> None:
    gate = Gate()
    order: list[str] = []

    async def work(name: str) -> None:
        async with gate:
            order.append(name)

    async with gate:
        first, second, third = (asyncio.create_task(work(name)) for name in "abc")
        await settle()
        second.cancel()
        await settle()
    await asyncio.gather(first, third)
    assert second.cancelled()
    assert order == ["a", "c"]
    async with asyncio.timeout(5), gate:
        pass


async def test_a_turn_that_comes_together_with_a_cancellation_is_passed_on() -> None:
    """The waiter is cancelled after its turn was given to it and before it could take it."""
    gate = Gate()
    order: list[str] = []

    async def work(name: str) -> None:
        async with gate:
            order.append(name)

    async with gate:
        first, second = (asyncio.create_task(work(name)) for name in "ab")
        await settle()
    first.cancel()  # no await between: the turn is on its way to it
    async with asyncio.timeout(5):
        await asyncio.gather(first, second, return_exceptions=True)
    assert order[-1] == "b"
    async with asyncio.timeout(5), gate:
        pass


async def test_any_mixture_of_cancellations_leaves_the_gate_open() -> None:
    gate = Gate()
    done: list[int] = []

    async def work(number: int) -> None:
        async with gate:
            await asyncio.sleep(0)
            done.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(60)]
    for number in range(0, 60, 3):
        for _ in range(number % 5):
            await asyncio.sleep(0)
        tasks[number].cancel()
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert {number for number in range(60) if number % 3} <= set(done)
    async with asyncio.timeout(5), gate:
        pass


def test_tasks_of_many_loops_in_many_threads_go_in_one_at_a_time() -> None:
    gate = Gate()
    inside = 0
    counted = 0
    broken: list[int] = []

    async def work() -> None:
        nonlocal inside, counted
        for _ in range(100):
            async with gate:
                inside += 1
                if inside != 1:
                    broken.append(inside)
                seen = counted
                await asyncio.sleep(0)
                counted = seen + 1
                inside -= 1

    async def several() -> None:
        await asyncio.gather(work(), work())

    threads = [threading.Thread(target=lambda: asyncio.run(several()), daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert broken == []
    assert counted == 1_600


def test_a_loop_that_ended_while_its_task_waited_does_not_hold_the_gate() -> None:
    gate = Gate()
    waiting = threading.Event()
    taken = threading.Event()

    async def wait() -> None:
        async with gate:
            pass

    async def short() -> None:
        task = asyncio.create_task(wait())
        await settle()
        waiting.set()
        assert not task.done()  # asyncio.run cancels it at the end

    async def holder() -> None:
        async with gate:
            await asyncio.to_thread(lambda: (thread.start(), thread.join(20)))
        async with asyncio.timeout(5), gate:
            taken.set()

    thread = threading.Thread(target=lambda: asyncio.run(short()), daemon=True)
    asyncio.run(holder())
    assert waiting.is_set()
    assert taken.is_set()


async def test_a_free_gate_can_be_taken_at_once_and_a_taken_one_cannot() -> None:
    gate = Gate()
    assert gate.enter_at_once()
    assert not gate.enter_at_once()
    waiting = asyncio.create_task(gate.__aenter__())
    await settle()
    gate.leave()
    assert not gate.enter_at_once()  # whoever waits comes first
    await waiting
    gate.leave()
    assert gate.enter_at_once()


def test_a_gate_whose_holder_is_gone_with_its_loop_can_be_taken_at_once() -> None:
    gate = Gate()

    async def take() -> bool:
        return gate.enter_at_once()

    assert asyncio.run(take())
    assert asyncio.run(take())


def test_a_turn_that_was_taken_from_a_closed_loop_is_not_ended_from_there() -> None:
    """The garbage collector ends its tasks at any time."""
    gate = Gate()

    async def take() -> asyncio.AbstractEventLoop:
        assert gate.enter_at_once()
        return asyncio.get_running_loop()

    async def take_over(closed: asyncio.AbstractEventLoop) -> None:
        assert gate.enter_at_once()
        gate.leave(closed)
        assert not gate.enter_at_once()

    asyncio.run(take_over(asyncio.run(take())))


async def test_who_waits_comes_in_when_the_loop_of_who_is_in_was_closed() -> None:
    gate = Gate()
    other = asyncio.new_event_loop()
    await asyncio.to_thread(other.run_until_complete, gate.enter())
    waiting = asyncio.create_task(gate.enter())
    await settle()
    other.close()
    async with asyncio.timeout(30):
        await waiting


def test_a_turn_that_was_handed_over_outlives_the_loop_it_came_from() -> None:
    gate = Gate()

    async def hand_over() -> None:
        assert gate.enter_at_once()
        gate.hand_over(None)

    async def try_it() -> bool:
        return gate.enter_at_once()

    asyncio.run(hand_over())
    assert not asyncio.run(try_it())


def test_a_loop_that_was_closed_in_the_gate_does_not_shut_it_for_ever() -> None:
    gate = Gate()

    async def stay() -> None:
        await gate.__aenter__()

    async def enter() -> bool:
        async with asyncio.timeout(2), gate:
            return True

    loop = asyncio.new_event_loop()
    loop.run_until_complete(stay())
    loop.close()
    assert asyncio.run(enter())
