"""Typed messages and blocks: dicts survive a round trip, changes are in the dict, what is malformed is refused."""

from typing import Any

import pytest
from hypothesis import given

from amplifier_context_core import InvalidMessage
from amplifier_context_core.compat import (
    ContentBlock,
    ImageBlock,
    Message,
    OtherBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    from_dict,
    to_dict,
)
from amplifier_context_core.messages.parsing import parse_message
from tests.messages import SIGNED

from ..laws.histories import conversations, flat
from .samples import ENCODED_PNG, MESSAGES, PNG

DATA_URL = f"data:image/png;base64,{ENCODED_PNG}"


def picture(data: str = ENCODED_PNG, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


@given(conversations())
def test_every_dict_survives_a_round_trip_and_rewritten_it_makes_and_answers_the_same_calls(steps: list[Any]) -> None:
    for raw in flat(steps):
        message = Message.from_dict(raw)
        assert message.to_dict() == raw
        assert Message.from_dict(message.to_dict()) == message
        rewritten = Message(message.role, message.content, extra=message.extra)
        before, after = parse_message(raw)[1], parse_message(rewritten.to_dict())[1]
        if before.role == "assistant" or not before.call_ids:  # only an assistant can call
            assert after.answered_ids == before.answered_ids
            assert sorted(after.call_ids) == sorted(before.call_ids)
            if before.role != "tool":  # text beside the results of a tool's message looks like a user's
                assert after.human <= before.human, "nothing becomes a human's that was not"


@given(MESSAGES)
def test_every_typed_message_survives_a_round_trip_and_a_change_is_in_its_dict(message: Message) -> None:
    wire, info = parse_message(message.to_dict())
    read = Message.from_dict(wire)
    assert read == message
    assert info.call_ids == tuple(block.id for block in message.content if isinstance(block, ToolUseBlock))
    assert info.answered_ids == tuple(one.tool_use_id for one in message.content if isinstance(one, ToolResultBlock))
    read.content.append(TextBlock("x"))
    read.extra["note"] = "y"
    assert Message.from_dict(read.to_dict()).content == [*message.content, TextBlock("x")]
    assert read.to_dict()["note"] == "y"


@pytest.mark.parametrize(
    ("raw", "block"),
    [
        (picture(), ImageBlock("image/png", PNG)),
        *((raw, OtherBlock(raw)) for raw in (SIGNED, {"type": "image_url", "image_url": None})),
        ({"type": "image_url", "image_url": {"url": DATA_URL}}, ImageBlock("image/png", PNG)),
        ({"type": "tool_call", "id": "a", "tool": "read", "input": None}, ToolUseBlock("a", "read", {})),
        ({"type": "tool_result", "tool_call_id": "a", "output": "x"}, ToolResultBlock("a", "x")),
        ({"type": "tool_result", "tool_use_id": "a", "content": {"n": 1}}, ToolResultBlock("a", '{"n":1}')),
    ],
)
def test_blocks_are_read_in_all_spellings(raw: dict[str, Any], block: ContentBlock) -> None:
    assert from_dict(raw) == block
    assert (to_dict(block) == raw) is (raw == picture() or isinstance(block, OtherBlock))


BOTH = [{"type": "tool_call", "id": "b", "name": "g", "input": {}}, {"type": "text", "text": "both"}]
LISTED = [{"id": "a", "tool": "f", "arguments": {}}, {"id": "b", "tool": "g", "arguments": {}}]
CUT, DEEP = '{"path": ', "[" * 100_000


def called(arguments: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"role": "user", "content": "hi"}, Message("user", [TextBlock("hi")])),
        (
            {"role": "tool", "tool_call_id": "a", "name": "read", "content": None, "is_error": True},
            Message("user", [ToolResultBlock("a", "", is_error=True)], extra={"name": "read"}),
        ),
        (called('{"x": 1}'), Message("assistant", [ToolUseBlock("a", "f", {"x": 1})])),
        (called(CUT), Message("assistant", [ToolUseBlock("a", "f", {"unparsed_arguments": CUT})])),
        (called(DEEP), Message("assistant", [ToolUseBlock("a", "f", {"unparsed_arguments": DEEP})])),
        (
            {"role": "assistant", "content": BOTH, "tool_calls": LISTED},
            Message("assistant", [ToolUseBlock("b", "g", {}), TextBlock("both"), ToolUseBlock("a", "f", {})]),
        ),
    ],
)
def test_every_shape_has_a_typed_form(raw: dict[str, Any], message: Message) -> None:
    assert Message.from_dict(raw) == message
    assert Message.from_dict(raw).to_dict() == raw


@pytest.mark.parametrize("block", [{"type": "text"}, picture(media_type="image/tiff"), picture("not base64")])
def test_a_block_that_a_host_stored_malformed_is_kept_as_it_is(block: dict[str, Any]) -> None:
    raw = {"role": "user", "content": [block, {"type": "tool_result", "tool_use_id": "a", "content": [block]}]}
    message = Message.from_dict(raw)
    assert message.content == [OtherBlock(block), ToolResultBlock("a", [OtherBlock(block)])]
    assert message.to_dict() == raw


def test_a_message_shows_the_text_of_its_text_blocks_and_an_image_not_its_bytes() -> None:
    message = Message("user", [TextBlock("one"), ToolResultBlock("a", "not this"), TextBlock(""), TextBlock("two")])
    assert message.text == "one\ntwo"
    assert repr(ImageBlock("image/png", bytes(2048))) == "ImageBlock(media_type='image/png', data=<2,048 bytes>)"


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: TextBlock("x", extra={"text": "y"}), "extra.text"),
        (lambda: ImageBlock("image/tiff", PNG), "media_type"),
        (lambda: ToolUseBlock("", "read", {"x": [b"y"]}), "id"),
        (lambda: ToolUseBlock("a", "read", {"x": [b"y"]}), "input.x[0]"),
        (lambda: ToolResultBlock("a", [TextBlock("x"), ToolUseBlock("b", "f", {})]), "content[1]"),
        (lambda: OtherBlock({"text": "x"}), "raw.type"),
        (lambda: from_dict(None), "block"),
        (lambda: from_dict(picture("a")), "source.data"),
        (lambda: from_dict({"type": "image_url", "image_url": "data:text/html;base64,AA=="}), "image_url.media_type"),
        (lambda: from_dict({"type": "tool_result", "tool_use_id": "a", "content": "x", "is_error": "yes"}), "is_error"),
        (lambda: Message("tool", "x"), "role"),
        (lambda: Message("user", ["x"]), "content[0]"),
        (lambda: Message("user", "x", extra={"tool_calls": []}), "extra.tool_calls"),
        (lambda: Message("user", "x", extra={"metadata": {"a": object()}}), "extra.metadata.a"),
    ],
)
def test_what_is_malformed_is_refused_with_its_field(make: Any, field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        make()
    assert caught.value.field == field


def test_deep_nesting_is_refused_and_does_not_exhaust_the_stack() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"x": deep}
    for made in (lambda: ToolUseBlock("a", "read", deep), lambda: from_dict({"type": "any", "x": deep})):
        with pytest.raises(InvalidMessage, match="nests deeper"):
            made()
    while deep:  # taken apart by hand: the interpreter would do it recursively
        deep = deep["x"]
