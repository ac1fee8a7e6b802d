"""A turn is cancelled: the event comes twice, loops may still add to it, and the config decides what becomes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from amplifier_core.testing import MockCoordinator

from amplifier_context_core import ContextManager
from amplifier_context_core.kernel import mount_manager
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.managers import ask, feed, new_manager
from tests.messages import Message, bare, rounds, text, work

BUDGET = 4_000
INTERRUPTED = "[interrupted"

Emit = Callable[[str], Awaitable[Any]]


async def mounted(on_interrupt: str) -> tuple[ContextManager, Emit]:
    """A manager in a session, and its session's events."""
    manager = new_manager(on_interrupt=on_interrupt)
    coordinator = MockCoordinator()
    await mount_manager(coordinator, manager, "context-test")

    async def emit(event: str) -> None:
        await coordinator.hooks.emit(event, {})

    return manager, emit


def open_turn() -> list[Message]:
    """A turn with a finished round and one whose second call is still open."""
    talk = ConversationBuilder().user("Run everything.").round("run", {"suite": "fast"}, "fast: passed")
    one, _ = talk.call(("run", {"suite": "slow"}), ("run", {"suite": "huge"}))
    return talk.result(one, "slow: passed").messages


CLOSING = {"role": "assistant", "content": "The turn was cancelled."}
NEXT = {"role": "user", "content": "Only the fast suite."}


DONE = [*work(2), {"role": "assistant", "content": "Done."}]


async def cancel(manager: ContextManager, emit: Emit, *, closing: bool = False) -> None:
    """What a loop and the kernel do: the loop reports, may close, completes; the kernel reports once more."""
    await emit("cancel:completed")
    if closing:
        await manager.add_message(CLOSING)
    await emit("orchestrator:complete")
    await emit("cancel:completed")


@pytest.mark.parametrize("closing", [False, True], ids=["silent", "closing message"])
@pytest.mark.parametrize("policy", ["keep", "repair"])
async def test_keep_and_repair_leave_the_cancelled_turn_and_repair_answers_its_calls_in_the_view(
    policy: str, closing: bool
) -> None:
    manager, emit = await mounted(policy)
    await feed(manager, open_turn())
    await cancel(manager, emit, closing=closing)
    await manager.add_message(NEXT)
    assert bare(await manager.get_messages()) == [*open_turn(), *([CLOSING] if closing else []), NEXT]
    view = await ask(manager, BUDGET)
    answered = [m["content"].startswith(INTERRUPTED) for m in view if m["role"] == "tool"]
    assert answered == [False, False, policy == "repair"]


@pytest.mark.parametrize(
    "reports",
    [
        ["cancel:completed", "orchestrator:complete", "cancel:completed"],
        ["cancel:completed", CLOSING, "orchestrator:complete", "cancel:completed"],
        ["cancel:completed"],
        ["orchestrator:complete", "cancel:completed"],  # an immediate one ends the loop by an exception
    ],
    ids=["silent", "closing message", "never completed", "the kernel alone, and last"],
)
async def test_discard_takes_the_cancelled_turn_out_closing_message_and_all_and_no_other(reports: list[Any]) -> None:
    manager, emit = await mounted("discard")
    history = [*DONE]
    await feed(manager, history)
    for _ in range(2):
        await feed(manager, open_turn())
        for report in reports:
            await (emit(report) if isinstance(report, str) else manager.add_message(report))
        await manager.add_message(NEXT)
        await manager.add_message(DONE[-1])
        await emit("orchestrator:complete")
        history += [NEXT, DONE[-1]]
        assert bare(await manager.get_messages()) == history
    await ask(manager, BUDGET)


async def test_a_cancellation_before_the_prompt_was_stored_takes_no_finished_turn_out() -> None:
    manager, emit = await mounted("discard")
    await feed(manager, DONE)
    await emit("orchestrator:complete")
    await emit("prompt:submit")
    await emit("cancel:completed")  # before the loop stored the prompt
    await emit("cancel:completed")
    await manager.add_message(NEXT)
    assert bare(await manager.get_messages()) == [*DONE, NEXT]


async def test_the_next_turns_open_calls_are_not_called_interrupted() -> None:
    manager, emit = await mounted("repair")
    await feed(manager, open_turn())
    await cancel(manager, emit)
    await feed(manager, [NEXT, *rounds(1, start=70)[:1], {"role": "user", "content": "Well?"}])
    view = await ask(manager, BUDGET)
    assert [m["content"].startswith(INTERRUPTED) for m in view if m["role"] == "tool"] == [False, False, True, False]


async def test_a_turn_taken_out_after_its_cancellation_leaves_no_trace_on_the_next() -> None:
    manager, emit = await mounted("repair")
    await feed(manager, [*DONE, *open_turn()])
    await cancel(manager, emit)
    await manager.interrupt()
    await feed(manager, [NEXT, *rounds(1, start=70)[:1], {"role": "user", "content": "Well?"}])
    assert INTERRUPTED not in text(await ask(manager, BUDGET))


async def test_late_results_of_a_cancelled_turn_still_find_their_calls() -> None:
    manager, emit = await mounted("repair")
    await feed(manager, open_turn())
    await cancel(manager, emit)
    await feed(manager, [NEXT, {"role": "tool", "tool_call_id": "call_0003", "content": "huge: passed"}])
    view = await ask(manager, BUDGET)
    assert [m["content"] for m in view if m["role"] == "tool"] == ["fast: passed", "slow: passed", "huge: passed"]
