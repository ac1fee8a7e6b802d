"""Reminders that are history, rich results and injections of hooks, in the views of a session."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_testing import checked
from tests.managers import new_manager

Message = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
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


async def test_between_compactions_every_request_begins_with_the_one_before() -> None:
    manager = new_manager(min_savings=0)
    await manager.add_message({"role": "user", "content": "Fix the loader."})
    before: list[Message] = []
    compactions = 0
    for number in range(40):
        await manager.add_message(reminders(number, "todo"))
        view = await work(manager, number)
        if manager.compactor.compactions == compactions:
            assert view[: len(before)] == before
        compactions, before = manager.compactor.compactions, view
    assert compactions


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


async def test_the_service_that_reports_a_job_begins_no_turn() -> None:
    manager = new_manager()
    await manager.add_message({"role": "user", "content": "Run the job."})
    stated = {"amplifier_input": {"version": 1, "kind": "service", "id": "job-7", "source": "jobs"}}
    await manager.add_message({"role": "user", "content": "Job 7 has ended.", "metadata": stated})
    assert manager.turn_count == 1
    view = await manager.get_messages_for_request(BUDGET)
    assert [message["content"] for message in view] == ["Run the job.", "Job 7 has ended."]


async def test_what_a_host_keeps_for_its_pages_only_is_not_sent_and_begins_no_turn() -> None:
    manager = new_manager()
    original = {"version": 1, "blocks": [{"type": "text", "text": "ORIGINAL"}]}
    await manager.add_message(
        {"role": "user", "content": "expanded", "metadata": {"amplifier_public_message": original}}
    )
    only = {"amplifier_public_reference_only": True, "amplifier_public_message": original}
    await manager.add_message({"role": "user", "content": "ORIGINAL", "metadata": only})
    view = await manager.get_messages_for_request(BUDGET)
    assert [message["content"] for message in view] == ["expanded"]
    assert "ORIGINAL" not in str(view)
    assert manager.turn_count == 1


@pytest.mark.digest
async def test_a_rich_result_that_is_folded_leaves_its_text_and_no_data() -> None:
    manager = new_manager(min_savings=0)
    await manager.add_message({"role": "user", "content": "Take a picture."})
    call = {"id": "p-1", "tool": "camera", "arguments": {}}
    await manager.add_message({"role": "assistant", "content": "", "tool_calls": [call]})
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    content = [{"type": "text", "text": "Shot of hall_17.png"}, image]
    await manager.add_message({"role": "tool", "tool_call_id": "p-1", "content": content})
    for number in range(40):
        view = await work(manager, number)
    assert manager.compactor.compactions
    assert PNG not in str(view)
    assert "camera" in str(view)


@pytest.mark.parametrize("key", ["anthropic:compaction", "openai:compaction"])
async def test_a_providers_own_compaction_stays_first_and_unchanged(key: str) -> None:
    manager = new_manager(min_savings=0)
    block = {"type": "compaction", "content": "long " * 300, "signature": "s", "encrypted_content": "s"}
    state = {"version": 1, "model": "m", "block": block} if "anthropic" in key else {"version": 1, "output": [block]}
    marks = {"ephemeral": True, "persisted": True, "source": "context-managed", key: state}
    carrier = {"role": "user", "content": "Native compacted conversation. " * 60, "metadata": marks}
    await manager.add_message(carrier)
    await manager.add_message({"role": "user", "content": "Go on."})
    for number in range(40):
        view = await work(manager, number)
        assert view[0]["content"] == carrier["content"]
        assert view[0]["metadata"][key] == state
        assert sum(message["content"] == carrier["content"] for message in view) == 1
    assert manager.compactor.compactions > 1
    assert manager.turn_count == 1
