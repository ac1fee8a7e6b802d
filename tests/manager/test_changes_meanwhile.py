"""Edits and erasures while a request is prepared or a compaction runs; what is erased is in memory no more."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core.compaction.checkpoint import Draft, Segment
from amplifier_context_core.compaction.strategies import FoldRounds, Goal
from amplifier_context_core.events import PRE_COMPACT
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.view import tail
from amplifier_context_core.view.plan import Plan
from amplifier_context_testing import check_request
from tests.embedders import Deterministic, searching
from tests.manager.measured import Counting, measure, settings
from tests.managers import Watch, ask, feed, new_manager
from tests.messages import block, call, result, rounds, says, user, work

BUDGET = 4_000
SECRET = "SECRET-hunter2-SECRET"


async def chat(manager: ContextManager, turns: int, **words: str) -> None:
    """Add turns of some 200 tokens; `words` are the text of the turn of that number (``m7="..."``)."""
    for n in range(turns):
        await manager.add_message({"role": "user", "content": f"{words.get(f'm{n}', f'task {n}')} {'words ' * 60}"})
        await manager.add_message({"role": "assistant", "content": f"done {n} {'answer text ' * 60}"})


async def test_a_compaction_is_committed_while_the_views_are_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = await feed(new_manager(), work(60))
    compactor, locked = manager.compactor, list[bool]()
    commit = compactor.commit

    def noted(plan: Plan) -> bool:
        if plan.result is not None:
            locked.append(compactor.lock._holder is not None)
        return commit(plan)

    monkeypatch.setattr(compactor, "commit", noted)
    await ask(manager, 4_000)
    await manager.compact()
    measured = await measure(await feed(manager, rounds(60, start=500)), Counting(limit=4_000))
    assert await measured["transaction"].commit()
    assert locked == [True] * len(locked)
    assert len(locked) >= 3


class LateHooks:
    """The first handler before a compaction adds a large message, so that the view has to be selected again."""

    manager: ContextManager | None = None

    async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
        if self.manager is not None and event == "context:pre_compact":
            manager, self.manager = self.manager, None
            await manager.add_message({"role": "assistant", "content": f"big {'lorem ipsum dolor ' * 60_000}"})
        return HookResult()


EDITS: dict[str, Callable[[ContextManager], Coroutine[Any, Any, object]]] = {
    "forget": lambda manager: manager.forget(containing=SECRET),
    "clear": lambda manager: manager.clear(),
    "interrupt": lambda manager: manager.interrupt(),
}


def edit_while_rendering(patch: pytest.MonkeyPatch, manager: ContextManager, edit: str, above: int = 0) -> list[str]:
    """While a round with a message above so many tokens is rendered, another task edits the history, once."""
    rendered, edits = tail.rendered_rounds, list[str]()

    async def slow(renderer: Any, rounds: Any) -> Any:
        done = await rendered(renderer, rounds)
        if not edits and any(entry.tokens > above for round_ in rounds for entry in round_.entries):
            edits.append(edit)
            await EDITS[edit](manager)
        return done

    patch.setattr(tail, "rendered_rounds", slow)
    return edits


@pytest.mark.parametrize("edit", EDITS)
async def test_an_edit_while_rounds_are_rendered_is_not_mixed_into_the_checkpoint(
    edit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = LateHooks()
    manager = new_manager(hooks=hooks, max_tokens=8_000)
    await chat(manager, 60, m58=SECRET)
    edits = edit_while_rendering(monkeypatch, manager, edit, above=100_000)
    hooks.manager = manager
    first = await manager.get_messages_for_request(8_000)
    assert edits
    await manager.add_message({"role": "user", "content": "next"})
    second = await manager.get_messages_for_request(8_000)
    assert check_request(second) == []
    await manager.close()
    if edit != "interrupt":
        assert SECRET not in f"{first} {second}"
        assert SECRET.encode() not in (await manager.store.load_checkpoint(manager.session_id) or b"")


@pytest.mark.parametrize(("role", "edit"), [("system", "forget"), ("user", "forget"), ("user", "clear")])
async def test_what_is_erased_while_rounds_are_rendered_is_not_sent(
    role: str, edit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = new_manager()
    await manager.add_message({"role": role, "content": f"The code is {SECRET}."})
    await chat(manager, 3)
    edits = edit_while_rendering(monkeypatch, manager, edit)
    assert SECRET not in str(await manager.get_messages_for_request(8_000))
    assert SECRET not in str(manager.compactor.last_sent)
    assert edits


async def test_calls_that_reuse_an_id_keep_their_ids_when_they_are_rendered_again() -> None:
    """The first user of the id is folded; both others are pinned, clipped for want of room, and shown whole again."""
    manager = new_manager(cadence="fixed")
    size = 10

    async def prompt() -> str:
        return "system " * size

    await manager.set_system_prompt_factory(prompt)

    async def calls(output: str) -> str:
        await feed(manager, [call("c2", path=output[:5]), result("c2", output)])
        return f"m{len(await manager.get_messages()) - 1}"

    await chat(manager, 1)
    await calls("first " * 20)
    await chat(manager, 3)
    second = await calls("second output " * 200)
    await chat(manager, 3)
    third = await calls("third output " * 200)
    await chat(manager, 3)
    await manager.get_messages_for_request(8_000)
    await manager.pin(second)
    await manager.pin(third)
    seen: set[tuple[str, ...]] = set()
    for step in range(10):
        await chat(manager, 3)
        size = {2: 3_600, 7: 10}.get(step, size)
        view = await manager.get_messages_for_request(8_000)
        ids = [one["id"] for message in view for one in message.get("tool_calls") or ()]
        assert max(Counter(ids).values()) == 1
        assert check_request(view) == []
        if step > 1:
            seen.add(tuple(ids))
    assert len(seen) == 1, "the ids of calls that stay in the view stay the same"


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
    assert manager.compactor.directions.injected is None
    assert "hunter2-0815" not in str(await ask(manager, BUDGET))
    await manager.close()
    assert b"hunter2-0815" not in (await manager.store.load_checkpoint(manager.session_id) or b"")


UNIQUE = "said-in-this-module-alone"


def holding(text: str) -> list[Entry]:
    """Entries of this process whose message has a text."""
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Entry) and text in str(one.message)]


@pytest.mark.digest
@pytest.mark.parametrize("make", [new_manager, lambda: searching(Deterministic())], ids=["words", "words and vectors"])
async def test_no_object_of_this_process_holds_a_message_that_was_forgotten(make: Any) -> None:
    manager: ContextManager = make()
    for message in (user([block(f"the password is {UNIQUE}")]), says(), user([block("a goose")])):
        await manager.add_message(message)
    await ask(manager)
    assert (await manager.search(UNIQUE))[0] == "m1"
    assert len(holding(UNIQUE)) == 1
    await manager.forget(["m1"])
    await ask(manager)  # until then the request is known to which an answer may still come
    assert holding("a goose")
    assert holding(UNIQUE) == []


@pytest.mark.digest
async def test_the_index_of_words_in_this_process_is_dropped_with_what_was_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*arguments: Any, **more: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **more))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    manager = new_manager()
    await manager.add_message(user(f"the password is {UNIQUE}"))
    assert await manager.search(UNIQUE) == ["m1"]
    await manager.forget(["m1"])
    (index,) = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        index.execute("SELECT 1")


async def test_a_manager_that_is_dropped_is_freed_with_its_last_reference() -> None:
    """Its views take much memory, and the garbage collector may come late."""
    manager = ContextManager(load_config({"token_counter": "heuristic"}))
    await ask(await feed(manager, work(20)), 4_000)
    await manager.close()
    parts = [weakref.ref(part) for part in (manager, manager.session, manager.compactor)]
    gc.disable()
    try:
        del manager
        assert [part() for part in parts] == [None] * 3
    finally:
        gc.enable()
