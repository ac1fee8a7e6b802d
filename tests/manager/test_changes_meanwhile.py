"""Edits and erasures while a request is prepared or a compaction runs; what is erased is in memory no more."""

import asyncio
import gc
import sqlite3
import threading
import weakref
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
from amplifier_context_core.view import view as of_views
from amplifier_context_testing import check_request
from tests.embedders import Deterministic, searching
from tests.manager.measured import Counting, measure, settings
from tests.managers import ask, feed, new_manager
from tests.messages import Message, block, says, user, work

BUDGET = 4_000
SECRET = "SECRET-hunter2-SECRET"


def chat(turns: int, secret: int | None = None) -> list[Message]:
    """Turns of some 200 tokens, one of which may hold the secret."""
    asked = [f"{SECRET if number == secret else f'task {number}'} {'words ' * 60}" for number in range(turns)]
    return [message for one in asked for message in (user(one), says(f"done {'answer text ' * 60}"))]


EDITS: dict[str, Callable[[ContextManager], Coroutine[Any, Any, object]]] = {
    "forget": lambda manager: manager.forget(containing=SECRET),
    "clear": lambda manager: manager.clear(),
    "interrupt": lambda manager: manager.interrupt(),
}


def edit_while_rendering(patch: pytest.MonkeyPatch, manager: ContextManager, edit: str, above: int = 0) -> list[str]:
    """While a round with a message above so many tokens is rendered, another task edits the history, once."""
    rendered, edits = of_views.rendered_rounds, list[str]()

    async def slow(renderer: Any, rounds: Any) -> Any:
        done = await rendered(renderer, rounds)
        if not edits and any(entry.tokens > above for round_ in rounds for entry in round_.entries):
            edits.append(edit)
            await EDITS[edit](manager)
        return done

    patch.setattr(of_views, "rendered_rounds", slow)
    return edits


@pytest.mark.parametrize("edit", EDITS)
async def test_an_edit_while_rounds_are_rendered_is_not_mixed_into_the_checkpoint(
    edit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler adds a large message before a compaction, so that the view has to be selected again."""
    large = [says(f"big {'lorem ipsum dolor ' * 60_000}")]

    async def late(event: str, data: dict[str, Any]) -> HookResult:
        await feed(manager, [large.pop()] if large else [])
        return HookResult()

    hooks = HookRegistry()
    hooks.register(PRE_COMPACT, late, 0, name="late")
    manager = await feed(new_manager(hooks=hooks, max_tokens=8_000), chat(60, secret=58))
    edits = edit_while_rendering(monkeypatch, manager, edit, above=100_000)
    first = await manager.get_messages_for_request(8_000)
    assert edits
    await manager.add_message(user("next"))
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
    manager = await feed(new_manager(), [{"role": role, "content": f"The code is {SECRET}."}, *chat(3)])
    edits = edit_while_rendering(monkeypatch, manager, edit)
    assert SECRET not in str(await manager.get_messages_for_request(8_000))
    assert SECRET not in str(manager.compactor.last_sent)
    assert edits


async def inject(event: str, data: dict[str, Any]) -> HookResult:
    return HookResult(action="inject_context", context_injection=f"dwell on {SECRET}")


class QuotesFocus(FoldRounds):
    """Writes the focus in place of chapters, and lets a session erase it meanwhile."""

    forget: Callable[[], Coroutine[Any, Any, object]] | None = None
    loop: asyncio.AbstractEventLoop

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        assert threading.current_thread() is not threading.main_thread(), "the event loop waits for a compaction"

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
    async def request() -> None:
        if measured:
            result = await measure(manager, Counting())
            assert await result["transaction"].commit()
        else:
            await ask(manager, BUDGET)

    hooks, quotes = HookRegistry(), QuotesFocus()
    unregister = hooks.register(PRE_COMPACT, inject, 0, name="inject")
    manager = await feed(new_manager(hooks=hooks, strategies=[quotes], **settings()), work(60))
    await request()
    assert SECRET in str(await ask(manager, BUDGET)), "it is written into views"
    await manager.forget(containing=SECRET)
    quotes.loop = asyncio.get_running_loop()
    quotes.forget = lambda: manager.forget(containing=SECRET)
    await request()
    unregister()
    assert manager.compactor.directions.injected is None
    assert SECRET not in str(await ask(manager, BUDGET))
    await manager.close()
    assert SECRET.encode() not in (await manager.store.load_checkpoint(manager.session_id) or b"")


UNIQUE = "said-in-this-module-alone"


def holding(text: str) -> list[Entry]:
    """Entries of this process whose message has a text."""
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Entry) and text in str(one.message)]


@pytest.mark.digest
@pytest.mark.parametrize("make", [new_manager, lambda: searching(Deterministic())], ids=["words", "words and vectors"])
async def test_no_object_of_this_process_holds_a_message_that_was_forgotten(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index of words in memory is dropped, too."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*arguments: Any, **more: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **more))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    manager: ContextManager = make()
    await feed(manager, [user([block(f"the password is {UNIQUE}")]), says(), user([block("a goose")])])
    await ask(manager)
    assert (await manager.search(UNIQUE))[0] == "m1"
    assert len(holding(UNIQUE)) == len(opened) == 1
    await manager.forget(["m1"])
    await ask(manager)  # until then the request is known to which an answer may still come
    assert holding("a goose")
    assert holding(UNIQUE) == []
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


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
