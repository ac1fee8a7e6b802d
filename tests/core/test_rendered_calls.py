"""Calls and results as every provider accepts them: each call has its result after it, with ids and names in order."""

from __future__ import annotations

import re
from typing import Any

import pytest

from amplifier_context_core import ContextManager, Plugins, load_config
from amplifier_context_core.compaction.checkpoint import Draft, segment_of
from amplifier_context_core.compaction.strategies import ClipToolOutputs, Goal, SupersedeStaleReads
from amplifier_context_core.messages.parsing import ROLES, parse_message
from amplifier_context_core.rendering.renderer import (
    INTERRUPTED,
    NO_OUTPUT,
    NO_RESULT,
)
from amplifier_context_core.rendering.rounds import rounds_of
from amplifier_context_testing import check_request
from tests.core.drafts import transcript
from tests.core.rendered import GIANT, fixes, renderings, shown, valid
from tests.messages import IMAGE, Message, block, call, result, says, user


def test_results_are_shown_right_after_their_calls_in_the_order_they_came() -> None:
    view = valid(call("a", "b", "c"), result("c"), user("Still there?"), result("a"), result("b"))
    assert [message.get("tool_call_id") for message in view] == [None, "c", "a", "b", None]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    view = valid(call("a", "b"), result("b"))
    assert view[-1] == {"role": "tool", "tool_call_id": "a", "content": NO_RESULT, "name": "read"}
    assert fixes(call("a")) == ["m1: an unanswered call is shown with a placeholder result"]


def test_a_call_that_was_interrupted_says_that() -> None:
    view = shown(user("Start."), call("a"), interrupted=frozenset({1}))
    assert view[-1]["content"] == INTERRUPTED
    assert shown(user("Start."), call("a"), interrupted=frozenset({2}))[-1]["content"] == NO_RESULT


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


def test_a_function_result_is_clipped_as_a_tool_result_is() -> None:
    (note,) = valid({"role": "function", "name": "look_up", "content": GIANT}, output_limit=500)
    assert len(note["content"]) <= 1_700
    assert "m2" in note["content"]


def test_a_result_without_its_call_becomes_a_note_no_human_wrote() -> None:
    (note,) = valid(result("lost", "the end of something", name="read"))
    assert note["role"] == "user"
    assert "the end of something" in note["content"]
    assert "read" in note["content"]
    assert "m2" in note["content"]
    assert not parse_message(note)[1].human


@pytest.mark.parametrize("content", [None, "", " \n", [], [block("")], [{"type": "thinking"}]], ids=str)
def test_an_empty_output_says_that_it_is_empty(content: Any) -> None:
    assert valid(call("a"), result("a", content))[-1]["content"] == NO_OUTPUT
    assert NO_OUTPUT in valid(result("lost", content))[-1]["content"]


def test_an_id_used_again_gets_a_name_of_its_own_and_its_result_with_it() -> None:
    view = valid(call("a"), result("a", "first"), call("a"), result("a", "second"))
    assert view[0]["tool_calls"][0]["id"] == view[1]["tool_call_id"] == "a"
    assert view[2]["tool_calls"][0]["id"] == view[3]["tool_call_id"] == "a_m4"
    assert [view[1]["content"], view[3]["content"]] == ["first", "second"]


def test_an_id_used_twice_in_one_message_gets_two_names() -> None:
    view = valid(call("a", "a"), result("a", "first"), result("a", "second"))
    assert [item["id"] for item in view[0]["tool_calls"]] == ["a", "a_m2_1"]
    assert [(message["tool_call_id"], message["content"]) for message in view[1:]] == [
        ("a", "first"),
        ("a_m2_1", "second"),
    ]


@pytest.mark.parametrize("organic", ["a_m4", "a_m3"])
def test_a_name_that_is_given_is_not_one_that_is_taken(organic: str) -> None:
    """An id that looks like one of ours: whichever comes first keeps it."""
    valid(call("a"), result("a"), call("a"), result("a"), call(organic), result(organic))
    valid(call(organic), result(organic), call("a"), result("a"), call("a"), result("a"))


def test_an_id_or_a_name_that_a_provider_refuses_is_sent_in_another_form_everywhere() -> None:
    stated = {"type": "tool_call", "id": "functions.read:0", "name": "web.read", "input": {}}
    listed = {"id": "functions.read:0", "tool": "web.read", "name": "web.read", "arguments": {}}
    messages = [says([stated], tool_calls=[listed]), result("functions.read:0", name="web.read")]
    view = valid(*messages)
    sent = view[0]["tool_calls"][0]
    assert view[0]["content"][0]["id"] == sent["id"] == view[1]["tool_call_id"]
    assert view[0]["content"][0]["name"] == sent["tool"] == sent["name"] == view[1]["name"]
    assert fixes(*messages) == ["m1: an id or a name that a provider refuses is sent in another form"]
    assert valid(call("functions.read:0", name="web.read"))[1]["name"] == sent["tool"]


def test_a_speaker_that_a_provider_refuses_is_sent_in_another_form() -> None:
    (message,) = valid(user("x", name="Dr. No"))
    assert message["name"].startswith("Dr_No_")
    assert valid(user("x", name=" ")) == [user("x")]
    assert fixes(user("x", name="Dr. No")) == ["m1: an id or a name that a provider refuses is sent in another form"]


@pytest.mark.parametrize("calls", [[call("a"), result("a")], []], ids=["reused", "refused"])
def test_a_call_sent_under_another_id_goes_without_the_handle_of_what_the_server_holds(calls: list[Message]) -> None:
    """The server holds the call under the id it gave; a result under another would answer no call there."""
    metadata = {"openai:response_id": "resp_1", "cache": 1}
    call_id = "a" if calls else "a.b"
    view = valid(*calls, call(call_id, metadata=metadata), result(call_id))
    assert view[-2]["metadata"] == {"cache": 1}
    assert valid(call("a", metadata=metadata), result("a"))[0]["metadata"] == metadata


async def test_short_forms_and_later_calls_find_a_result_whose_id_was_replaced() -> None:
    """Strategies know a result by the id its call has in the history."""
    blocks = [
        {"type": "tool_result", "tool_use_id": "a.1", "content": GIANT},
        {"type": "tool_result", "tool_use_id": "a.2", "content": GIANT},
    ]
    first = says(None, tool_calls=[{"id": f"a.{n}", "tool": "read", "arguments": {"n": n}} for n in (1, 2)])
    again = says(None, tool_calls=[{"id": "b.2", "tool": "read", "arguments": {"n": 2}}])
    rendered = renderings(user("Start."), first, user(blocks), again, result("b.2"), says("Done."))
    history = transcript([user("Start."), first, user(blocks), again, result("b.2"), says("Done.")])
    found = rounds_of(history.snapshot())
    draft = Draft(tuple(segment_of(one, shown.messages) for one, shown in zip(found, rendered, strict=True)))
    goal = Goal(0, 0, summaries={3: {"a.1": "the first in short"}})
    superseded = await SupersedeStaleReads().apply(draft, goal)
    assert superseded.segments[1].shown[2].message["content"].startswith("[superseded: ")
    clipped = await ClipToolOutputs(100).apply(draft, goal)
    assert clipped.segments[1].shown[1].message["content"] == "the first in short"


class _Provider:
    def __init__(self, name: str) -> None:
        self.name = name


async def test_a_model_of_mistral_s_is_sent_ids_it_accepts_and_other_providers_theirs() -> None:
    manager = ContextManager(load_config({"token_counter": "heuristic"}), plugins=Plugins())
    for message in (user("Start."), call("call_abc"), result("call_abc")):
        await manager.add_message(message)
    short = await manager.get_messages_for_request(provider=_Provider("mistral"))
    assert re.fullmatch("[a-zA-Z0-9]{9}", short[2]["tool_call_id"])
    assert check_request(short) == []
    assert short == await manager.get_messages_for_request(provider=_Provider("mistral"))
    other = await manager.get_messages_for_request(provider=_Provider("openai"))
    assert other[2]["tool_call_id"] == "call_abc"


def test_blocks_and_list_keep_agreeing_on_ids() -> None:
    both = says(
        [{"type": "tool_call", "id": "a", "name": "read", "input": {}}],
        tool_calls=[{"id": "a", "tool": "read", "arguments": {}}],
    )
    view = valid(both, result("a"), both, result("a"))
    assert view[2]["content"][0]["id"] == view[2]["tool_calls"][0]["id"] == view[3]["tool_call_id"] == "a_m4"


def test_a_call_stated_more_often_in_blocks_than_in_the_list_is_stated_once() -> None:
    stated = {"type": "tool_call", "id": "a", "name": "read", "input": {}}
    view = valid(says([stated, stated], tool_calls=[{"id": "a", "tool": "read", "arguments": {}}]), result("a"))
    assert view[0]["content"] == [stated]


def test_calls_in_blocks_alone_are_listed_as_well() -> None:
    (message, _) = valid(says([{"type": "tool_use", "id": "a", "name": "read", "input": {"p": 1}}]), result("a"))
    assert message["tool_calls"] == [{"id": "a", "tool": "read", "arguments": {"p": 1}}]
    assert message["content"][0]["type"] == "tool_call"


def test_results_in_a_user_message_become_tool_messages_and_its_words_stay_the_users() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": "one", "is_error": True},
        {"type": "tool_result", "tool_call_id": "b", "output": "two"},
        block("And now?"),
    ]
    view = valid(call("a", "b"), user(blocks))
    assert [(message["role"], message["content"]) for message in view[1:]] == [
        ("tool", "one"),
        ("tool", "two"),
        ("user", [block("And now?")]),
    ]


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


def test_an_assistant_message_that_answers_itself_is_shown_once() -> None:
    content = [block("Let me see."), {"type": "tool_result", "tool_call_id": "a", "output": "out"}]
    view = valid(says(content, tool_calls=[{"id": "a", "tool": "f", "arguments": {}}]))
    assert [message["role"] for message in view] == ["assistant", "tool"]
    assert view[1]["content"] == "out"


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"path": "a"}', '{"path": "a"}'),
        ('{"path": ', '{"unparsed_arguments":"{\\"path\\": "}'),
        ("[1, 2]", '{"value":[1,2]}'),
        ("", "{}"),
        ("null", '{"value":null}'),
        (None, "{}"),
        ({"path": "a"}, '{"path":"a"}'),
        (7, '{"value":7}'),
    ],
    ids=str,
)
def test_arguments_are_sent_as_the_text_of_an_object(arguments: Any, sent: str) -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}]
    assert valid(says(None, tool_calls=calls), result("a"))[0]["tool_calls"][0]["function"]["arguments"] == sent


@pytest.mark.parametrize(
    "item",
    [
        {"id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"id": "a", "type": "function", "function": {"name": "", "arguments": "{}"}},
        {"id": "a", "type": "function", "function": {"name": " ", "arguments": "{}"}},
        {"id": "a", "type": "function", "function": {"arguments": "{}"}},
        {"id": "a", "type": "function", "function": None, "name": "f"},
        {"id": "a", "tool": " ", "arguments": {}},
        {"id": "a", "name": "f", "arguments": "{}"},
        {"id": "a", "name": "f", "input": {"x": 1}},
        {"id": "a", "tool": "f"},
        {"id": "a"},
    ],
    ids=str,
)
def test_calls_get_the_name_the_type_and_the_arguments_that_providers_ask_for(item: dict[str, Any]) -> None:
    valid(says(None, tool_calls=[item]), result("a"))
