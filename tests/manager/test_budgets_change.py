"""Budgets change between requests, and several tasks may ask at once."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.authors import make_manager
from tests.manager.measured import state_of
from tests.managers import ask, feed, new_manager
from tests.messages import rounds, session, shared_prefix, size, text, work

LARGE, SMALL = 8_000, 2_000


async def test_going_back_to_the_larger_budget_finds_the_old_prefix_with_what_is_new_after_it() -> None:
    manager = await feed(new_manager(), work(100))
    before = await ask(manager, LARGE)
    for number in range(5):
        await feed(manager, rounds(1, start=500 + number))
        await ask(manager, SMALL)
    after = await ask(manager, LARGE)
    assert shared_prefix(before, after) == len(before)
    assert len(after) == len(before) + 10


async def test_a_long_session_on_two_budgets_compacts_for_each_only_when_it_is_full() -> None:
    manager = new_manager()
    await feed(manager, [{"role": "user", "content": "Work."}])
    for number in range(120):
        await feed(manager, rounds(1, start=number))
        await ask(manager, LARGE)
        await ask(manager, SMALL)
    total = size(await manager.get_messages())
    # Half a budget is free after a compaction; twice as many as that takes is already generous.
    assert (await manager.explain())["compactions"] <= 2 * (total / (LARGE / 2) + total / (SMALL / 2))


async def test_what_a_compaction_took_out_does_not_come_back_with_an_older_view_of_a_larger_budget() -> None:
    manager = await feed(new_manager(target_usage=0.05), work(30))
    await ask(manager, 10 * LARGE)
    await ask(manager, LARGE)
    assert (await manager.compact())["compacted"]
    before, compactions = await ask(manager, LARGE), 1
    for number in range(100):
        await feed(manager, rounds(1, start=500 + number))
        view = await ask(manager, LARGE)
        is_compacted = compactions != (compactions := manager.compactor.compactions)
        assert is_compacted or shared_prefix(before, view) == len(before)
        before = view
    assert compactions > 1


async def test_a_host_that_asks_for_another_budget_each_time_does_not_fill_the_saved_state() -> None:
    manager = await feed(new_manager(), work(4))
    saved: list[int] = []
    for process in range(4):
        for number in range(40):
            await manager.get_messages_for_request(20_000 + 40 * process + number)
        saved.append(len(await state_of(manager)))
        await manager.close()
        manager = make_manager(manager.config, session_id=manager.session_id, store=manager.store)
    assert saved[3] <= saved[1] + 100


class Held:
    """A hook registry whose handlers wait for the test."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.entered, self.leave = asyncio.Event(), asyncio.Event()

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        self.events.append(event)
        self.entered.set()
        await self.leave.wait()


async def test_tasks_that_ask_while_handlers_run_get_one_compaction_and_the_same_view_though_one_is_cancelled() -> None:
    hooks = Held()
    manager = await feed(new_manager(hooks=hooks), session(200))
    asking = [asyncio.create_task(ask(manager, LARGE)) for _ in range(6)]
    await hooks.entered.wait()
    await asyncio.sleep(0.05)
    asking[3].cancel()
    hooks.leave.set()
    async with asyncio.timeout(60):
        views = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(views.pop(3), asyncio.CancelledError)
    assert len({text(view) for view in views}) == 1
    assert hooks.events.count("context:pre_compact") == (await manager.explain())["compactions"] == 1
