"""Counters: exact by definition."""

from __future__ import annotations

from amplifier_context_testing import WordCounter
from amplifier_context_testing.checks.conversation_builder import ConversationBuilder, image_block
from amplifier_context_testing.counters import PER_IMAGE, PER_MESSAGE, wire_tokens


def test_a_call_spelled_twice_is_counted_once() -> None:
    once, twice = ConversationBuilder("openai"), ConversationBuilder("kernel")
    once.call(("read", {"path": "a"}))
    twice.call(("read", {"path": "a"}))
    counter = WordCounter()
    assert wire_tokens(once.messages[0], counter) == wire_tokens(twice.messages[0], counter)


def test_images_count_flat_and_metadata_not_at_all() -> None:
    message = {"role": "user", "content": [image_block(640, 480)], "metadata": {"note": "many words in here"}}
    assert wire_tokens(message, WordCounter()) == PER_MESSAGE + PER_IMAGE


def test_results_count_by_their_text() -> None:
    block = {"type": "tool_result", "tool_call_id": "a", "output": "one two three"}
    assert wire_tokens({"role": "user", "content": [block]}, WordCounter()) == PER_MESSAGE + 3
