"""Which models bind thinking, and what a message is without it."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.messages.parsing import is_signed
from amplifier_context_core.rendering.thinking import ThinkingRule, declares_binding, thinking_rule, without_thinking

SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
TEXT = {"type": "text", "text": "Yes."}
USE = {"type": "tool_use", "id": "c-1", "name": "read", "input": {}}

MODELS = {
    ThinkingRule.BOUND: [
        "claude-opus-5-5",
        "claude-sonnet-5-5-20260901",
        "claude-fable-5-2",
        "us.anthropic.claude-opus-5-5-v1:0",
        "anthropic/claude-fable-5.1",
        "claude-opus-6",
        "claude-opus-4-9",
        "a-model-of-tomorrow",
        "",
    ],
    ThinkingRule.REQUIRED: [
        "claude-3-7-sonnet-20250219",
        "claude-sonnet-4-20250514",
        "claude-opus-4-5@20251101",
        "claude-haiku-4.5",
        "claude-sonnet-4",
        "gemini-3-pro-preview",
        "deepseek-v4-pro",
        "moonshotai/kimi-k2-thinking",
    ],
    ThinkingRule.FREE: [
        "claude-opus-4-7",
        "claude-opus-5",
        "claude-opus-5-20260224",
        "claude-fable-5",
        "gpt-5.6",
        "o3-mini",
        "gemini-2.5-pro",
        "glm-4.7",
    ],
}


@pytest.mark.parametrize(("rule", "model"), [(rule, model) for rule, models in MODELS.items() for model in models])
def test_the_name_of_a_model_gives_its_rule(rule: ThinkingRule, model: str) -> None:
    assert thinking_rule("some_vendor", model) is rule


@pytest.mark.parametrize(
    ("provider", "rule"),
    [
        ("openai", ThinkingRule.FREE),
        ("azure-openai", ThinkingRule.FREE),
        ("ollama", ThinkingRule.FREE),
        ("gemini", ThinkingRule.REQUIRED),
        ("deepseek", ThinkingRule.REQUIRED),
        ("anthropic", ThinkingRule.BOUND),
        ("", ThinkingRule.BOUND),
    ],
)
def test_the_provider_counts_where_the_model_is_not_known(provider: str, rule: ThinkingRule) -> None:
    assert thinking_rule(provider, "") is rule


def test_the_model_counts_more_than_its_provider() -> None:
    assert thinking_rule("openai", "claude-opus-5-5") is ThinkingRule.BOUND


@pytest.mark.parametrize(
    ("message", "signed"),
    [
        ({"content": [SIGNED, TEXT]}, True),
        ({"content": [{"type": "redacted_thinking", "data": "x"}, TEXT]}, True),
        ({"content": [{"type": "thinking", "thinking": "x", "content": ["sealed", "rs_1"]}]}, True),
        ({"content": [{"type": "reasoning", "content": [], "summary": []}]}, True),
        ({"content": [{"type": "thinking", "thinking": "Hm."}, TEXT]}, False),
        ({"content": [{"type": "thinking", "thinking": "x", "signature": None}]}, False),
        ({"content": None}, False),
        ({"content": "Yes.", "metadata": {"anthropic": {"wire_content": [SIGNED, TEXT]}}}, True),
        ({"content": "Yes.", "metadata": {"anthropic": {"wire_content": [TEXT]}}}, False),
        ({"content": "Yes.", "metadata": {"anthropic": {"wire_content": "damaged"}}}, False),
        ({"content": "Yes.", "metadata": {"anthropic": "damaged"}}, False),
        ({"content": "Yes.", "thinking_block": SIGNED}, True),
        ({"content": "Yes.", "thinking_block": None}, False),
        ({"content": "Yes.", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, True),
        ({"content": "Yes.", "reasoning_content": "Hm."}, False),
    ],
)
def test_thinking_is_signed_wherever_a_provider_would_take_it_from(message: dict[str, Any], signed: bool) -> None:
    assert is_signed({"role": "assistant", **message}) is signed


def test_without_thinking_a_message_has_none_at_any_of_these_places_and_is_otherwise_the_same() -> None:
    message = {
        "role": "assistant",
        "content": [SIGNED, TEXT],
        "tool_calls": [{"id": "c-1", "tool": "read", "arguments": {}}],
        "thinking_block": SIGNED,
        "metadata": {"model": "m", "anthropic": {"wire_content": [SIGNED, TEXT, USE], "stop_details": {}}},
    }
    bare = without_thinking(message)
    assert bare == {
        "role": "assistant",
        "content": [TEXT],
        "tool_calls": [{"id": "c-1", "tool": "read", "arguments": {}}],
        "metadata": {"model": "m", "anthropic": {"wire_content": [TEXT, USE], "stop_details": {}}},
    }
    assert not is_signed(bare)
    assert message["content"] == [SIGNED, TEXT]  # the original is as it was
    assert message["metadata"]["anthropic"]["wire_content"] == [SIGNED, TEXT, USE]


def test_a_wire_form_of_nothing_but_thinking_goes_whole() -> None:
    message = {"role": "assistant", "content": "Yes.", "metadata": {"anthropic": {"wire_content": [SIGNED]}}}
    assert without_thinking(message) == {"role": "assistant", "content": "Yes.", "metadata": {"anthropic": {}}}


def test_a_provider_declares_binding_on_the_answer_itself() -> None:
    assert declares_binding({"role": "assistant", "metadata": {"anthropic": {"thinking_binding": "drop_block"}}})
    assert not declares_binding({"role": "assistant", "metadata": {"anthropic": {}}})
    assert not declares_binding({"role": "assistant"})
