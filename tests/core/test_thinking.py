"""Thinking: which models bind it, where it is kept byte for byte, and what a message is without it."""

import copy
from typing import Any

import pytest

from amplifier_context_core.messages.parsing import is_signed
from amplifier_context_core.messages.tokens import count_message_tokens
from amplifier_context_core.rendering.thinking import ThinkingRule, thinking_rule, without_thinking
from tests.core.drafts import renderings, valid
from tests.messages import SIGNED, Message, block, result, says

TEXT = {"type": "text", "text": "Yes."}
REDACTED = {"type": "redacted_thinking", "data": "cmVk"}
USE = {"type": "tool_use", "id": "c-1", "name": "read", "input": {}}
BOUND, REQUIRED, FREE = ThinkingRule.BOUND, ThinkingRule.REQUIRED, ThinkingRule.FREE
MODELS = {
    BOUND: "claude-opus-5-5 claude-sonnet-5-5-20260901 us.anthropic.claude-opus-5-5-v1:0 anthropic/claude-fable-5.1 "
    "claude-opus-6 claude-opus-4-9 a-model-of-tomorrow",
    REQUIRED: "claude-3-7-sonnet-20250219 claude-sonnet-4-20250514 claude-opus-4-5@20251101 claude-haiku-4.5 "
    "claude-sonnet-4 gemini-3-pro-preview deepseek-v4-pro moonshotai/kimi-k2-thinking",
    FREE: "claude-opus-4-7 claude-opus-5 claude-opus-5-20260224 claude-fable-5 gpt-5.6 o3-mini gemini-2.5-pro glm-4.7",
}


def test_the_name_of_a_model_gives_its_rule_and_the_provider_counts_where_the_model_is_not_known() -> None:
    for rule, models in MODELS.items():
        assert {model for model in models.split() if thinking_rule("some_vendor", model) is not rule} == set()
    rules = {"openai": FREE, "azure-openai": FREE, "ollama": FREE, "gemini": REQUIRED, "deepseek": REQUIRED}
    for provider in (*rules, "anthropic", ""):
        assert thinking_rule(provider, "") is rules.get(provider, BOUND)
        assert thinking_rule(provider, "claude-opus-5-5") is BOUND


SEALED = [
    *({"content": [one, TEXT]} for one in (SIGNED, REDACTED)),
    {"content": [{"type": "thinking", "thinking": "x", "content": ["sealed", "rs_1"]}]},
    {"content": [{"type": "reasoning", "content": [], "summary": []}]},
    {"metadata": {"anthropic": {"wire_content": [SIGNED, TEXT]}}},
    {"thinking_block": SIGNED},
    {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
]
BARE = [
    {"content": [{"type": "thinking", "thinking": "Hm."}, TEXT]},
    {"content": [{"type": "thinking", "thinking": "x", "signature": None}]},
    {"content": None},
    *({"metadata": {"anthropic": one}} for one in ({"wire_content": [TEXT]}, {"wire_content": "damaged"}, "damaged")),
    *({"thinking_block": None}, {"reasoning_content": "Hm."}),
]


@pytest.mark.parametrize("message", [*SEALED, *BARE], ids=str)
def test_thinking_is_signed_wherever_a_provider_would_take_it_from(message: dict[str, Any]) -> None:
    assert is_signed(says("Yes.") | message) is (message in SEALED)


# -- in a rendered round -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "content", [[block("x"), SIGNED, block("y")], [block("x"), REDACTED], [SIGNED, block("x"), SIGNED]], ids=str
)
def test_thinking_where_no_provider_takes_it_is_dropped_whole(content: list[Any]) -> None:
    (message,) = valid(says(content))
    assert all(one["type"] == "text" for one in message["content"])
    (rendered,) = renderings(says(content))
    assert rendered.tokens == count_message_tokens(message), "what is dropped costs nothing"
    assert valid(says([*content, block("z")], tool_calls=[{"id": "a", "tool": "f", "arguments": {}}]), result("a"))


CALLS = [{"id": "c-1", "tool": "read", "arguments": {}}]
WIRED = {"model": "m", "anthropic": {"wire_content": [SIGNED, TEXT, USE], "stop_details": {}}}
UNWIRED = {"model": "m", "anthropic": {"wire_content": [TEXT, USE], "stop_details": {}}}


@pytest.mark.parametrize(
    ("message", "rest"),
    [
        (
            says([SIGNED, TEXT], tool_calls=CALLS, thinking_block=SIGNED, metadata=WIRED),
            says([TEXT], tool_calls=CALLS, metadata=UNWIRED),
        ),
        (says("Yes.", metadata={"anthropic": {"wire_content": [SIGNED]}}), says("Yes.", metadata={"anthropic": {}})),
        (says([SIGNED], tool_calls=CALLS), says("", tool_calls=CALLS)),
        (says([SIGNED]), None),
        (says("x"), says("x")),
    ],
    ids=str,
)
def test_without_thinking_a_message_keeps_the_rest_or_is_nothing(message: Message, rest: Message | None) -> None:
    before = copy.deepcopy(message)
    assert without_thinking(message) == rest
    assert rest is None or not is_signed(rest)
    assert message == before
