"""What hosts and loops do to a context manager (docs/kernel.md), one claim each. Cancellation: test_cancellation.py."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.managers import ask, feed, marks, new_manager
from tests.messages import Message, bare, rounds, shared_prefix, size, text, user, work

BUDGET = 4_000


# -- edits -------------------------------------------------------------------------------------------------------------


async def test_a_result_that_a_repair_inserts_is_in_the_middle_and_all_others_keep_their_marks() -> None:
    talk = ConversationBuilder().user("Look twice.")
    talk.call(("look", {"at": "a"}), ids=["call_lost"])
    talk.user("Go on.").say("Gone on.")
    manager = await feed(new_manager(), talk.messages)
    repaired = await manager.get_messages()
    repaired.insert(2, {"role": "tool", "tool_call_id": "call_lost", "content": "inserted by the host"})
    await manager.set_messages(repaired)
    assert marks(manager) == ["m1", "m2", "m5", "m3", "m4"]
    assert [entry.turn_id for entry in manager.snapshot()] == ["u1", "a1", "a1", "u2", "a2"]
    assert bare(await manager.get_messages()) == bare(repaired)
    view = await ask(manager, BUDGET)
    assert [message["role"] for message in view] == ["user", "assistant", "tool", "user", "assistant"]
    assert view[2]["content"] == "inserted by the host"


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


async def test_an_edit_with_a_message_that_cannot_be_stored_changes_nothing() -> None:
    manager = await feed(new_manager(), work(2))
    before, known = await manager.get_messages(), marks(manager)
    with pytest.raises(ValueError, match=r"messages\[5\]\.role"):
        await manager.set_messages([*before, {"role": "nobody", "content": "x"}])
    assert await manager.get_messages() == before
    assert marks(manager) == known


# -- replayed adds -----------------------------------------------------------------------------------------------------


async def test_what_comes_after_a_replay_is_new_even_when_it_repeats_the_last_message() -> None:
    parent = await feed(new_manager(), [*work(2), {"role": "user", "content": "continue"}])
    saved = await parent.get_messages()
    manager = new_manager()
    await manager.set_messages(saved)
    await feed(manager, saved)
    await manager.add_message({"role": "user", "content": "continue"})
    assert bare(await manager.get_messages()) == [*bare(saved), {"role": "user", "content": "continue"}]


async def test_an_equal_message_of_another_time_is_no_replay() -> None:
    manager = new_manager()
    await feed(manager, [{"role": "user", "content": "continue"}, {"role": "assistant", "content": "Done."}])
    await manager.set_messages(await manager.get_messages())
    later = {"role": "user", "content": "continue", "metadata": {"timestamp": "2031-01-01T00:00:00.000+00:00"}}
    await manager.add_message(later)
    assert len(await manager.get_messages()) == 3


# -- tool results ------------------------------------------------------------------------------------------------------


async def test_a_result_above_max_tool_result_bytes_is_cut_in_the_view_only() -> None:
    messages = work(1, output=50_000)
    manager = await feed(new_manager(max_tool_result_bytes=10_000), messages)
    view = await ask(manager, 100_000)
    assert len(view[-1]["content"]) <= 10_000
    assert view[-1]["content"].startswith(messages[-1]["content"][:1_000])
    assert view[-1]["content"].endswith(messages[-1]["content"][-1_000:])
    assert "m3" in view[-1]["content"]
    assert bare(await manager.get_messages()) == messages


async def test_a_cleared_session_is_as_good_as_new() -> None:
    manager = await feed(new_manager(), work(60))
    await ask(manager, BUDGET)
    await manager.clear()
    assert await manager.get_messages() == []
    assert manager.turn_count == 0
    await feed(manager, [{"role": "user", "content": "Something new."}])
    view = await ask(manager, BUDGET)
    assert view == [{"role": "user", "content": "Something new."}]
    assert size(view) == (await manager.explain())["view"]["counted"]


# -- what counts as an edit --------------------------------------------------------------------------------------------


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


async def test_a_row_a_host_retires_is_left_out_from_then_on() -> None:
    active = {"amplifier:instruction": {"id": "i1", "disposition": "active"}}
    retired = {"amplifier:instruction": {"id": "i1", "disposition": "retired"}}
    messages = [*work(1), {"role": "user", "content": "Answer in Dutch.", "metadata": active}]
    manager = await edited(messages, 3, metadata=retired)
    assert "Dutch" not in text(await ask(manager, BUDGET))


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
