"""Blocks: each is equal after a round trip through its dict, and a malformed one is refused with its field."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given

from amplifier_context_core import InvalidMessage
from amplifier_context_core.compat import (
    ContentBlock,
    ImageBlock,
    OtherBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    from_dict,
    to_dict,
)
from amplifier_context_core.messages.parsing import json_text
from tests.messages import SIGNED

from .samples import BLOCKS, PNG, law

ENCODED = base64.b64encode(PNG).decode()


# -- there and back ---------------------------------------------------------------------------------------------------


@law
@given(BLOCKS)
def test_every_block_survives_a_round_trip_through_dict_and_json(block: ContentBlock) -> None:
    raw = to_dict(block)
    assert from_dict(raw) == block
    assert from_dict(raw).to_dict() == raw
    try:
        text = orjson.dumps(raw)
    except TypeError:  # lone surrogates, integers past 64 bits
        assert json_text(raw)
    else:
        assert from_dict(orjson.loads(text)) == block


@pytest.mark.parametrize(
    ("block", "raw"),
    [
        (
            ImageBlock("image/png", b"\x89PNG"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
        ),
        (
            ToolUseBlock("call_1", "read", {"path": "a.py"}),
            {"type": "tool_use", "id": "call_1", "name": "read", "input": {"path": "a.py"}},
        ),
        (
            ToolResultBlock("call_1", [TextBlock("no")], is_error=True),
            {
                "type": "tool_result",
                "tool_use_id": "call_1",
                "content": [{"type": "text", "text": "no"}],
                "is_error": True,
            },
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_form_is_the_one_the_core_stores(block: ContentBlock, raw: dict[str, Any]) -> None:
    assert to_dict(block) == raw
    assert from_dict(raw) == block


@pytest.mark.parametrize(
    ("raw", "block"),
    [
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}"}},
            ImageBlock("image/png", PNG),
        ),
        ({"type": "tool_call", "id": "a", "tool": "read", "input": None}, ToolUseBlock("a", "read", {})),
        ({"type": "tool_result", "tool_call_id": "a", "output": "x"}, ToolResultBlock("a", "x")),
        ({"type": "tool_result", "tool_use_id": "a", "content": {"n": 1}}, ToolResultBlock("a", '{"n":1}')),
    ],
    ids=str,
)
def test_other_spellings_of_the_same_are_read(raw: dict[str, Any], block: ContentBlock) -> None:
    assert from_dict(raw) == block


@pytest.mark.parametrize(
    "raw",
    [
        SIGNED,
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image_url", "image_url": None},
        {"type": "never seen", "deep": [{"x": 1}]},
    ],
    ids=str,
)
def test_a_block_without_a_typed_form_keeps_its_json(raw: dict[str, Any]) -> None:
    block = from_dict(raw)
    assert isinstance(block, OtherBlock)
    assert block.type == raw["type"]
    assert to_dict(block) == raw


# -- values -----------------------------------------------------------------------------------------------------------


def test_changing_what_a_block_was_made_of_does_not_change_the_block() -> None:
    arguments: dict[str, Any] = {"paths": ["a"]}
    parts: list[Any] = [TextBlock("x")]
    extra: dict[str, Any] = {"cache_control": {}}
    use, result = ToolUseBlock("a", "read", arguments), ToolResultBlock("a", parts)
    block = TextBlock("x", extra=extra)
    arguments["paths"].append("b")
    parts.clear()
    extra["cache_control"]["type"] = "ephemeral"
    assert use.input == {"paths": ["a"]}
    assert result.content == [TextBlock("x")]
    assert block.extra == {"cache_control": {}}


def test_an_image_does_not_print_its_bytes() -> None:
    shown = repr(ToolResultBlock("a", [ImageBlock("image/png", b"\x00" * 2048)]))
    assert "ImageBlock(media_type='image/png', data=<2,048 bytes>)" in shown
    assert len(shown) < 200


# -- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: TextBlock(5), "text"),
        (lambda: TextBlock("x", extra={"text": "y"}), "extra.text"),
        (lambda: ImageBlock("image/tiff", PNG), "media_type"),
        (lambda: ToolUseBlock("", "read", {}), "id"),
        (lambda: ToolUseBlock("a", "read", {"x": [b"y"]}), "input.x[0]"),
        (lambda: ToolResultBlock("a", [TextBlock("x"), ToolUseBlock("b", "f", {})]), "content[1]"),
        (lambda: OtherBlock({"text": "x"}), "raw.type"),
    ],
)
def test_a_malformed_block_is_refused_with_its_field(make: Any, field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        make()
    assert caught.value.field.startswith(field)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (None, "block"),
        ({"type": "text"}, "text"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "a"}}, "source.data"),
        ({"type": "image_url", "image_url": f"data:text/html;base64,{ENCODED}"}, "image_url.media_type"),
        ({"type": "tool_use", "name": "read", "input": {}}, "id"),
        ({"type": "tool_result", "tool_use_id": "a", "content": "x", "is_error": "yes"}, "is_error"),
    ],
    ids=str,
)
def test_a_dict_that_is_no_block_is_refused_with_its_field(raw: Any, field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        from_dict(raw)
    assert caught.value.field == field


def test_deep_nesting_is_refused_and_does_not_exhaust_the_stack() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"x": deep}
    with pytest.raises(InvalidMessage, match="nests deeper"):
        ToolUseBlock("a", "read", deep)
    with pytest.raises(InvalidMessage, match="nests deeper"):
        from_dict({"type": "any", "x": deep})
    while deep:  # taken apart by hand: the interpreter would do it recursively
        deep = deep["x"]
