"""What hosts, hooks and providers put into messages: instruction rows, provider state, timestamps, injections."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace

import pytest

from amplifier_context_core.messages.usage import Response
from tests.managers import ask, feed, new_manager
from tests.messages import SIGNED, Message, block, rounds, says, system, text, user, work

BUDGET = 4_000


# -- what hooks store --------------------------------------------------------------------------------------------------


async def test_a_later_system_message_is_an_ordinary_entry_not_the_system_prompt() -> None:
    note = system("lint: one note", metadata={"source": "hook", "hook_name": "lint", "event": "tool:post"})
    messages = [system("Prompt."), *work(3), note, *rounds(1, start=50)]
    view = await ask(await feed(new_manager(), messages), BUDGET)
    assert [m["content"] for m in view if m["role"] == "system"] == ["Prompt.", "lint: one note"]
    assert [m["role"] for m in view[:2]] == ["system", "user"]


# -- rows that are history, never request ------------------------------------------------------------------------------


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


# -- provider state in metadata ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", ["by its metadata", "by its event"])
async def test_signed_thinking_goes_when_the_provider_changes_and_comes_back_with_it(known: str) -> None:
    one, other = SimpleNamespace(name="anthropic"), SimpleNamespace(name="openai")
    manager = await feed(new_manager(), [user("Well?")])
    await ask(manager, None, one)
    answer = says([SIGNED, block("Yes.")])
    if known == "by its event":
        manager.on_response(Response("c-1", "anthropic", None, "stop"))
    else:
        answer["metadata"] = {"model": "c-1", "provider": "anthropic"}
    await feed(manager, [answer, user("Sure?")])
    assert (await ask(manager, None, other))[1]["content"] == [block("Yes.")]
    assert SIGNED["signature"] in text(await ask(manager, None, one))


async def test_a_stored_timestamp_never_changes_and_is_never_sent() -> None:
    top = {"role": "user", "content": "Hi.", "timestamp": "2024-02-29T12:00:00.000+00:00"}
    manager = await feed(new_manager(), [*work(40), top])
    *stored, last = await manager.get_messages()
    assert (last, manager.snapshot()[-1].created) == (top, top["timestamp"])
    before = [message["metadata"]["timestamp"] for message in stored]
    assert "timestamp" not in text(await ask(manager, 2_000))
    for message in stored:
        message["metadata"]["timestamp"] = "2031-01-01T00:00:00.000+00:00"
    await manager.set_messages([*stored, last])
    await manager.compact()
    assert [message["metadata"]["timestamp"] for message in (await manager.get_messages())[:-1]] == before


# -- what is human -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "injected",
    [
        user("Half of the budget is used.", metadata={"ephemeral": True}),
        user("A hook says so.", metadata={"source": "hook"}),
        user("Older parts were folded.", metadata={"source": "context-compaction"}),
        user("<system-reminder>Three todos.</system-reminder>"),
        user("Job 7 has ended.", metadata={"amplifier_input": {"kind": "service"}}),
        user("As typed.", metadata={"amplifier_public_reference_only": True}),
    ],
    ids=["ephemeral", "hook", "compaction", "reminder", "service", "for pages only"],
)
async def test_an_injected_user_message_is_no_task_no_turn_and_not_the_newest_human_message(injected: Message) -> None:
    messages = [injected, {"role": "user", "content": "THE TASK"}, *rounds(60), deepcopy(injected)]
    manager = await feed(new_manager(), messages)
    view = await ask(manager, 2_000)
    report = await manager.explain()
    assert manager.turn_count == 1
    assert {member["why"]: member["mark"] for member in report["floor"]["members"]}["task"] == "m2"
    assert any(message["content"] == "THE TASK" for message in view)
