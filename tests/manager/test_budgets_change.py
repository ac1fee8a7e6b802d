"""Budgets change between requests, come from providers of every kind, and two tasks may ask at once."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core import ConfigError
from tests.authors import make_manager
from tests.manager.measured import state_of
from tests.managers import ask, feed, new_manager
from tests.messages import rounds, session, shared_prefix, size, text, work

LARGE, SMALL = 8_000, 2_000


# --- other budgets ----------------------------------------------------------------------------------------------------


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


# --- at the same time -------------------------------------------------------------------------------------------------


class SlowHooks:
    """A hook registry whose handlers take their time, so that others come in between."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def emit(self, event: str, data: dict[str, Any]) -> Any:
        self.events.append(event)
        await asyncio.sleep(0.05)


async def test_tasks_that_ask_while_handlers_run_get_one_compaction_and_the_same_view() -> None:
    hooks = SlowHooks()
    manager = await feed(new_manager(hooks=hooks), session(200))
    views = await asyncio.gather(*(ask(manager, LARGE) for _ in range(10)))
    assert len({text(view) for view in views}) == 1
    assert hooks.events.count("context:pre_compact") == (await manager.explain())["compactions"] == 1


async def test_a_waiting_request_that_is_cancelled_harms_neither_the_compaction_nor_the_others_waiting() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    class Held:
        async def emit(self, event: str, data: dict[str, Any]) -> Any:
            entered.set()
            await leave.wait()

    manager = await feed(new_manager(hooks=Held()), session(200))
    first = asyncio.create_task(ask(manager, LARGE))
    await entered.wait()
    second, third = asyncio.create_task(ask(manager, LARGE)), asyncio.create_task(ask(manager, LARGE))
    await asyncio.sleep(0.05)
    second.cancel()
    leave.set()
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(first, second, third, return_exceptions=True)
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert text(outcomes[0]) == text(outcomes[2])


# --- figures that cannot be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, 1.5, "8000", True])
async def test_a_budget_that_is_no_number_of_tokens_is_an_error_that_says_so(budget: Any) -> None:
    manager = await feed(new_manager(), work(1))
    with pytest.raises(ConfigError, match=rf"token_budget: must be at least 1 token, got {budget!r}"):
        await manager.get_messages_for_request(budget)


# --- providers --------------------------------------------------------------------------------------------------------


def provider(window: Any = None, answer: Any = None) -> Any:
    defaults = {"context_window": window, "max_output_tokens": answer}
    return SimpleNamespace(name="p", get_info=lambda: SimpleNamespace(defaults=defaults))


async def test_max_tokens_caps_a_larger_window_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    manager = await feed(new_manager(max_tokens=5_000), [{"role": "user", "content": "Hi."}])
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            await manager.get_messages_for_request(provider=provider(100_000, 8_000))
    assert (await manager.explain())["view"]["budget"] == 5_000
    lines = [record.getMessage() for record in caplog.records if "max_tokens" in record.getMessage()]
    assert len(lines) == 1
    assert "5000" in lines[0].replace(",", "")
    assert "91000" in lines[0].replace(",", "")
