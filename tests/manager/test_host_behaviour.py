"""What hosts and loops do to a context manager (docs/kernel.md), one claim each. Cancellation: test_turns.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.managers import ask, feed, marks, new_manager
from tests.messages import Message, bare, rounds, shared_prefix, system, text, user, work

BUDGET = 4_000


async def test_another_system_message_takes_the_place_of_the_first_and_none_leaves_it() -> None:
    manager = await feed(new_manager(), [system("You are an agent."), *work(3)])
    known = marks(manager)
    rest = (await manager.get_messages())[1:]
    await manager.set_messages([system("You are another."), *rest])
    assert bare(await manager.get_messages()) == bare([system("You are another."), *rest])
    assert marks(manager)[1:] == known[1:]
    await manager.set_messages(rest)  # as hosts save a transcript
    assert bare(await manager.get_messages()) == bare([system("You are another."), *rest])


async def test_a_repair_after_the_checkpoint_leaves_the_checkpoint() -> None:
    manager = await feed(new_manager(), work(60))
    before = await ask(manager, BUDGET)
    compactions = (await manager.explain())["compactions"]
    talk = ConversationBuilder()
    talk.call(("look", {"at": "a"}), ids=["call_lost"])
    await feed(manager, [*talk.messages, {"role": "user", "content": "Go on."}])
    await ask(manager, BUDGET)
    repaired = await manager.get_messages()
    repaired.insert(-1, {"role": "tool", "tool_call_id": "call_lost", "content": "inserted by the host"})
    await manager.set_messages(repaired)
    after = await ask(manager, BUDGET)
    assert shared_prefix(before, after) == len(before)
    assert after[-2]["content"] == "inserted by the host"
    assert (await manager.explain())["compactions"] == compactions


async def test_what_comes_after_a_replay_or_has_another_time_is_new_even_when_it_repeats_the_last_message() -> None:
    parent = await feed(new_manager(), [*work(2), user("continue")])
    saved = await parent.get_messages()
    manager = new_manager()
    await manager.set_messages(saved)
    await feed(manager, saved)
    await manager.add_message(user("continue"))
    assert bare(await manager.get_messages()) == [*bare(saved), user("continue")]
    await manager.set_messages(await manager.get_messages())
    await manager.add_message(user("continue", metadata={"timestamp": "2031-01-01T00:00:00.000+00:00"}))
    assert len(await manager.get_messages()) == len(saved) + 2


async def edited(messages: list[Message], place: int, **changes: Any) -> ContextManager:
    """A manager whose host read the history, changed one message, and set it again."""
    manager = await feed(new_manager(), messages)
    history = await manager.get_messages()
    history[place].update(changes)
    await manager.set_messages(history)
    assert len(await manager.get_messages()) == len(messages)
    return manager


async def test_arguments_a_host_changed_are_an_edit() -> None:
    talk = ConversationBuilder("kernel").user("Log in.").round("login", {"password": "hunter2"}, "ok")
    calls = [{"id": "call_0001", "tool": "login", "arguments": {"password": "[redacted]"}}]
    content = [{"type": "tool_call", "id": "call_0001", "name": "login", "input": {"password": "[redacted]"}}]
    manager = await edited(talk.messages, 1, tool_calls=calls, content=content)
    assert "hunter2" not in text(await manager.get_messages())
    assert "hunter2" not in text(await ask(manager, BUDGET))


async def test_a_message_a_host_pins_is_pinned_from_then_on() -> None:
    manager = await edited(work(60), 4, metadata={"pinned": True})
    view = await ask(manager, 2_000)
    assert (await manager.get_messages())[4]["content"] in [message["content"] for message in view]


@pytest.mark.parametrize("change", ["edited", "inserted"])
async def test_the_newest_question_stays_where_an_older_one_was_edited(change: str) -> None:
    task, older, newest = (f"{text} {'word ' * 300}" for text in ("Read it.", "Why so slow?", "Which test holds that?"))
    manager = await feed(new_manager(), [user(task), *rounds(3), user(older), *rounds(3, start=4)])
    await feed(manager, [user(newest), *rounds(20, start=8, output=600)])
    messages = await manager.get_messages()
    contents = [message.get("content") for message in messages]
    if change == "edited":
        messages[contents.index(older)] |= {"content": f"{older} [redacted]"}
    else:
        messages.insert(contents.index(newest), user(f"What is new? {older}"))
    await manager.set_messages(messages)
    view = await ask(manager, 2_500)
    assert manager.compactor.compactions
    assert newest in [message["content"] for message in view]


@pytest.mark.parametrize("turns", range(8))
async def test_a_host_that_cancels_all_tasks_and_goes_on_can_add_again(turns: int) -> None:
    manager = new_manager()
    await manager.add_message(user("Begin."))
    adding = asyncio.create_task(manager.add_message(user("Go on.")))
    for _ in range(turns):
        await asyncio.sleep(0)
    cancelled = asyncio.all_tasks() - {asyncio.current_task()}
    for task in cancelled:
        task.cancel()
    await asyncio.gather(adding, *cancelled, return_exceptions=True)
    await asyncio.wait_for(manager.add_message(user("And on.")), 10)
    contents = [message["content"] for message in await manager.get_messages()]
    assert contents in (["Begin.", "And on."], ["Begin.", "Go on.", "And on."])
