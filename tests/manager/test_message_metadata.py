"""What hosts, hooks and providers put into messages: instruction rows, provider state, timestamps, injections."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

import pytest

from amplifier_context_core.messages.usage import Response
from tests.managers import ask, feed, new_manager
from tests.messages import Message, rounds, text, work

BUDGET = 4_000


class Provider:
    """What a manager asks of a provider, as far as it must be known here."""

    def __init__(self, name: str) -> None:
        self.name = name


# -- what hooks store --------------------------------------------------------------------------------------------------


def notice(content: str, hook: str = "lint") -> Message:
    """What the streaming loop stores when a hook injects on ``tool:post``."""
    metadata = {"source": "hook", "hook_name": hook, "event": "tool:post", "persisted": True}
    return {"role": "system", "content": content, "metadata": metadata}


async def test_a_later_system_message_is_an_ordinary_entry_not_the_system_prompt() -> None:
    messages = [{"role": "system", "content": "Prompt."}, *work(3), notice("lint: one note"), *rounds(1, start=50)]
    view = await ask(await feed(new_manager(), messages), BUDGET)
    assert [m["content"] for m in view if m["role"] == "system"] == ["Prompt.", "lint: one note"]
    assert view[0]["content"] == "Prompt."
    assert view[1]["role"] == "user"


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
        {"role": "user", "content": "Half of the budget is used.", "metadata": {"ephemeral": True}},
        {"role": "user", "content": "A hook says so.", "metadata": {"source": "hook"}},
        {"role": "user", "content": "Older parts were folded.", "metadata": {"source": "context-compaction"}},
        {"role": "user", "content": "<system-reminder>Three todos.</system-reminder>"},
        {
            "role": "user",
            "content": "Job 7 has ended.",
            "metadata": {"amplifier_input": {"kind": "service"}},
        },
        {"role": "user", "content": "As typed.", "metadata": {"amplifier_public_reference_only": True}},
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
