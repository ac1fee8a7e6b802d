"""Carriers of a provider's own compaction: what is read from them, and how they are counted and merged."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.messages.carriers import can_read, carried_items, carried_text, is_carrier
from amplifier_context_core.messages.tokens import count_message_tokens
from tests.messages import user

LABEL = "Native compacted conversation."
OPUS = "claude-opus-5"


def anthropic(model: Any = OPUS, content: Any = "We fixed the loader.", **more: Any) -> dict[str, Any]:
    block = {"type": "compaction", "content": content, "signature": "c2ln"}
    state = {"version": 1, "model": model, "block": block, **more}
    return user(LABEL, metadata={"ephemeral": True, "persisted": True, "anthropic:compaction": state})


def openai(model: Any = "gpt-5.6", **more: Any) -> dict[str, Any]:
    person = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix the loader."}]}
    state = {"version": 1, "model": model, "output": [person, {"type": "compaction", "encrypted_content": "x" * 400}]}
    return user(LABEL, metadata={"openai:compaction": {**state, **more}})


@pytest.mark.parametrize(
    ("carrier", "provider", "model", "reads"),
    [
        (anthropic(), "anthropic", OPUS, True),
        (anthropic(), "Anthropic-2", OPUS, True),
        (anthropic(), "", "", True),
        (anthropic(), "anthropic", "claude-opus-4-8", False),
        (anthropic(), "github-copilot", OPUS, False),
        (openai(), "openai", "gpt-5.6", True),
        (openai(), "openai", "gpt-5.5", False),
        (anthropic(content=""), "anthropic", OPUS, False),
        (anthropic(version=2, block=None), "anthropic", OPUS, True),
        (openai(output=[{"type": "message"}]), "openai", "gpt-5.6", False),
        (user(LABEL, metadata={"openai:compaction": 7}), "", "", False),
    ],
)
def test_only_the_model_that_made_a_compaction_reads_it(
    carrier: dict[str, Any], provider: str, model: str, reads: bool
) -> None:
    assert is_carrier(carrier)
    assert can_read(carrier, provider, model) is reads


def test_a_carrier_is_counted_by_what_is_in_it_and_not_by_its_label() -> None:
    small, large = anthropic(content="word " * 10), anthropic(content="word " * 1_000)
    assert count_message_tokens(large) - count_message_tokens(small) > 900
    assert count_message_tokens({**small, "content": LABEL * 100}) == count_message_tokens(small)
    assert count_message_tokens(openai()) > count_message_tokens(openai(output=[{"type": "compaction"}]))
    assert count_message_tokens(user(LABEL, metadata={"openai:compaction": 7})) == count_message_tokens(user(LABEL))


def test_the_words_that_are_not_sealed_are_read_from_it() -> None:
    assert carried_text(anthropic()) == "We fixed the loader."
    assert carried_text(openai()) == "Fix the loader."
    assert carried_items(user(LABEL, metadata={"openai:compaction": {"version": 2, "output": 7}})) == []
    assert carried_text(anthropic(version=2, block={"type": "other"})) == ""
