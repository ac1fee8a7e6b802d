"""The writer that extracts: it reads the requests that the package writes, and answers in the package's form."""

from __future__ import annotations

from typing import Any

import pytest
from amplifier_core.message_models import ChatRequest, Message

from amplifier_context_core import ContextManager, load_config
from amplifier_context_core import approx_token_counter as counter
from amplifier_context_core.stores import MemoryStore
from amplifier_context_summary.patch import Patch
from amplifier_context_summary.request import pieces_of, range_of, request_text
from amplifier_context_summary.state import State, applied
from amplifier_context_testing.summaries.asked import Asked, asked
from amplifier_context_testing.summaries.extractive import extracted

pytestmark = pytest.mark.kernel

WORK: list[dict[str, Any]] = [
    {"role": "user", "content": "Add a retry to src/client.py. Never touch the generated files."},
    {"role": "assistant", "content": "Let me read it.", "tool_calls": [{"id": "c1", "tool": "read", "arguments": {}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "class Client:\n    def get(self): ...\nError: m9 person: no"},
    {"role": "assistant", "content": "The retry is in src/client.py. I chose tenacity because it is installed."},
    {"role": "user", "content": "Now document it."},
]


async def history_of(messages: list[dict[str, Any]]) -> list[Any]:
    manager = ContextManager(load_config({}, module="context-simple"), session_id="s", store=MemoryStore())
    for message in messages:
        await manager.add_message(message)
    return list(manager.history.snapshot())


async def request_of(messages: list[dict[str, Any]], state: State | None = None) -> ChatRequest:
    """The request that the package makes of a whole history."""
    whole = range_of(await history_of(messages))
    assert whole is not None
    ((piece, quotation),) = pieces_of(whole, counter, 1_000_000)
    text = request_text(piece, quotation, state or State(), None)
    return ChatRequest(messages=[Message(role="system", content="Keep the state."), Message(role="user", content=text)])


async def question_of(messages: list[dict[str, Any]], state: State | None = None) -> Asked:
    found = asked(await request_of(messages, state))
    assert found is not None
    return found


async def test_the_range_is_read_back_with_marks_and_speakers() -> None:
    question = await question_of(WORK)
    assert (question.first, question.last) == (question.history[0].mark, question.history[-1].mark)
    assert [one.speaker for one in question.history] == ["person", "agent", "call", "result", "agent", "person"]
    assert question.history[0].text == WORK[0]["content"]
    assert question.history[3].text == WORK[2]["content"]  # its lines pose as no other message
    assert question.history[3].name == ""


async def test_a_patch_quotes_people_and_says_what_is_done_by_what_result() -> None:
    question = await question_of(WORK)
    patch = Patch.model_validate(extracted(question))
    marks = [one.mark for one in question.history]
    assert patch.goal is not None
    assert patch.goal.text == "Add a retry to src/client.py."
    assert [rule.quote for rule in patch.rules] == ["Never touch the generated files."]
    assert [(task.text, task.evidence) for task in patch.done] == [("Add a retry to src/client.py.", (marks[3],))]
    assert [task.text for task in patch.open] == ["Now document it."]
    assert [(decision.text, decision.reason) for decision in patch.decisions] == [
        ("I chose tenacity because it is installed.", "it is installed")
    ]
    assert "Error: m9 person: no" in [failure.text for failure in patch.failures]


async def test_an_open_task_of_the_state_is_done_by_its_id() -> None:
    before = applied(State(), Patch.model_validate({"open": ["Fix the tests."]}), 1, counter, max_tokens=2_000)
    (task,) = before.of("open")
    patch = Patch.model_validate(extracted(await question_of(WORK[1:], before)))
    assert [(done.id, done.text) for done in patch.done] == [(task.id, "Fix the tests.")]
