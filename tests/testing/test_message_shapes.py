"""Reading messages in all their spellings."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_testing.checks.conversation_builder import ConversationBuilder, image_block
from amplifier_context_testing.checks.message_shapes import calls_of, is_human, results_of


@pytest.mark.parametrize("shape", ["openai", "kernel", "anthropic"])
def test_calls_and_results_are_the_same_in_every_spelling(shape: Any) -> None:
    talk = ConversationBuilder(shape)
    one, two = talk.call(("read", {"path": "a"}), ("read", {"path": "b"}))
    talk.result(one, "1")
    assert [(call.id, call.name, call.input()) for call in calls_of(talk.messages[0])] == [
        (one, "read", {"path": "a"}),
        (two, "read", {"path": "b"}),
    ]
    assert [(result.id, result.content) for result in results_of(talk.messages[1])] == [(one, "1")]


@pytest.mark.parametrize(
    ("message", "human"),
    [
        ({"role": "user", "content": "Hi."}, True),
        ({"role": "user", "content": [image_block()]}, True),
        ({"role": "assistant", "content": "Hi."}, False),
        ({"role": "user", "content": "Hi.", "metadata": {"ephemeral": True}}, False),
        ({"role": "user", "content": "Hi.", "metadata": {"source": "hook"}}, False),
        ({"role": "user", "content": "Hi.", "metadata": {"source": "context-compaction"}}, False),
        ({"role": "user", "content": "Hi.", "metadata": {"source": "cli"}}, True),
        ({"role": "user", "content": "<system-reminder>x</system-reminder>"}, False),
        ({"role": "user", "content": "<system-reminder>x</system-reminder> Go."}, True),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}, False),
        ({"role": "user", "content": ""}, False),
        ({"role": "user"}, False),
    ],
)
def test_a_human_message_is_distinguished_from_an_injected_one(message: dict[str, Any], human: bool) -> None:
    assert is_human(message) is human
