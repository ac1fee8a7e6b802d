"""Joining neighbours of one role, for models that demand strict alternation."""

from __future__ import annotations

import pytest

from amplifier_context_core.rendering.merge import merge_consecutive
from amplifier_context_testing import check_request
from tests.messages import SIGNED, Message, block, call, result, says, system, user


@pytest.mark.parametrize(
    ("messages", "merged"),
    [
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


def test_a_mark_that_no_human_wrote_a_text_does_not_cover_a_humans() -> None:
    chapter = user("record", metadata={"source": "context-compaction", "kept": 1})
    (merged,) = merge_consecutive([chapter, user("mine", metadata={"kept": 1})])
    assert merged["metadata"] == {"kept": 1}


OTHER = {"type": "thinking", "thinking": "so", "signature": "c28"}


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ("a", [SIGNED, block("b")], [SIGNED, block("a"), block("b")]),
        ([SIGNED, block("a")], [OTHER, block("b")], [SIGNED, block("a"), OTHER, block("b")]),
        ("a", [SIGNED, OTHER, block("b")], [SIGNED, OTHER, block("a"), block("b")]),
        ("a", [SIGNED], [SIGNED, block("a")]),
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
