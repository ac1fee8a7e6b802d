"""What hosts, hooks and providers put into messages, and system prompts: stored, made by a factory, counted."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core.messages.usage import Response
from tests.managers import ask, feed, new_manager
from tests.messages import SIGNED, Message, block, digest, rounds, says, text, user, work

BUDGET = 4_000


async def test_a_row_that_is_retired_now_or_later_is_left_out_of_views_and_chapters() -> None:
    retired = {"amplifier:instruction": {"id": "i1", "disposition": "retired"}}
    messages = work(60)
    messages.insert(3, {"role": "user", "content": "Answer in French.", "metadata": retired})
    messages.insert(1, {"role": "developer", "content": "Answer in Dutch.", "metadata": retired})
    manager = await feed(new_manager(), messages)
    active = {"amplifier:instruction": {"id": "i2", "disposition": "active"}}
    await manager.add_message(user("Answer in Greek.", metadata=active))
    view = await ask(manager, BUDGET)
    assert len(view) < len(messages)
    assert [word for word in ("French", "Dutch", "Greek") if word in text(view)] == ["Greek"]
    history = await manager.get_messages()
    history[-1]["metadata"]["amplifier:instruction"]["disposition"] = "retired"
    await manager.set_messages(history)
    assert "Greek" not in text(await ask(manager, BUDGET))


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


@pytest.mark.parametrize(
    "metadata",
    [{"ephemeral": True}, {"amplifier_input": {"kind": "service"}}, {"amplifier_public_reference_only": True}],
)
async def test_an_injected_user_message_is_no_task_no_turn_and_not_the_newest_human_message(metadata: Any) -> None:
    """Other ones are in tests/core/test_parsing.py."""
    injected = user("Half of the budget is used.", metadata=metadata)
    messages = [injected, {"role": "user", "content": "THE TASK"}, *rounds(60), deepcopy(injected)]
    manager = await feed(new_manager(), messages)
    view = await ask(manager, 2_000)
    report = await manager.explain()
    assert manager.turn_count == 1
    assert {member["why"]: member["mark"] for member in report["floor"]["members"]}["task"] == "m2"
    assert any(message["content"] == "THE TASK" for message in view)


class Prompt:
    """A factory that counts its calls."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        return self.text


def stored_prompts() -> list[Message]:
    return [
        {"role": "system", "content": "Stored."},
        {"role": "system", "content": "From a hook.", "metadata": {"source": "hook"}},
        *work(3),
    ]


async def test_the_factorys_prompt_replaces_stored_ones_except_a_hooks() -> None:
    manager = await feed(new_manager(), stored_prompts())
    await manager.set_system_prompt_factory(Prompt("Made again."))
    view = await ask(manager, BUDGET)
    assert [m["content"] for m in view if m["role"] == "system"] == ["Made again.", "From a hook."]
    assert [m["role"] for m in view[:3]] == ["system", "system", "user"]
    for nothing in ("", "  \n"):  # no empty message takes its place
        await manager.set_system_prompt_factory(Prompt(nothing))
        assert [m["content"] for m in await ask(manager, BUDGET) if m["role"] == "system"] == ["From a hook."]


async def test_an_unchanged_prompt_stays_byte_identical_and_a_changed_one_costs_its_own_bytes_only() -> None:
    manager = await feed(new_manager(), work(60))
    prompt = Prompt("One.")
    await manager.set_system_prompt_factory(prompt)
    before = await ask(manager, BUDGET)
    assert digest(await ask(manager, BUDGET)) == digest(before)
    prompt.text = "Two."
    after = await ask(manager, BUDGET)
    assert after[0]["content"] == "Two."
    assert digest(after[1:]) == digest(before[1:])
    assert (await manager.explain())["compactions"] == 1
