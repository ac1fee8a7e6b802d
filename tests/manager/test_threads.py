"""Threads with event loops of their own, what work takes of a loop at once, and what is done beside it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core import ContextError
from amplifier_context_testing import check_request
from tests.manager.measured import Counting
from tests.managers import feed, new_manager
from tests.messages import Message, bare, call, result, size, text, user, work

THREADS = 8
ROUNDS = 40
BUDGET = 6_000


def in_threads(work: Callable[[int], Coroutine[Any, Any, None]], threads: int = THREADS) -> None:
    """Run a coroutine in threads, each with a loop of its own, all at once; the first failure of any is raised."""
    start = threading.Barrier(threads)

    def run(number: int) -> None:
        start.wait(10)
        asyncio.run(asyncio.wait_for(work(number), 60))

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(run, number) for number in range(threads)]:
            done.result(90)


def a_round(thread: int, number: int) -> list[Message]:
    name = f"call_{thread}_{number}"
    return [call(name, path=f"t{thread}/f{number}.py"), result(name, f"thread {thread} round {number} " * 12)]


def test_nothing_is_lost_and_each_threads_order_is_kept() -> None:
    manager = new_manager()

    async def work(thread: int) -> None:
        for number in range(ROUNDS):
            await feed(manager, a_round(thread, number))

    asyncio.run(manager.add_message(user()))
    in_threads(work)
    history = bare(asyncio.run(manager.get_messages()))
    assert len(history) == 1 + THREADS * ROUNDS * 2
    for thread in range(THREADS):
        own = [m for m in history if f"call_{thread}_" in text([m])]
        assert own == [message for number in range(ROUNDS) for message in a_round(thread, number)]
    seqs = [entry.seq for entry in manager.snapshot()]
    assert seqs == list(range(1, len(history) + 1))


def test_what_adds_and_reads_may_be_called_from_any_loop_while_one_makes_requests_and_edits() -> None:
    manager = new_manager()
    asyncio.run(manager.add_message(user()))

    async def work(thread: int) -> None:
        for number in range(8):
            await feed(manager, a_round(thread, number))
            history = await manager.get_messages()
            match thread % 4, thread:
                case 0, 0:
                    await manager.compact()
                    assert check_request(await manager.get_messages_for_request(BUDGET + number)) == []
                    await manager.pin(f"m{number + 1}")
                case 1, _:
                    await manager.explain()
                case 2, _:
                    assert await manager.search("round")
                case _:
                    assert await manager.recall("m1")
            assert len(history) <= len(await manager.get_messages())

    in_threads(work)
    assert len(manager.snapshot()) == 1 + THREADS * 8 * 2


def test_a_request_or_an_edit_is_refused_while_another_live_loop_makes_a_request() -> None:
    hooks = HookRegistry()
    manager = new_manager(hooks=hooks)
    refused: list[str] = []
    measured: list[dict[str, Any]] = []

    async def elsewhere() -> None:
        await manager.add_message(user("From elsewhere."))
        assert (await manager.get_messages())[-1]["content"] == "From elsewhere."
        for reads in (manager.recall("m1"), manager.search("elsewhere"), manager.explain()):
            assert await reads
        for one in (
            manager.get_messages_for_request(BUDGET),
            manager.measured_request_view(count_view=no_count),
            manager.request_retention(retain_contents=["From elsewhere."]),
            manager.set_messages([]),
            manager.clear(),
            manager.interrupt(),
            manager.compact(),
            manager.undo(),
            manager.pin("m1"),
            manager.compact_summary("call_0_0", "short"),
            manager.forget(["m1"]),
            measured[0]["transaction"].commit(),
        ):
            with pytest.raises(ContextError, match="another event loop"):
                await one
            refused.append(one.__name__)

    async def no_count(view: list[dict[str, Any]]) -> dict[str, Any]:
        raise AssertionError("the view is counted though it is refused")

    async def hold(event: str, data: dict[str, Any]) -> HookResult:
        if not refused:
            await asyncio.to_thread(asyncio.run, elsewhere())
        return HookResult(action="continue")

    hooks.register("context:pre_compact", hold, 0, name="holding")
    asyncio.run(feed(manager, work(60, output=600)))
    measured.append(asyncio.run(manager.measured_request_view(count_view=Counting())))
    assert check_request(asyncio.run(manager.get_messages_for_request(BUDGET))) == []
    assert len(refused) == 12
    assert size(asyncio.run(manager.get_messages_for_request(BUDGET))) <= BUDGET
