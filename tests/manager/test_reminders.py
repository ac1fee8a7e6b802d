"""Reminders that are history, and rich results, in the views of a session."""

from __future__ import annotations

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_testing import checked
from tests.managers import new_manager
from tests.messages import IMAGE, PNG_1X1, Message

BUDGET = 3_000


def reminders(number: int, *sources: str) -> Message:
    inner = "".join(f'<system-reminder source="{name}">{name} {number}</system-reminder>\n' for name in sources)
    text = f"<system-reminders>\n{inner}</system-reminders>"
    return {"role": "user", "content": text, "metadata": {"ephemeral": True, "persisted": True}}


async def work(manager: ContextManager, number: int) -> list[Message]:
    """One round of a loop, and the request before it."""
    view = await manager.get_messages_for_request(BUDGET)
    call = {"id": f"c-{number}", "tool": "read", "arguments": {"path": f"src/a{number}.py"}}
    await manager.add_message({"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]})
    output = f"def f{number}(): ...\n" * 40
    await manager.add_message({"role": "tool", "tool_call_id": f"c-{number}", "content": output})
    return list(checked(view))


def shown(view: list[Message], text: str) -> int:
    return sum(text in str(message["content"]) for message in view)


@pytest.mark.digest
async def test_at_a_compaction_only_the_newest_reminder_of_each_source_stays() -> None:
    manager = new_manager(min_savings=0)
    await manager.add_message({"role": "user", "content": "Fix the loader."})
    await manager.add_message(reminders(0, "todo", "mode"))
    number = 0
    while not manager.compactor.compactions:
        number += 1
        await manager.add_message(reminders(number, "todo"))
        view = await work(manager, number)
    assert shown(view, "todo ") == 2  # the newest, and the one with the only text of its other source
    assert shown(view, f"todo {number}<") == 1
    assert shown(view, "mode 0<") == 1
    assert shown(view, "Fix the loader.") == 1
    history = await manager.get_messages()
    assert shown(history, "todo ") == number + 1


@pytest.mark.digest
async def test_a_rich_result_that_is_folded_leaves_its_text_and_no_data() -> None:
    manager = new_manager(min_savings=0)
    await manager.add_message({"role": "user", "content": "Take a picture."})
    call = {"id": "p-1", "tool": "camera", "arguments": {}}
    await manager.add_message({"role": "assistant", "content": "", "tool_calls": [call]})
    content = [{"type": "text", "text": "Shot of hall_17.png"}, IMAGE]
    await manager.add_message({"role": "tool", "tool_call_id": "p-1", "content": content})
    for number in range(40):
        view = await work(manager, number)
    assert manager.compactor.compactions
    assert PNG_1X1 not in str(view)
    assert "camera" in str(view)
