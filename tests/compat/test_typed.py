"""Typed messages: dicts and typed messages survive a round trip, and changes are in the dict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import InvalidMessage
from amplifier_context_core.compat import Message, OtherBlock, TextBlock, ToolResultBlock, ToolUseBlock
from amplifier_context_core.messages.parsing import parse_message

from ..laws.histories import conversations, flat
from .samples import ENCODED_PNG, MESSAGES, answers, law, user

# -- there and back ---------------------------------------------------------------------------------------------------


@law
@given(conversations())
def test_every_dict_that_the_core_reads_survives_a_round_trip(steps: list[Any]) -> None:
    for raw in flat(steps):
        message = Message.from_dict(raw)
        assert message.to_dict() == raw
        assert Message.from_dict(message.to_dict()) == message


@law
@given(MESSAGES)
def test_every_typed_message_survives_a_round_trip(message: Message) -> None:
    wire, info = parse_message(message.to_dict())
    assert Message.from_dict(wire) == message
    assert info.role == message.role
    assert info.call_ids == tuple(block.id for block in message.content if isinstance(block, ToolUseBlock))
    assert info.answered_ids == tuple(
        block.tool_use_id for block in message.content if isinstance(block, ToolResultBlock)
    )


@law
@given(conversations())
def test_a_rewritten_message_makes_and_answers_the_same_calls(steps: list[Any]) -> None:
    for raw in flat(steps):
        message = Message.from_dict(raw)
        rewritten = Message(message.role, message.content, extra=message.extra)
        before, after = parse_message(raw)[1], parse_message(rewritten.to_dict())[1]
        if before.role == "assistant" or not before.call_ids:  # only an assistant can call
            assert after.answered_ids == before.answered_ids
            assert sorted(after.call_ids) == sorted(before.call_ids)
            if before.role != "tool":  # text beside the results of a tool's message looks like a user's
                assert after.human <= before.human, "nothing becomes a human's that was not"


@law
@given(MESSAGES, st.text(max_size=5))
def test_a_change_to_a_message_is_in_its_dict(message: Message, text: str) -> None:
    read = Message.from_dict(message.to_dict())
    read.content.append(TextBlock(text))
    assert Message.from_dict(read.to_dict()).content == [*message.content, TextBlock(text)]
    read.extra["note"] = text
    assert read.to_dict()["note"] == text


# -- how dicts are read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"role": "user", "content": "hi"}, Message("user", [TextBlock("hi")])),
        (
            {"role": "tool", "tool_call_id": "a", "name": "read", "content": None, "is_error": True},
            Message("user", [ToolResultBlock("a", "", is_error=True)], extra={"name": "read"}),
        ),
        (
            {"role": "tool", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
            Message("user", [ToolResultBlock("a", "x")]),
        ),
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
            },
            Message("assistant", [ToolUseBlock("a", "f", {"x": 1})]),
        ),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_call", "id": "b", "name": "g", "input": {}},
                    {"type": "text", "text": "both"},
                ],
                "tool_calls": [{"id": "a", "tool": "f", "arguments": {}}, {"id": "b", "tool": "g", "arguments": {}}],
            },
            Message("assistant", [ToolUseBlock("b", "g", {}), TextBlock("both"), ToolUseBlock("a", "f", {})]),
        ),
    ],
    ids=str,
)
def test_every_shape_has_a_typed_form(raw: dict[str, Any], message: Message) -> None:
    assert Message.from_dict(raw) == message
    assert Message.from_dict(raw).to_dict() == raw


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": ENCODED_PNG}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "not base64"}},
    ],
    ids=str,
)
def test_a_block_that_a_host_stored_malformed_is_kept_as_it_is(block: dict[str, Any]) -> None:
    raw = {"role": "user", "content": [block, {"type": "tool_result", "tool_use_id": "a", "content": [block]}]}
    message = Message.from_dict(raw)
    assert message.content == [OtherBlock(block), ToolResultBlock("a", [OtherBlock(block)])]
    assert message.to_dict() == raw


@pytest.mark.parametrize(
    ("arguments", "input"),
    [
        ('{"path": ', {"unparsed_arguments": '{"path": '}),
        ("[" * 100_000, {"unparsed_arguments": "[" * 100_000}),
    ],
    ids=["cut off", "very deep"],
)
def test_arguments_that_are_no_object_are_kept_under_a_name_of_their_own(arguments: Any, input: Any) -> None:
    raw = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}
    message = Message.from_dict(raw)
    assert message.content == [ToolUseBlock("a", "f", input)]
    assert message.to_dict() == raw


def test_the_text_of_a_message_is_that_of_its_text_blocks() -> None:
    message = Message("user", [TextBlock("one"), ToolResultBlock("a", "not this"), TextBlock(""), TextBlock("two")])
    assert message.text == "one\ntwo"
    assert answers("a").text == ""


# -- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Message("tool", "x"), "role"),
        (lambda: Message("user", ["x"]), "content[0]"),
        (lambda: Message("user", "x", extra={"tool_calls": []}), "extra.tool_calls"),
        (lambda: Message("user", "x", extra={"metadata": {"a": object()}}), "extra.metadata.a"),
    ],
)
def test_a_malformed_message_is_refused_with_its_field(make: Any, field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        make()
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("role", "tool", "role"),
        ("extra", {"content": "x"}, "extra.content"),
        ("extra", {"x": b""}, "extra.x"),
    ],
)
def test_a_message_made_malformed_is_refused_when_it_is_written(name: str, value: Any, field: str) -> None:
    message = user()
    setattr(message, name, value)
    with pytest.raises(InvalidMessage) as caught:
        message.to_dict()
    assert caught.value.field == field
