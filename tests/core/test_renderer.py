"""Rendering: what history stored becomes what every provider takes, by rules that say what they did."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from amplifier_context_core.rendering.sendable import is_left_out
from tests.core.rendered import fixes, valid
from tests.messages import IMAGE, PNG_1X1, SIGNED, Message, block, call, result, says, user


@pytest.mark.parametrize(
    "round_",
    [
        [says([SIGNED, block("Hello.")])],
        [says("Hello.", metadata={"openai:reasoning_items": ["rs_1"]}, unknown={"kept": True})],
        [{"role": "system", "content": "A notice."}],
        [call("a", "b"), result("a"), result("b")],
        [call("a"), result("a", [block("x"), IMAGE])],
        [
            says(
                [SIGNED, block("x"), {"type": "tool_call", "id": "a", "name": "read", "input": {}, "visibility": None}],
                tool_calls=[{"id": "a", "tool": "read", "arguments": {}}],
            ),
            result("a", name="read"),
        ],
    ],
    ids=str,
)
def test_what_is_valid_is_shown_as_it_is_stored(round_: list[Message]) -> None:
    expected = copy.deepcopy(round_)
    for message in expected:
        if message.get("tool_calls") and message["content"] is None:
            message["content"] = ""  # the kernel's Message refuses null
    assert valid(*round_) == expected
    assert fixes(user("Start."), *round_) == []


def test_unknown_blocks_are_shown_in_words_and_data_by_its_size() -> None:
    (message,) = valid(user([{"type": "file", "path": "notes.md", "blob": "QUJD" * 1_000}]))
    (text,) = message["content"]
    assert text["type"] == "text"
    assert "notes.md" in text["text"]
    assert "4,000 characters of data" in text["text"]
    assert "QUJDQUJD" not in text["text"]


def test_images_in_openais_spelling_become_the_kernels() -> None:
    url = f"data:image/png;base64,{PNG_1X1}"
    assert valid(user([{"type": "image_url", "image_url": {"url": url}}])) == [user([IMAGE])]
    (message,) = valid(user([{"type": "image_url", "image_url": "https://example.com/a.png"}]))
    assert message["content"][0]["source"] == {"type": "url", "url": "https://example.com/a.png"}


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image"},
        {"type": "image", "source": "x"},
        {"type": "image", "source": {"type": "base64"}},
        {"type": "image_url", "image_url": None},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
    ],
    ids=str,
)
def test_an_image_without_a_source_is_described_in_words(image: dict[str, Any]) -> None:
    (message,) = valid(user([image]))
    assert message["content"][0]["type"] == "text"


def test_a_visibility_the_kernel_does_not_know_is_left_out() -> None:
    assert valid(user([{"type": "text", "text": "x", "visibility": "odd"}])) == [user([block("x")])]


RETIRED = {"amplifier:instruction": {"disposition": "retired"}}


@pytest.mark.parametrize(
    ("metadata", "left_out"),
    [
        (RETIRED, True),
        ({"amplifier:instruction": {"disposition": "anchor_pruned"}}, True),
        ({"amplifier:instruction": {"retired": True}}, True),
        ({"amplifier:instruction": {"disposition": "active"}}, False),
        ({"amplifier:instruction": "odd"}, False),
        ({"amplifier_public_reference_only": True}, True),
        ({"amplifier_public_reference_only": False}, False),
        (None, False),
    ],
    ids=str,
)
def test_retired_and_reference_only_rows_are_left_out(metadata: Any, left_out: bool) -> None:
    assert is_left_out(user("x", metadata=metadata)) is left_out
    assert (valid(user("x", metadata=metadata)) == []) is left_out
