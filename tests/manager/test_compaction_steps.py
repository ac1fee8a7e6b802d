"""A request walks once through the modules of a view; a compaction leaves a value and not a trace."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core import ContextManager, ContextOverflow
from amplifier_context_core.compaction.checkpoint import Draft, Segment
from amplifier_context_core.compaction.strategies import FoldRounds, Goal
from amplifier_context_core.events import POST_COMPACT, PRE_COMPACT
from amplifier_context_core.view.cache import ViewCache
from amplifier_context_core.view.selection import Selection
from amplifier_context_core.view.session_state import load
from amplifier_context_core.view.view_request import ViewRequest
from tests.manager.measured import Counting, measure, settings
from tests.managers import Watch, ask, feed, new_manager
from tests.messages import work

BUDGET = 4_000


@pytest.fixture
def selections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The budgets that views were selected for."""
    made: list[int] = []
    select = ViewCache.select

    async def counted(self: ViewCache, request: ViewRequest) -> Selection:
        made.append(request.limits.budget)
        return await select(self, request)

    monkeypatch.setattr(ViewCache, "select", counted)
    return made


async def test_a_request_selects_its_view_once_whether_it_compacts_or_not(selections: list[int]) -> None:
    manager = new_manager()
    compacting = 0
    for message in work(60):
        await feed(manager, [message])
        before, selections[:] = manager.compactor.compactions, []
        await ask(manager, BUDGET)
        assert selections == [BUDGET]
        compacting += manager.compactor.compactions > before
    assert compacting


async def entered(manager: ContextManager, functions: Collection[str]) -> dict[str, int]:
    """Return how often a request enters each of these functions of core, by qualified name."""
    entered = dict.fromkeys(functions, 0)

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_qualname in entered and "amplifier_context_core" in code.co_filename:
            entered[code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        await ask(manager, BUDGET)
    finally:
        sys.setprofile(before)
    return entered


async def test_what_is_known_of_a_request_is_found_once() -> None:
    known = {"token_limits": 1, "RequestPrefix.of": 1, "pause_of": 1, "compaction_threshold": 1, "announcement": 0}
    compacting = {**known, "compaction_threshold": 2, "announcement": 1}  # a threshold for the new view, too
    manager = new_manager(hooks=HookRegistry())
    found: list[dict[str, int]] = []
    for message in work(60):
        await feed(manager, [message])
        before = manager.compactor.compactions
        found.append(await entered(manager, known))
        assert found[-1] == (compacting if manager.compactor.compactions > before else known)
    assert known in found
    assert compacting in found


@pytest.mark.parametrize("event", [PRE_COMPACT, POST_COMPACT])
async def test_a_message_that_came_while_handlers_ran_is_in_the_view(event: str, selections: list[int]) -> None:
    hooks = HookRegistry()
    manager = await feed(new_manager(hooks=hooks), work(60))

    async def add(_: str, __: dict[str, Any]) -> HookResult:
        await manager.add_message({"role": "user", "content": "what came meanwhile"})
        return HookResult(action="continue")

    hooks.register(event, add, 0, name="test")
    view = await ask(manager, BUDGET)
    assert view[-1]["content"] == "what came meanwhile"
    assert len(selections) == 2


async def test_the_state_is_saved_after_a_compaction_even_where_the_view_does_not_fit() -> None:
    prompt = {"role": "system", "content": "word " * 800}
    manager = await feed(new_manager(strict=True), [prompt, *work(60)])
    with pytest.raises(ContextOverflow):
        await ask(manager, 500)
    assert manager.compactor.compactions
    data = await manager.store.load_checkpoint(manager.session_id)
    assert data is not None
    state = load(data)
    assert state is not None
    assert state.compactions == manager.compactor.compactions


async def test_what_a_handler_injected_is_forgotten_before_its_compaction_ends() -> None:
    async def inject(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="inject_context", context_injection="dwell on hunter2-0815")

    async def forget(event: str, data: dict[str, Any]) -> HookResult:
        await manager.forget(containing="hunter2-0815")
        return HookResult(action="continue")

    hooks = HookRegistry()
    hooks.register(PRE_COMPACT, inject, 0, name="inject")
    hooks.register(PRE_COMPACT, forget, 1, name="forget")
    manager = new_manager(hooks=hooks)
    await feed(manager, work(60))
    await ask(manager, BUDGET)
    assert manager.compactor.compactions
    assert manager.compactor.injected is None


async def test_a_strategy_is_given_nothing_injected_that_was_erased_before_it_runs() -> None:
    async def inject(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="inject_context", context_injection="dwell on hunter2-0815")

    async def forget(event: str, data: dict[str, Any]) -> HookResult:
        await manager.forget(containing="hunter2-0815")
        return HookResult(action="continue")

    hooks, watch = HookRegistry(), Watch()
    hooks.register(PRE_COMPACT, inject, 0, name="inject")
    manager = new_manager(hooks=hooks, strategies=[watch, FoldRounds()])
    await feed(manager, work(60))
    await ask(manager, BUDGET)
    assert "dwell on hunter2-0815" in {goal.focus for goal in watch.goals}
    watch.goals.clear()
    hooks.register(PRE_COMPACT, forget, 1, name="forget")
    await feed(manager, work(60))
    await ask(manager, BUDGET)
    assert {goal.focus for goal in watch.goals} == {None}


class QuotesFocus(FoldRounds):
    """Writes the focus in place of chapters, and lets a session erase it meanwhile."""

    forget: Callable[[], Awaitable[object]] | None = None

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        def quoted(segment: Segment) -> Segment:
            if segment.chapter is None or not goal.focus:
                return segment
            message = {**segment.shown[0].message, "content": goal.focus}
            shown = segment.shown[0].with_message(message, goal.counter)
            return replace(segment, shown=(shown,), tokens=shown.tokens)

        if self.forget is not None and goal.focus:
            await self.forget()
        folded = await super().apply(draft, goal)
        return folded.with_segments(map(quoted, folded.segments))


@pytest.mark.parametrize("measured", [False, True])
async def test_no_compaction_that_quotes_what_was_erased_meanwhile_becomes_the_sessions(measured: bool) -> None:
    async def inject(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="inject_context", context_injection="dwell on hunter2-0815")

    async def request() -> None:
        if measured:
            result = await measure(manager, Counting())
            assert await result["transaction"].commit()
        else:
            await ask(manager, BUDGET)

    hooks, quotes = HookRegistry(), QuotesFocus()
    unregister = hooks.register(PRE_COMPACT, inject, 0, name="inject")
    manager = new_manager(hooks=hooks, strategies=[quotes], **settings())
    await feed(manager, work(60))
    await request()
    assert "hunter2-0815" in str(await ask(manager, BUDGET)), "it is written into views"
    await manager.forget(containing="hunter2-0815")
    quotes.forget = lambda: manager.forget(containing="hunter2-0815")
    await request()
    unregister()
    assert manager.compactor.injected is None
    assert "hunter2-0815" not in str(await ask(manager, BUDGET))
    await manager.close()
    assert b"hunter2-0815" not in (await manager.store.load_checkpoint(manager.session_id) or b"")
