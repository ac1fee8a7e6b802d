"""What hosts and loops do to a context manager (docs/kernel.md), one claim each. Cancellation: test_cancellation.py."""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.messages.usage import Response
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder
from tests.manager.support import (
    Counter,
    Message,
    ask,
    bare,
    feed,
    marks,
    new_manager,
    rounds,
    session,
    shared_prefix,
    size,
    text,
    work,
)

BUDGET = 4_000


class Provider:
    """What a manager asks of a provider, as far as it must be known here."""

    def __init__(self, name: str) -> None:
        self.name = name


def as_saved(messages: Iterable[Message]) -> list[Message]:
    """What a host makes of a transcript on its way to disk: no instructions, no null keys, no thinking."""
    saved: list[Message] = []
    for message in messages:
        if message["role"] in ("system", "developer"):
            continue
        kept = {key: value for key, value in message.items() if value is not None and key != "thinking_block"}
        if isinstance(kept.get("content"), list):
            kept["content"] = [
                {key: value for key, value in block.items() if value is not None}
                for block in kept["content"]
                if block.get("type") not in ("thinking", "redacted_thinking")
            ]
        saved.append(kept)
    return deepcopy(saved)


def kernel_session() -> list[Message]:
    """What Amplifier's streaming loop stores: thinking, blocks beside calls, a hook's message among the results."""
    talk = ConversationBuilder("kernel").system("You are an agent.").user("Explore.")
    for number in range(4):
        (made,) = talk.call(("look", {"at": f"place_{number}"}), text=f"Looking at place {number}.")
        thought = {"type": "thinking", "thinking": f"Step {number}.", "signature": f"c2ln{number}", "visibility": None}
        talk.messages[-1]["content"].insert(0, thought)
        talk.messages[-1]["thinking_block"] = dict(thought)
        talk.system(f"note {number}", metadata={"source": "hook", "hook_name": "notes", "event": "tool:post"})
        talk.result(made, f"place {number} is empty", name="look")
    return talk.say([{"type": "text", "text": "Nothing there.", "visibility": None}]).user("Thanks.").messages


# --- echoes -----------------------------------------------------------------------------------------------------------


async def test_an_exact_echo_changes_nothing() -> None:
    manager = await feed(new_manager(), kernel_session())
    before, known = await manager.get_messages(), marks(manager)
    await manager.set_messages(before)
    assert await manager.get_messages() == before
    assert marks(manager) == known


async def test_a_filtered_echo_keeps_our_own_fuller_history() -> None:
    manager = await feed(new_manager(), kernel_session())
    before, known = await manager.get_messages(), marks(manager)
    await manager.set_messages(as_saved(before))
    assert await manager.get_messages() == before
    assert marks(manager) == known


async def test_a_filtered_echo_leaves_the_view_byte_identical() -> None:
    manager = await feed(new_manager(), session(120))
    before = await ask(manager, BUDGET)
    await manager.set_messages(as_saved(await manager.get_messages()))
    assert text(await ask(manager, BUDGET)) == text(before)
    assert (await manager.explain())["compactions"] == 1


async def test_an_echo_given_twice_the_second_time_with_its_system_message_doubles_nothing() -> None:
    manager = await feed(new_manager(), kernel_session())
    before, known = await manager.get_messages(), marks(manager)
    saved = as_saved(before)
    await manager.set_messages(saved)
    await manager.set_messages([before[0], *saved])
    assert await manager.get_messages() == before
    assert marks(manager) == known


async def test_a_resumed_session_takes_a_system_message_put_before_what_it_has() -> None:
    saved = as_saved(kernel_session())
    manager = new_manager()
    await manager.set_messages(saved)
    known = marks(manager)
    await manager.set_messages([{"role": "system", "content": "You are an agent."}, *saved])
    history = await manager.get_messages()
    assert bare(history) == [{"role": "system", "content": "You are an agent."}, *bare(saved)]
    assert marks(manager)[1:] == known


async def test_another_system_message_takes_the_place_of_the_first() -> None:
    manager = await feed(new_manager(), kernel_session())
    known = marks(manager)
    rest = (await manager.get_messages())[1:]
    await manager.set_messages([{"role": "system", "content": "You are another agent."}, *rest])
    history = await manager.get_messages()
    assert history[0]["content"] == "You are another agent."
    assert "You are an agent." not in text(history)
    assert marks(manager)[1:] == known[1:]


async def test_an_echo_of_a_saved_transcript_in_a_new_session_is_its_history() -> None:
    saved = as_saved(kernel_session())
    manager = new_manager()
    await manager.set_messages(saved)
    assert bare(await manager.get_messages()) == bare(saved)
    await ask(manager, BUDGET)


# --- edits ------------------------------------------------------------------------------------------------------------


async def test_a_result_that_a_repair_inserts_is_in_the_middle_and_all_others_keep_their_marks() -> None:
    talk = ConversationBuilder().user("Look twice.")
    talk.call(("look", {"at": "a"}), ids=["call_lost"])
    talk.user("Go on.").say("Gone on.")
    manager = await feed(new_manager(), talk.messages)
    mended = await manager.get_messages()
    mended.insert(2, {"role": "tool", "tool_call_id": "call_lost", "content": "mended by the host"})
    await manager.set_messages(mended)
    assert marks(manager) == ["m1", "m2", "m5", "m3", "m4"]
    assert bare(await manager.get_messages()) == bare(mended)
    view = await ask(manager, BUDGET)
    assert [message["role"] for message in view] == ["user", "assistant", "tool", "user", "assistant"]
    assert view[2]["content"] == "mended by the host"


async def test_a_repair_after_the_checkpoint_leaves_the_checkpoint() -> None:
    manager = await feed(new_manager(), work(60))
    before = await ask(manager, BUDGET)
    compactions = (await manager.explain())["compactions"]
    talk = ConversationBuilder()
    talk.call(("look", {"at": "a"}), ids=["call_lost"])
    await feed(manager, [*talk.messages, {"role": "user", "content": "Go on."}])
    await ask(manager, BUDGET)
    mended = await manager.get_messages()
    mended.insert(-1, {"role": "tool", "tool_call_id": "call_lost", "content": "mended by the host"})
    await manager.set_messages(mended)
    after = await ask(manager, BUDGET)
    assert shared_prefix(before, after) == len(before)
    assert after[-2]["content"] == "mended by the host"
    assert (await manager.explain())["compactions"] == compactions


async def test_an_edit_before_the_checkpoint_is_seen_at_once() -> None:
    manager = await feed(new_manager(), work(60, task="Paint the house red."))
    assert "red" in text(await ask(manager, BUDGET))
    edited = await manager.get_messages()
    edited[0]["content"] = "Paint the house green."
    await manager.set_messages(edited)
    view = await ask(manager, BUDGET)
    assert view[0]["content"] == "Paint the house green."
    assert "Paint the house red" not in text(view)
    assert len(await manager.get_messages()) == 121


async def test_what_an_edit_takes_out_is_no_longer_shown() -> None:
    manager = await feed(new_manager(), [*work(2), {"role": "user", "content": "my password is hunter2"}])
    kept = (await manager.get_messages())[:-1]
    await manager.set_messages(kept)
    assert await manager.get_messages() == kept
    assert "hunter2" not in text(await ask(manager, BUDGET))


async def test_marks_of_what_an_edit_took_out_are_never_given_again() -> None:
    manager = await feed(new_manager(), work(2))
    await manager.set_messages((await manager.get_messages())[:3])
    await feed(manager, rounds(1, start=9))
    assert marks(manager) == ["m1", "m2", "m3", "m6", "m7"]


async def test_an_edit_with_a_message_that_cannot_be_stored_changes_nothing() -> None:
    manager = await feed(new_manager(), work(2))
    before, known = await manager.get_messages(), marks(manager)
    with pytest.raises(ValueError, match=r"messages\[5\]\.role"):
        await manager.set_messages([*before, {"role": "nobody", "content": "x"}])
    assert await manager.get_messages() == before
    assert marks(manager) == known


async def test_messages_added_behind_an_echo_are_additions() -> None:
    manager = await feed(new_manager(), work(60))
    before = await ask(manager, BUDGET)
    grown = [*(await manager.get_messages()), {"role": "assistant", "content": "Done."}]
    await manager.set_messages(grown)
    after = await ask(manager, BUDGET)
    assert shared_prefix(before, after) == len(before)
    assert after[-1]["content"] == "Done."


# --- replayed adds ----------------------------------------------------------------------------------------------------


async def test_a_transcript_replayed_into_an_empty_session_is_stored_as_it_is() -> None:
    parent = await feed(new_manager(), kernel_session())
    saved = await parent.get_messages()
    child = await feed(new_manager(), saved)
    assert await child.get_messages() == saved


async def test_a_transcript_replayed_over_what_is_there_doubles_nothing() -> None:
    parent = await feed(new_manager(), kernel_session())
    saved = await parent.get_messages()
    manager = new_manager()
    await manager.set_messages(saved)
    known = marks(manager)
    await feed(manager, as_saved(saved))
    assert await manager.get_messages() == saved
    assert marks(manager) == known


async def test_a_new_continue_equal_to_an_old_one_is_kept() -> None:
    manager = new_manager()
    await feed(manager, [{"role": "user", "content": "continue"}, {"role": "assistant", "content": "Done."}])
    await manager.set_messages(await manager.get_messages())
    await manager.add_message({"role": "user", "content": "continue"})
    assert [message["content"] for message in await manager.get_messages()] == ["continue", "Done.", "continue"]


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


# --- spawned children -------------------------------------------------------------------------------------------------


async def test_a_child_with_its_parents_history_starts_from_its_parents_checkpoint() -> None:
    parent = await feed(new_manager(session_id="parent"), work(80))
    before = await ask(parent, BUDGET)
    child = new_manager(session_id="child")
    await child.set_messages(await parent.get_messages())
    view = await ask(child, BUDGET)
    assert text(view) == text(before)
    assert (await child.explain())["compactions"] == 0


async def test_a_child_counts_again_nothing_its_parents_checkpoint_covers() -> None:
    counter = Counter()
    parent = await feed(new_manager(counter=counter, session_id="parent"), work(80))
    await ask(parent, BUDGET)
    counted = counter.characters
    covered = int((await parent.explain())["view"]["checkpoint"][1:])
    history = await parent.get_messages()
    counter.characters = 0
    child = new_manager(counter=counter, session_id="child")
    await child.set_messages(history)
    await ask(child, BUDGET)
    behind = sum(len(text([message])) for message in history[covered:])
    assert covered > 100
    assert counter.characters <= behind + 200 < counted / 3


async def test_a_child_keeps_the_marks_its_parents_chapters_name() -> None:
    parent = await feed(new_manager(session_id="parent"), work(80))
    await ask(parent, BUDGET)
    child = new_manager(session_id="child")
    await child.set_messages(await parent.get_messages())
    named = set(re.findall(r"\bm\d+\b", text(await ask(child, BUDGET))))
    assert named
    for mark in named:
        assert await child.recall(mark) == await parent.recall(mark)


async def test_a_child_that_goes_its_own_way_leaves_its_parent_alone() -> None:
    parent = await feed(new_manager(session_id="parent"), work(80))
    before, view = await parent.get_messages(), await ask(parent, BUDGET)
    child = new_manager(session_id="child")
    await child.set_messages(before)
    await feed(child, [{"role": "user", "content": "Only the child hears this."}, *rounds(40, start=500)])
    await ask(child, BUDGET)
    assert await parent.get_messages() == before
    assert text(await ask(parent, BUDGET)) == text(view)


async def test_a_checkpoint_of_another_history_is_not_found() -> None:
    parent = await feed(new_manager(session_id="parent"), work(80))
    await ask(parent, BUDGET)
    other = await parent.get_messages()
    other[0]["content"] = "Do something else."
    child = new_manager(session_id="child")
    await child.set_messages(other)
    view = await ask(child, BUDGET)
    assert view[0]["content"] == "Do something else."
    assert (await child.explain())["compactions"] == 1


# --- what hooks store -------------------------------------------------------------------------------------------------


def notice(content: str, hook: str = "lint") -> Message:
    """What the streaming loop stores when a hook injects on ``tool:post``."""
    metadata = {"source": "hook", "hook_name": hook, "event": "tool:post", "persisted": True}
    return {"role": "system", "content": content, "metadata": metadata}


async def test_a_hooks_message_between_calls_and_results_is_placed_after_the_results() -> None:
    talk = ConversationBuilder("kernel").user("Edit two files.")
    one, two = talk.call(("edit", {"path": "a"}), ("edit", {"path": "b"}))
    talk.messages.append(notice("lint: 2 notes"))
    talk.result(one, "edited a").result(two, "edited b").say("Done.")
    view = await ask(await feed(new_manager(), talk.messages), BUDGET)
    assert [message["role"] for message in view] == ["user", "assistant", "tool", "tool", "system", "assistant"]


async def test_after_a_compaction_only_the_newest_message_of_each_hook_is_left() -> None:
    messages: list[Message] = [{"role": "user", "content": "Edit many files."}]
    for number in range(60):
        call, result = rounds(1, start=number)
        messages += [call, notice(f"lint run {number}."), notice(f"todo list {number}.", "todo"), result]
    manager = await feed(new_manager(), messages)
    view = await ask(manager, BUDGET)
    shown = [m["content"] for m in view if m["role"] == "system"]
    assert [content for content in shown if content.startswith("lint")] == ["lint run 59."]
    assert [content for content in shown if content.startswith("todo")] == ["todo list 59."]


async def test_a_later_system_message_is_an_ordinary_entry_not_the_system_prompt() -> None:
    messages = [{"role": "system", "content": "Prompt."}, *work(3), notice("lint: one note"), *rounds(1, start=50)]
    view = await ask(await feed(new_manager(), messages), BUDGET)
    assert [m["content"] for m in view if m["role"] == "system"] == ["Prompt.", "lint: one note"]
    assert view[0]["content"] == "Prompt."
    assert view[1]["role"] == "user"


# --- rows that are history, never request -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata",
    [
        {"amplifier:instruction": {"id": "i1", "disposition": "retired"}},
        {"amplifier:instruction": {"id": "i1", "disposition": "anchor_pruned"}},
        {"amplifier_public_reference_only": True},
    ],
    ids=["retired", "pruned", "reference only"],
)
@pytest.mark.parametrize("place", [0, 1, 3], ids=["leading", "after the task", "last"])
async def test_a_retired_row_is_kept_in_history_and_left_out_of_views(metadata: dict[str, Any], place: int) -> None:
    row = {"role": "developer" if place == 0 else "user", "content": "Answer in French.", "metadata": metadata}
    messages = work(1)
    messages.insert(place, row)
    manager = await feed(new_manager(), messages)
    assert bare(await manager.get_messages()) == messages
    assert "French" not in text(await ask(manager, BUDGET))


async def test_a_retired_row_is_left_out_of_chapters_as_well() -> None:
    retired = {"amplifier:instruction": {"id": "i1", "disposition": "retired"}}
    messages = work(60)
    messages.insert(3, {"role": "user", "content": "Answer in French.", "metadata": retired})
    messages.insert(1, {"role": "developer", "content": "Answer in Dutch.", "metadata": retired})
    manager = await feed(new_manager(), messages)
    view = await ask(manager, BUDGET)
    assert len(view) < len(messages)
    assert "French" not in text(view)
    assert "Dutch" not in text(view)


async def test_an_active_instruction_row_is_shown() -> None:
    active = {"amplifier:instruction": {"id": "i1", "disposition": "active"}}
    messages = [*work(1), {"role": "developer", "content": "Answer in Dutch.", "metadata": active}]
    assert "Dutch" in text(await ask(await feed(new_manager(), messages), BUDGET))


# --- provider state in metadata ---------------------------------------------------------------------------------------


def answered(number: int, response: str) -> list[Message]:
    """A round whose assistant message bears a response id."""
    call, result = rounds(1, start=number)
    return [{**call, "metadata": {"openai:response_id": response, "openai:kept": number}}, result]


def response_ids(view: Iterable[Message]) -> list[str]:
    return [m["metadata"]["openai:response_id"] for m in view if "openai:response_id" in (m.get("metadata") or {})]


async def test_a_compaction_takes_response_ids_from_every_message_before_it() -> None:
    messages = [{"role": "user", "content": "Do it."}]
    messages += [message for number in range(60) for message in answered(number, f"resp_{number}")]
    manager = await feed(new_manager(), messages)
    before = await manager.get_messages()
    view = await ask(manager, BUDGET)
    assert len(view) < len(messages)
    assert view[-2]["tool_calls"]  # a message no strategy touched
    assert response_ids(view) == []
    assert view[-2]["metadata"] == {"openai:kept": 59}
    assert await manager.get_messages() == before


async def test_response_ids_after_the_compaction_stay() -> None:
    messages = [{"role": "user", "content": "Do it."}]
    messages += [message for number in range(60) for message in answered(number, f"resp_{number}")]
    manager = await feed(new_manager(), messages)
    await ask(manager, BUDGET)
    await feed(manager, answered(100, "resp_100"))
    assert response_ids(await ask(manager, BUDGET)) == ["resp_100"]


async def test_without_a_compaction_response_ids_stay() -> None:
    manager = await feed(new_manager(), [{"role": "user", "content": "Do it."}, *answered(1, "r1"), *answered(2, "r2")])
    assert response_ids(await ask(manager, BUDGET)) == ["r1", "r2"]


async def test_a_call_open_at_the_compaction_loses_its_response_id_too() -> None:
    messages = [*work(60), *answered(100, "resp_100")[:1]]
    manager = await feed(new_manager(), messages)
    view = await ask(manager, BUDGET)
    assert len(view) < len(messages)
    assert response_ids(view) == []
    await feed(manager, answered(100, "resp_100")[1:])
    assert response_ids(await ask(manager, BUDGET)) == []


async def test_a_message_with_loaded_tool_state_is_never_dropped() -> None:
    state = {"openai:tool_search_items": [{"type": "tool_search_output", "tools": [{"name": "send_mail"}]}]}
    call, result = rounds(1, start=999)
    messages = [*work(3), {**call, "metadata": state}, result, *rounds(200, start=10)]
    manager = await feed(new_manager(), messages[:5])
    for place in range(5, len(messages), 10):
        await feed(manager, messages[place : place + 10])
        view = await ask(manager, 1_500)
        assert [m for m in view if (m.get("metadata") or {}).get("openai:tool_search_items")] != []


def thought(signature: str, model: str, provider: str) -> Message:
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": signature}, {"type": "text", "text": "Yes."}]
    return {"role": "assistant", "content": blocks, "metadata": {"model": model, "provider": provider}}


async def test_signed_thinking_stays_for_the_provider_that_signed_it() -> None:
    manager = await feed(new_manager(), [{"role": "user", "content": "Well?"}])
    await ask(manager, None, Provider("anthropic"))
    await feed(manager, [thought("c2ln", "c-1", "anthropic")])
    assert "c2ln" in text(await ask(manager, None, Provider("anthropic")))


async def test_signed_thinking_goes_when_the_provider_changes_and_comes_back_with_it() -> None:
    manager = await feed(new_manager(), [{"role": "user", "content": "Well?"}])
    await ask(manager, None, Provider("anthropic"))
    await feed(manager, [thought("c2lnQQ", "c-1", "anthropic"), {"role": "user", "content": "Sure?"}])
    view = await ask(manager, None, Provider("openai"))
    assert "c2lnQQ" not in text(view)
    assert view[1]["content"] == [{"type": "text", "text": "Yes."}]
    assert "c2lnQQ" in text(await ask(manager, None, Provider("anthropic")))


async def test_the_provider_of_a_response_is_known_from_its_event() -> None:
    manager = await feed(new_manager(), [{"role": "user", "content": "Well?"}])
    await ask(manager, None, Provider("anthropic"))
    manager.on_response(Response("c-1", "anthropic", None, "stop"))
    message = thought("c2lnQQ", "c-1", "anthropic")
    del message["metadata"]
    await feed(manager, [message, {"role": "user", "content": "Sure?"}])
    assert "c2lnQQ" not in text(await ask(manager, None, Provider("openai")))


async def test_the_streaming_loops_copy_of_foreign_thinking_goes_too() -> None:
    message = {**thought("c2lnQQ", "c-1", "anthropic"), "thinking_block": {"type": "thinking", "signature": "c2lnQQ"}}
    manager = await feed(new_manager(), [{"role": "user", "content": "Well?"}, message])
    await feed(manager, [{"role": "user", "content": "Sure?"}])
    assert "c2lnQQ" not in text(await ask(manager, None, Provider("openai")))


async def test_metadata_of_what_stays_is_never_dropped() -> None:
    state = {"openai:reasoning_items": ["rs_1"], "custom": {"nested": [1, 2]}}
    messages = [{"role": "user", "content": "Go.", "metadata": dict(state)}, *rounds(2)]
    messages[1]["metadata"] = dict(state)
    view = await ask(await feed(new_manager(), messages), BUDGET)
    assert view[0]["metadata"] == view[1]["metadata"] == state


# --- timestamps -------------------------------------------------------------------------------------------------------


async def test_a_message_without_a_timestamp_gets_one_in_iso_8601_utc_with_milliseconds() -> None:
    manager = await feed(new_manager(), work(1))
    for message in await manager.get_messages():
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", message["metadata"]["timestamp"])


async def test_a_timestamp_a_message_brings_is_kept() -> None:
    manager = new_manager()
    stamp = "2024-02-29T12:00:00.000+00:00"
    await manager.add_message({"role": "user", "content": "Hi.", "metadata": {"timestamp": stamp, "more": 1}})
    assert (await manager.get_messages())[0]["metadata"] == {"timestamp": stamp, "more": 1}


async def test_a_timestamp_at_the_top_of_a_message_counts_as_its_timestamp() -> None:
    manager = new_manager()
    await manager.add_message({"role": "user", "content": "Hi.", "timestamp": "2024-02-29T12:00:00.000+00:00"})
    assert await manager.get_messages() == [
        {"role": "user", "content": "Hi.", "timestamp": "2024-02-29T12:00:00.000+00:00"}
    ]
    assert manager.snapshot()[0].created == "2024-02-29T12:00:00.000+00:00"


async def test_timestamps_are_never_sent() -> None:
    messages = [*work(2), {"role": "user", "content": "Hi.", "timestamp": "2024-02-29T12:00:00.000+00:00"}]
    view = await ask(await feed(new_manager(), messages), BUDGET)
    assert "timestamp" not in text(view)
    assert all("metadata" not in message for message in view)


async def test_a_stored_timestamp_never_changes() -> None:
    manager = await feed(new_manager(), work(40))
    before = [message["metadata"]["timestamp"] for message in await manager.get_messages()]
    await ask(manager, 2_000)
    changed = await manager.get_messages()
    for message in changed:
        message["metadata"]["timestamp"] = "2031-01-01T00:00:00.000+00:00"
    await manager.set_messages(changed)
    await manager.compact()
    assert [message["metadata"]["timestamp"] for message in await manager.get_messages()] == before


# --- what is human ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "injected",
    [
        {"role": "user", "content": "Half of the budget is used.", "metadata": {"ephemeral": True}},
        {"role": "user", "content": "A hook says so.", "metadata": {"source": "hook"}},
        {"role": "user", "content": "Older parts were folded.", "metadata": {"source": "context-compaction"}},
        {"role": "user", "content": "<system-reminder>Three todos.</system-reminder>"},
    ],
    ids=["ephemeral", "hook", "compaction", "reminder"],
)
async def test_an_injected_user_message_is_no_task_no_turn_and_not_the_newest_human_message(injected: Message) -> None:
    messages = [injected, {"role": "user", "content": "THE TASK"}, *rounds(60), deepcopy(injected)]
    manager = await feed(new_manager(), messages)
    view = await ask(manager, 2_000)
    report = await manager.explain()
    assert manager.turn_count == 1
    assert {member["why"]: member["mark"] for member in report["floor"]["members"]}["task"] == "m2"
    assert any(message["content"] == "THE TASK" for message in view)


async def test_text_beside_a_reminder_is_human() -> None:
    manager = new_manager()
    await manager.add_message({"role": "user", "content": "<system-reminder>x</system-reminder> Add a title."})
    assert manager.turn_count == 1


async def test_user_messages_that_only_carry_results_begin_no_turn() -> None:
    talk = ConversationBuilder("anthropic").user("Fix the tests.").work(3, "tests").say("Fixed.")
    manager = await feed(new_manager(), talk.messages)
    assert manager.turn_count == 1


# --- tool results -----------------------------------------------------------------------------------------------------


async def test_a_result_above_max_tool_result_bytes_is_cut_in_the_view_only() -> None:
    messages = work(1, output=50_000)
    manager = await feed(new_manager(max_tool_result_bytes=10_000), messages)
    view = await ask(manager, 100_000)
    assert len(view[-1]["content"]) <= 10_000
    assert view[-1]["content"].startswith(messages[-1]["content"][:1_000])
    assert view[-1]["content"].endswith(messages[-1]["content"][-1_000:])
    assert "m3" in view[-1]["content"]
    assert bare(await manager.get_messages()) == messages


async def test_max_tool_result_bytes_counts_bytes_not_characters() -> None:
    talk = ConversationBuilder().user("Read it.").round("read", {}, "資料" * 20_000)
    view = await ask(await feed(new_manager(max_tool_result_bytes=10_000), talk.messages), 1_000_000)
    assert len(view[-1]["content"].encode()) <= 10_000


async def test_a_result_at_the_limit_is_not_cut() -> None:
    messages = work(1, output=10_000)
    view = await ask(await feed(new_manager(max_tool_result_bytes=10_000), messages), 100_000)
    assert view[-1]["content"] == messages[-1]["content"]


async def test_reading_the_history_again_and_again_gives_equal_lists() -> None:
    manager = await feed(new_manager(), work(3))
    one, two = await manager.get_messages(), await manager.get_messages()
    assert one == two
    assert one is not two


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


def test_a_manager_has_what_hosts_call() -> None:
    for method in ("add_message", "get_messages_for_request", "get_messages", "set_messages", "clear"):
        assert callable(getattr(ContextManager, method))
    assert callable(ContextManager.set_system_prompt_factory)


# --- what counts as an edit -------------------------------------------------------------------------------------------


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


async def test_an_image_a_host_replaced_is_an_edit() -> None:
    def image(data: str) -> list[dict[str, Any]]:
        return [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]

    manager = await edited([{"role": "user", "content": image("AAAA")}], 0, content=image("BBBB"))
    assert "AAAA" not in text(await manager.get_messages())
