"""Joining neighbours of one role, for models that demand strict alternation."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest

from amplifier_context_core.rendering.merge import merge_consecutive
from amplifier_context_testing import check_request, conversations
from tests.messages import SIGNED, Message, block, call, result, says, system, user


@pytest.mark.parametrize(
    ("messages", "merged"),
    [
        ([], []),
        ([user("a")], [user("a")]),
        ([user("a"), user("b"), user("c")], [user("a\n\nb\n\nc")]),
        ([says("a"), says("b")], [says("a\n\nb")]),
        ([user("a"), says("b"), user("c")], [user("a"), says("b"), user("c")]),
        ([user("a"), user([block("b")])], [user([block("a"), block("b")])]),
        ([user([block("a")]), user("b")], [user([block("a"), block("b")])]),
        ([says(""), says("b")], [says("b")]),
        ([says([block("a")]), says("")], [says([block("a")])]),
        ([system("a"), system("b")], [system("a"), system("b")]),
        ([user("a", name="anna"), user("b", name="ben")], [user("a\n\nb", name="anna")]),
    ],
    ids=str,
)
def test_neighbours_of_one_role_become_one(messages: list[Message], merged: list[Message]) -> None:
    assert merge_consecutive(messages) == merged


def test_calls_and_their_results_stay_apart() -> None:
    messages = [call("x"), result("x"), call("y"), result("y"), says("b")]
    assert merge_consecutive(messages) == messages


def test_text_before_a_call_is_merged_with_it() -> None:
    (merged, answer) = merge_consecutive([says("a"), call("x"), result("x")])
    assert merged == {**call("x"), "content": "a"}
    assert answer == result("x")


def test_a_mark_that_no_human_wrote_a_text_does_not_cover_a_humans() -> None:
    chapter = user("record", metadata={"source": "context-compaction", "kept": 1})
    (merged,) = merge_consecutive([chapter, user("mine", metadata={"kept": 1})])
    assert merged["metadata"] == {"kept": 1}


def test_what_is_joined_is_not_changed() -> None:
    messages = [user([block("a")]), user([block("b")]), user("c")]
    before = copy.deepcopy(messages)
    merge_consecutive(messages)
    assert messages == before


def test_merging_twice_is_merging_once() -> None:
    messages = [user("a"), user("b"), says("c"), says("d"), call("x"), result("x"), user("e"), user("f")]
    once = merge_consecutive(messages)
    assert merge_consecutive(once) == once


OTHER = {"type": "thinking", "thinking": "so", "signature": "c28"}


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ("a", [SIGNED, block("b")], [SIGNED, block("a"), block("b")]),
        ([SIGNED, block("a")], "b", [SIGNED, block("a"), block("b")]),
        ([SIGNED, block("a")], [OTHER, block("b")], [SIGNED, block("a"), OTHER, block("b")]),
        ("a", [SIGNED, OTHER, block("b")], [SIGNED, OTHER, block("a"), block("b")]),
        ("a", [SIGNED], [SIGNED, block("a")]),
        ("", [SIGNED, block("b")], [SIGNED, block("b")]),
    ],
    ids=str,
)
def test_all_thinking_stays_and_begins_the_message(first: object, second: object, merged: object) -> None:
    messages = merge_consecutive(
        [user("x"), says(first), says(second, tool_calls=call("c")["tool_calls"]), result("c")]
    )
    assert check_request(messages) == []
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["content"] == merged


def test_copies_of_thinking_are_those_of_the_last_message_that_has_any() -> None:
    (merged,) = merge_consecutive([says("a", thinking_block=SIGNED), says("b", thinking_block=OTHER)])
    assert merged["thinking_block"] == OTHER
    (merged,) = merge_consecutive([says("a", thinking_block=SIGNED), says("b")])
    assert merged["thinking_block"] == SIGNED


def test_a_merged_view_of_every_odd_conversation_alternates_and_is_valid() -> None:
    from .test_renderer import shown

    for conversation in conversations():
        view = [message for message in shown(*conversation.messages) if message["role"] not in ("system", "developer")]
        if not any(message["role"] == "user" for message in view) or view[0]["role"] != "user":
            continue
        merged = merge_consecutive(view)
        assert check_request(merged) == [], conversation.name
        for before, after in pairwise(merged):
            assert before["role"] != "user" or after["role"] != "user", conversation.name
