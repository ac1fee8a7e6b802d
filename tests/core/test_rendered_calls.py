"""Calls and results as every provider accepts them: each call has its result after it, with ids and names in order."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.messages.parsing import ROLES, parse_message
from amplifier_context_core.rendering.renderer import NO_RESULT
from tests.core.rendered import fixes, valid
from tests.messages import IMAGE, block, call, result, says, user


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    view = valid(call("a", "b"), result("b"))
    assert view[-1] == {"role": "tool", "tool_call_id": "a", "content": NO_RESULT, "name": "read"}
    assert fixes(call("a")) == ["m1: an unanswered call is shown with a placeholder result"]


@pytest.mark.parametrize("role", sorted(ROLES))
@pytest.mark.parametrize("answered", [True, False])
def test_text_beside_results_leaves_in_a_role_providers_take(role: str, answered: bool) -> None:
    beside = [{"type": "tool_result", "tool_use_id": "a", "content": "out"}, block("beside"), IMAGE]
    view = valid(*([call("a")] if answered else []), {"role": role, "name": "f", "content": beside})
    last = view[-1]
    assert last["role"] == ("user" if role in ("tool", "function") else role)
    is_quoted = "<quoted_output>" in str(last["content"])
    assert is_quoted == (role in ("tool", "function"))
    assert "beside" in str(last["content"])
    assert "image" in str(last["content"])
    assert "name" not in last or not is_quoted
    assert parse_message(last)[1].human == (role == "user")


def test_a_result_without_its_call_becomes_a_note_no_human_wrote() -> None:
    (note,) = valid(result("lost", "the end of something", name="read"))
    assert note["role"] == "user"
    assert "the end of something" in note["content"]
    assert "read" in note["content"]
    assert "m2" in note["content"]
    assert not parse_message(note)[1].human


def test_an_id_used_again_gets_a_name_of_its_own_and_its_result_with_it() -> None:
    view = valid(call("a"), result("a", "first"), call("a"), result("a", "second"))
    assert view[0]["tool_calls"][0]["id"] == view[1]["tool_call_id"] == "a"
    assert view[2]["tool_calls"][0]["id"] == view[3]["tool_call_id"] == "a_m4"
    assert [view[1]["content"], view[3]["content"]] == ["first", "second"]


def test_a_call_stated_more_often_in_blocks_than_in_the_list_is_stated_once() -> None:
    stated = {"type": "tool_call", "id": "a", "name": "read", "input": {}}
    view = valid(says([stated, stated], tool_calls=[{"id": "a", "tool": "read", "arguments": {}}]), result("a"))
    assert view[0]["content"] == [stated]


def test_calls_on_a_user_message_become_words() -> None:
    (message, note) = valid(user("x", tool_calls=[{"id": "a", "tool": "plane", "arguments": {"on": 1}}]), result("a"))
    assert message == user('x\n[called plane({"on":1})]')
    assert note["role"] == "user"


def test_calls_on_a_message_of_results_become_words_too() -> None:
    blocks = [{"type": "tool_result", "tool_use_id": "a", "content": "one"}]
    view = valid(call("a"), user(blocks, tool_calls=[{"id": "b", "tool": "plane", "arguments": {}}]))
    assert view[-1]["content"] == "[called plane({})]"


def test_a_tool_message_calls_nothing() -> None:
    for calls in (None, [], [{"id": "b", "tool": "f", "arguments": {}}]):
        assert "tool_calls" not in valid(call("a"), result("a", tool_calls=calls))[-1]


@pytest.mark.parametrize(
    "item",
    [
        {"id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"id": "a", "type": "function", "function": {"name": "", "arguments": "{}"}},
        {"id": "a", "type": "function", "function": {"arguments": "{}"}},
        {"id": "a", "type": "function", "function": None, "name": "f"},
        {"id": "a", "tool": " ", "arguments": {}},
        {"id": "a", "name": "f", "input": {"x": 1}},
        {"id": "a", "tool": "f"},
    ],
    ids=str,
)
def test_calls_get_the_name_the_type_and_the_arguments_that_providers_ask_for(item: dict[str, Any]) -> None:
    valid(says(None, tool_calls=[item]), result("a"))
