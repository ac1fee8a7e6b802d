"""Thinking in a rendered round: kept byte for byte where a provider accepts it, left out elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.messages.usage import Response
from amplifier_context_core.rendering.renderer import (
    Renderer,
)
from amplifier_context_core.rendering.rounds import rounds_of
from amplifier_context_core.rendering.thinking import without_thinking
from amplifier_context_core.transcript.transcript import Transcript
from amplifier_context_testing.checks.thinking_checker import RequiredThinkingChecker
from tests.core.rendered import renderings, valid
from tests.messages import SIGNED, block, result, says, user

REDACTED = {"type": "redacted_thinking", "data": "cmVk"}


# -- thinking ----------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("content", [[SIGNED], [REDACTED], [SIGNED, block(" ")]], ids=str)
def test_thinking_alone_is_no_message(content: list[Any]) -> None:
    assert valid(says(content)) == []
    view = valid(says(content, tool_calls=[{"id": "a", "tool": "f", "arguments": {}}]), result("a"))
    assert view[0]["content"][0] in (SIGNED, REDACTED)


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "thinking"},
        {"type": "thinking", "thinking": None},
        {"type": "thinking", "thinking": "x", "signature": 5},
        {"type": "thinking", "thinking": "x", "content": "sealed"},
        {"type": "redacted_thinking"},
        {"type": "reasoning"},
        {"type": "reasoning", "content": None, "summary": "x"},
    ],
    ids=str,
)
def test_thinking_the_kernel_refuses_is_fixed_or_left_out(odd: dict[str, Any]) -> None:
    (message,) = valid(says([odd, block("x")]))
    assert message["content"][-1] == block("x")


def test_only_the_assistant_thinks() -> None:
    assert valid(user([SIGNED, block("x")]), result("lost", [SIGNED, block("y")]))[0] == user([block("x")])


def test_without_thinking_a_message_keeps_the_rest_or_is_nothing() -> None:
    assert without_thinking(says([SIGNED, block("x")])) == says([block("x")])
    assert without_thinking(says([SIGNED])) is None
    assert without_thinking(says("x")) == says("x")
    calls = says([SIGNED], tool_calls=[{"id": "a", "tool": "f", "arguments": {}}])
    assert without_thinking(calls) == {**calls, "content": ""}


def test_the_provider_of_a_message_is_known_to_its_rendering() -> None:
    history = Transcript()
    message, info = parse_message(says("x"))
    history.append(history.draft(message, info, 5, created="", response=Response(provider="anthropic")))
    rendering = Renderer(approx_token_counter, 1_000).render(rounds_of(history.snapshot())[0])
    assert rendering.messages[0].provider == "anthropic"


# -- tables ------------------------------------------------------------------------------------------------------------


def test_a_call_that_only_a_block_states_keeps_its_signature() -> None:
    uses = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in ("a", "b", "c")]
    uses[0]["signature"], uses[2]["signature"] = "c2ln", 7
    (rendered,) = renderings(says([*uses]), result("a"), result("b"), result("c"))
    listed = rendered.messages[0].message["tool_calls"]
    assert [call.get("signature") for call in listed] == ["c2ln", None, None]


def test_the_checker_of_required_thinking_misses_a_signature_that_a_call_lost() -> None:
    call = {"id": "a", "tool": "read", "arguments": {}}
    signed = {**call, "signature": "c2ln"}
    use = {"type": "tool_use", "id": "a", "name": "read", "input": {}, "signature": "c2ln"}
    for answer in (says("", tool_calls=[signed]), says([use])):
        checker = RequiredThinkingChecker()
        checker.answered([user()], answer)
        assert checker.check([user(), says("", tool_calls=[signed]), result("a")]) == []
        for other in ([call], [{**call, "signature": "b3Ro"}]):
            assert len(checker.check([user(), says("", tool_calls=other), result("a")])) == 1
        assert checker.check([user(), says("", tool_calls=[call]), result("a"), user("Next.")]) == []
