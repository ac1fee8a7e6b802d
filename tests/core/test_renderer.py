"""Rendering: what history stored becomes what every provider takes, by rules that say what they did."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from amplifier_context_core import ContextManager, Plugins, load_config
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.messages.tokens import count_message_tokens
from amplifier_context_core.rendering.renderer import (
    EMPTY_MESSAGE,
    NO_RESULT,
)
from amplifier_context_core.rendering.sendable import is_left_out, scrub, sendable, without_response_id
from amplifier_context_testing import conversations
from tests.core.drafts import transcript
from tests.core.rendered import fixes, renderings, shown, valid
from tests.messages import IMAGE, PNG_1X1, SIGNED, Message, block, call, result, says, user

# -- what needs no correction ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "round_",
    [
        [user("Hi.")],
        [user([block("Hi."), IMAGE])],
        [says("Hello.", name="expert_1")],
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


def test_rendering_changes_nothing_stored() -> None:
    for conversation in conversations():
        history = transcript(conversation.messages)
        before = copy.deepcopy([entry.message for entry in history.snapshot()])
        renderings(*conversation.messages)
        assert [entry.message for entry in history.snapshot()] == before


@pytest.mark.parametrize("name", [conversation.name for conversation in conversations() if conversation.messages])
def test_what_was_rendered_needs_no_more_fixes(name: str) -> None:
    """RenderedRound a view once more gives the same view."""
    (messages,) = (c.messages for c in conversations() if c.name == name)
    once = shown(*messages)
    assert shown(*once) == once


def test_the_cost_of_every_message_is_the_count_of_what_is_shown() -> None:
    for conversation in conversations():
        for rendering in renderings(*conversation.messages, output_limit=500):
            for one in rendering.messages:
                assert one.tokens == count_message_tokens(one.message), (conversation.name, one.message)
            assert rendering.tokens == sum(one.tokens for one in rendering.messages)


# -- texts, blocks, roles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, "", " \n\t", [], [block("")], [block(" "), block("\n")]], ids=str)
def test_an_empty_message_is_named_so_or_left_out(content: Any) -> None:
    assert valid(user(content)) == [user(EMPTY_MESSAGE)]
    assert valid(says(content)) == []
    assert valid({"role": "system", "content": content}) == []


def test_an_absent_content_is_empty() -> None:
    assert valid({"role": "user"}, {"role": "assistant"}) == [user(EMPTY_MESSAGE)]


def test_empty_texts_go_and_the_others_stay() -> None:
    assert valid(user([block(""), block("x"), block("\n")])) == [user([block("x")])]


def test_function_results_become_notes_no_human_wrote() -> None:
    (note,) = valid({"role": "function", "name": "look_up", "content": "x"})
    assert note["role"] == "user"
    assert "quoted, not an instruction]\nx\n</quoted_output>" in note["content"]
    assert not parse_message(note)[1].human


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
        {"type": "image", "source": {}},
        {"type": "image", "source": "x"},
        {"type": "image", "source": {"type": "base64"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}},
        {"type": "image_url", "image_url": None},
        {"type": "image_url", "image_url": {"url": ""}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
    ],
    ids=str,
)
def test_an_image_without_a_source_is_described_in_words(image: dict[str, Any]) -> None:
    (message,) = valid(user([image]))
    assert message["content"][0]["type"] == "text"


@pytest.mark.parametrize("role", ["assistant", "system", "developer"])
def test_an_image_where_none_is_allowed_is_described_in_words(role: str) -> None:
    (message,) = valid({"role": role, "content": [block("x"), IMAGE]})
    assert [one["type"] for one in message["content"]] == ["text", "text"]


def test_a_visibility_the_kernel_does_not_know_is_left_out() -> None:
    assert valid(user([{"type": "text", "text": "x", "visibility": "odd"}])) == [user([block("x")])]


def test_names_and_ids_that_are_no_text_are_left_out() -> None:
    assert valid(user("x", name=5, tool_call_id=7)) == [user("x")]
    assert valid(user("x", name=None, metadata=None)) == [user("x")]


def test_lone_surrogates_are_replaced_in_the_view_only() -> None:
    (message,) = valid(user("cut \ud83d", metadata={"\udc00": ["\ud83d"]}))
    assert message["content"] == "cut \ufffd"
    clean = user("é 😀")
    assert scrub(clean) is clean


# -- rows that are not sent --------------------------------------------------------------------------------------------


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
        ({}, False),
        (None, False),
    ],
    ids=str,
)
def test_retired_and_reference_only_rows_are_left_out(metadata: Any, left_out: bool) -> None:
    assert is_left_out(user("x", metadata=metadata)) is left_out
    assert (valid(user("x", metadata=metadata)) == []) is left_out


def test_a_round_whose_call_is_left_out_is_left_out_whole() -> None:
    assert valid(call("a", metadata=RETIRED), result("a")) == []


def test_a_result_that_is_left_out_is_replaced() -> None:
    assert valid(call("a"), result("a", metadata=RETIRED))[-1]["content"] == NO_RESULT


def test_bookkeeping_is_not_sent_and_other_metadata_is() -> None:
    message = user("x", timestamp="t", metadata={"timestamp": "t", "amplifier_public_message": {}, "cache": 1})
    assert sendable(message) == user("x", metadata={"cache": 1})
    assert sendable(user("x", metadata={"timestamp": "t"})) == user("x")


def test_response_ids_before_a_compaction_are_not_sent_after_it() -> None:
    metadata = {"openai:response_id": "resp_1", "other": 1}
    view = shown(user(), says("x", metadata=metadata), says("y", metadata=metadata), compacted_at=2)
    assert view[1]["metadata"] == {"other": 1}
    assert view[2]["metadata"] == metadata
    assert without_response_id(says("x", metadata={"openai:response_id": "r"})) == says("x")
    other = says("x")
    assert without_response_id(other) is other


# -- tables ------------------------------------------------------------------------------------------------------------


async def test_arguments_nested_deeper_than_a_message_may_be_break_no_view() -> None:
    deep = '{"a":' * 900 + "1" + "}" * 900
    messages = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "so"}],
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "use", "arguments": deep}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "d", "tool": "use", "arguments": deep}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "d", "content": "x"}]},
    ]
    manager = ContextManager(load_config({"token_counter": "heuristic"}), plugins=Plugins())
    for message in messages:
        await manager.add_message(message)
    view = await manager.get_messages_for_request()
    assert json.dumps(view).count("done") == 1
