"""The corpus: every oddity is really in it, and building is repeatable."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_context_testing import check_request, conversations
from amplifier_context_testing.checks.corpus import HUGE, conversation
from amplifier_context_testing.checks.message_shapes import blocks_of

Messages = list[dict[str, Any]]


def says(name: str, part: str) -> bool:
    return part in "\n".join(check_request(conversation(name).messages))


def kinds(messages: Messages) -> set[Any]:
    return {block.get("type") for message in messages for _, block in blocks_of(message.get("content"))}


ODDITIES: dict[str, Callable[[], bool]] = {
    "reused call ids": lambda: says("reused_call_ids", "again"),
    "orphan first result": lambda: says("starts_with_a_tool", "a call that was never made"),
    "late results": lambda: says("late_results", "not open any more"),
    "missing results": lambda: says("missing_results", "not answered directly"),
    "duplicate results": lambda: says("duplicate_results", "a second time"),
    "duplicate ids": lambda: says("duplicate_ids_in_one_message", "two calls of the id"),
    "calls on a user message": lambda: says("calls_on_a_user_message", "only the assistant may"),
    "null contents": lambda: says("null_contents", "(user) has no content") and says("null_contents", "(tool) has no"),
    "empty assistants": lambda: (
        says("empty_assistants", "has empty content") and says("empty_assistants", "empty list")
    ),
    "openai images": lambda: "image_url" in kinds(conversation("images_as_openai_sends_them").messages),
    "kernel images": lambda: "image" in kinds(conversation("images_as_the_kernel_has_them").messages),
    "signed thinking": lambda: {"thinking", "redacted_thinking"} <= kinds(conversation("signed_thinking").messages),
    "anthropic blocks": lambda: {"tool_use", "tool_result"} <= kinds(conversation("anthropic_blocks").messages),
    "unknown blocks": lambda: "file" in kinds(conversation("unknown_blocks").messages),
    "lone surrogates": lambda: says("lone_surrogates", "lone surrogate"),
    "huge output": lambda: max(len(str(m["content"])) for m in conversation("huge_output").messages) == HUGE,
    "hook messages": lambda: says("hook_between_call_and_result", "not answered directly"),
    "retired rows": lambda: (
        says("retired_instructions", "was retired") and says("retired_instructions", "anchor_pruned")
    ),
    "reference-only rows": lambda: says("reference_only", "reference only"),
    "loaded tools": lambda: "openai:tool_search_items" in json.dumps(conversation("loaded_tools").messages),
    "malformed arguments": lambda: says("malformed_arguments", "not a JSON object"),
    "starts with an assistant": lambda: says("starts_with_an_assistant", "comes first"),
    "nothing": lambda: conversation("nothing").messages == [],
    "system only": lambda: says("only_a_system_prompt", "system messages only"),
}


@pytest.mark.parametrize("oddity", ODDITIES)
def test_the_oddity_is_there(oddity: str) -> None:
    assert ODDITIES[oddity]()


def test_names_are_unique_and_all_but_one_are_odd() -> None:
    found = conversations()
    assert len({one.name for one in found}) == len(found) >= 20
    assert [one.name for one in found if not one.oddities] == ["ordinary"]


def test_what_loops_store_is_valid_unchanged() -> None:
    assert check_request(conversation("kernel_loop").messages) == []
