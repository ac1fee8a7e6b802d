"""A request walks once through the modules of a view; a compaction leaves a value and not a trace."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core.compaction.checkpoint import Draft, Segment
from amplifier_context_core.compaction.strategies import FoldRounds, Goal
from amplifier_context_core.events import PRE_COMPACT
from tests.manager.measured import Counting, measure, settings
from tests.managers import Watch, ask, feed, new_manager
from tests.messages import work

BUDGET = 4_000


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


class NotesThread(FoldRounds):
    """Notes the thread of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        self.threads.append(threading.get_ident())
        return super().apply(draft, goal)


async def test_the_strategies_of_a_compaction_run_in_one_thread_beside_the_event_loop() -> None:
    before, after = NotesThread(), NotesThread()
    manager = new_manager(strategies=[before, after])
    await feed(manager, work(60))
    await ask(manager, BUDGET)
    assert manager.compactor.compactions == 1
    assert len({*before.threads, *after.threads}) == 1
    assert threading.get_ident() not in before.threads


class QuotesFocus(FoldRounds):
    """Writes the focus in place of chapters, and lets a session erase it meanwhile."""

    forget: Callable[[], Coroutine[Any, Any, object]] | None = None
    loop: asyncio.AbstractEventLoop

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        def quoted(segment: Segment) -> Segment:
            if segment.chapter is None or not goal.focus:
                return segment
            message = {**segment.shown[0].message, "content": goal.focus}
            shown = segment.shown[0].with_message(message, goal.counter)
            return replace(segment, shown=(shown,), tokens=shown.tokens)

        if self.forget is not None and goal.focus:
            asyncio.run_coroutine_threadsafe(self.forget(), self.loop).result()
        folded = super().apply(draft, goal)
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
    quotes.loop = asyncio.get_running_loop()
    quotes.forget = lambda: manager.forget(containing="hunter2-0815")
    await request()
    unregister()
    assert manager.compactor.injected is None
    assert "hunter2-0815" not in str(await ask(manager, BUDGET))
    await manager.close()
    assert b"hunter2-0815" not in (await manager.store.load_checkpoint(manager.session_id) or b"")
