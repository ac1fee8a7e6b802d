"""Thinking in a rendered round: kept byte for byte where a provider accepts it, left out elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.messages.tokens import count_message_tokens
from amplifier_context_core.rendering.thinking import without_thinking
from tests.core.rendered import renderings, valid
from tests.messages import SIGNED, block, result, says

REDACTED = {"type": "redacted_thinking", "data": "cmVk"}


def test_signed_thinking_at_the_start_is_kept_byte_exact() -> None:
    content = [SIGNED, REDACTED, block("x"), SIGNED, block("y")]
    assert valid(says(content))[0]["content"] == content


@pytest.mark.parametrize(
    "content",
    [[block("x"), SIGNED, block("y")], [block("x"), REDACTED], [SIGNED, block("x"), SIGNED], [block("x"), SIGNED]],
    ids=str,
)
def test_thinking_where_no_provider_takes_it_is_dropped_whole(content: list[Any]) -> None:
    (message,) = valid(says(content))
    assert all(one["type"] == "text" for one in message["content"])
    (rendered,) = renderings(says(content))
    assert rendered.tokens == count_message_tokens(message), "what is dropped costs nothing"
    assert valid(says([*content, block("z")], tool_calls=[{"id": "a", "tool": "f", "arguments": {}}]), result("a"))


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "thinking"},
        {"type": "thinking", "thinking": "x", "signature": 5},
        {"type": "thinking", "thinking": "x", "content": "sealed"},
        {"type": "redacted_thinking"},
        {"type": "reasoning", "content": None, "summary": "x"},
    ],
    ids=str,
)
def test_thinking_the_kernel_refuses_is_fixed_or_left_out(odd: dict[str, Any]) -> None:
    (message,) = valid(says([odd, block("x")]))
    assert message["content"][-1] == block("x")


def test_without_thinking_a_message_keeps_the_rest_or_is_nothing() -> None:
    assert without_thinking(says([SIGNED, block("x")])) == says([block("x")])
    assert without_thinking(says([SIGNED])) is None
    assert without_thinking(says("x")) == says("x")
    calls = says([SIGNED], tool_calls=[{"id": "a", "tool": "f", "arguments": {}}])
    assert without_thinking(calls) == {**calls, "content": ""}


def test_a_call_that_only_a_block_states_keeps_its_signature() -> None:
    uses = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in ("a", "b", "c")]
    uses[0]["signature"], uses[2]["signature"] = "c2ln", 7
    (rendered,) = renderings(says([*uses]), result("a"), result("b"), result("c"))
    listed = rendered.messages[0].message["tool_calls"]
    assert [call.get("signature") for call in listed] == ["c2ln", None, None]
