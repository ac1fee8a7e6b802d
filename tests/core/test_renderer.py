"""Rendering: what history stored becomes what every provider takes, by rules that say what they did."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from amplifier_context_core import ContextManager, Plugins, load_config
from amplifier_context_core.compaction.checkpoint import Draft, segment_of
from amplifier_context_core.compaction.strategies import ClipToolOutputs, Goal, SupersedeStaleReads
from amplifier_context_core.messages.parsing import ROLES, parse_message
from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.messages.usage import Response
from amplifier_context_core.rendering.renderer import (
    EMPTY_MESSAGE,
    INTERRUPTED,
    NO_OUTPUT,
    NO_RESULT,
    OPENING,
    RenderedRound,
    Renderer,
    short_result,
)
from amplifier_context_core.rendering.rounds import rounds_of
from amplifier_context_core.rendering.sendable import is_left_out, scrub, sendable, without_response_id
from amplifier_context_core.rendering.summaries import ResultSummaries, Summaries
from amplifier_context_core.rendering.thinking import without_thinking
from amplifier_context_core.transcript.transcript import Transcript
from amplifier_context_testing import check_request, conversations
from amplifier_context_testing.checks.thinking_checker import RequiredThinkingChecker

from .support import PNG_1X1, Message, block, call, result, rounds, says, transcript, user

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_1X1}}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "cmVk"}


def renderings(*messages: Message, **settings: Any) -> list[RenderedRound]:
    """Every round rendered, ids claimed in order."""
    settings = {"output_limit": 100_000, **settings}
    renderer = Renderer(approx_token_counter, **settings)
    history = transcript(messages)
    for entry in history.snapshot():
        renderer.register_calls(entry)
    return [renderer.render(round_) for round_ in rounds_of(history.snapshot())]


def shown(*messages: Message, **settings: Any) -> list[Message]:
    return [one.message for rendering in renderings(*messages, **settings) for one in rendering.messages]


def fixes(*messages: Message, **settings: Any) -> list[str]:
    return [fix for rendering in renderings(*messages, **settings) for fix in rendering.fixes]


def valid(*messages: Message, **settings: Any) -> list[Message]:
    """The messages as shown after a prompt, held to every provider's rules."""
    view = shown(user("Start."), *messages, **settings)
    assert check_request(view) == []
    return view[1:]


# -- what needs no mending --------------------------------------------------------------------------------------------


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
def test_every_odd_conversation_becomes_valid(name: str) -> None:
    (messages,) = (c.messages for c in conversations() if c.name == name)
    view = shown(*messages)
    if view and view[0]["role"] in ("assistant", "tool"):
        view.insert(0, OPENING)
    if any(message["role"] == "user" for message in view):
        assert check_request(view) == []


@pytest.mark.parametrize("name", [conversation.name for conversation in conversations() if conversation.messages])
def test_what_was_rendered_needs_no_more_mending(name: str) -> None:
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


# -- calls and results ------------------------------------------------------------------------------------------------


def test_results_are_shown_right_after_their_calls_in_the_order_they_came() -> None:
    view = valid(call("a", "b", "c"), result("c"), user("Still there?"), result("a"), result("b"))
    assert [message.get("tool_call_id") for message in view] == [None, "c", "a", "b", None]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    view = valid(call("a", "b"), result("b"))
    assert view[-1] == {"role": "tool", "tool_call_id": "a", "content": NO_RESULT, "name": "read"}
    assert fixes(call("a")) == ["m1: an unanswered call is shown with a stand-in result"]


def test_a_call_that_was_interrupted_says_that() -> None:
    view = shown(user("Start."), call("a"), interrupted=frozenset({1}))
    assert view[-1]["content"] == INTERRUPTED
    assert shown(user("Start."), call("a"), interrupted=frozenset({2}))[-1]["content"] == NO_RESULT


@pytest.mark.parametrize("role", sorted(ROLES))
@pytest.mark.parametrize("answered", [True, False])
def test_what_is_said_beside_results_leaves_in_a_role_providers_take(role: str, answered: bool) -> None:
    beside = [{"type": "tool_result", "tool_use_id": "a", "content": "out"}, block("beside"), IMAGE]
    view = valid(*([call("a")] if answered else []), {"role": role, "name": "f", "content": beside})
    said = view[-1]
    assert said["role"] == ("user" if role in ("tool", "function") else role)
    fenced = "<quoted_output>" in str(said["content"])
    assert fenced == (role in ("tool", "function"))
    assert "beside" in str(said["content"])
    assert "image" in str(said["content"])
    assert "name" not in said or not fenced
    assert parse_message(said)[1].human == (role == "user")


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


# -- texts, blocks, roles ---------------------------------------------------------------------------------------------


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
def test_an_image_without_a_source_is_told_in_words(image: dict[str, Any]) -> None:
    (message,) = valid(user([image]))
    assert message["content"][0]["type"] == "text"


@pytest.mark.parametrize("role", ["assistant", "system", "developer"])
def test_an_image_where_none_may_stand_is_told_in_words(role: str) -> None:
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


# -- thinking ---------------------------------------------------------------------------------------------------------


def test_signed_thinking_at_the_start_is_kept_byte_exact() -> None:
    content = [SIGNED, REDACTED, block("x"), SIGNED, block("y")]
    assert valid(says(content))[0]["content"] == content


@pytest.mark.parametrize(
    "content",
    [[block("x"), SIGNED, block("y")], [block("x"), REDACTED], [SIGNED, block("x"), SIGNED], [block("x"), SIGNED]],
    ids=str,
)
def test_thinking_where_no_provider_takes_it_is_dropped_whole(content: list[Any]) -> None:
    (message,) = valid(says(content))
    assert all(one["type"] == "text" for one in message["content"])
    assert valid(says([*content, block("z")], tool_calls=[{"id": "a", "tool": "f", "arguments": {}}]), result("a"))


@pytest.mark.parametrize("content", [[SIGNED], [REDACTED], [SIGNED, block(" ")]], ids=str)
def test_thinking_alone_is_no_message(content: list[Any]) -> None:
    assert valid(says(content)) == []
    view = valid(says(content, tool_calls=[{"id": "a", "tool": "f", "arguments": {}}]), result("a"))
    assert view[0]["content"][0] in (SIGNED, REDACTED)


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "thinking"},
        {"type": "thinking", "thinking": None},
        {"type": "thinking", "thinking": "x", "signature": 5},
        {"type": "thinking", "thinking": "x", "content": "sealed"},
        {"type": "redacted_thinking"},
        {"type": "reasoning"},
        {"type": "reasoning", "content": None, "summary": "x"},
    ],
    ids=str,
)
def test_thinking_the_kernel_refuses_is_mended_or_left_out(odd: dict[str, Any]) -> None:
    (message,) = valid(says([odd, block("x")]))
    assert message["content"][-1] == block("x")


def test_nobody_but_the_assistant_thinks() -> None:
    assert valid(user([SIGNED, block("x")]), result("lost", [SIGNED, block("y")]))[0] == user([block("x")])


def test_without_thinking_a_message_keeps_the_rest_or_is_nothing() -> None:
    assert without_thinking(says([SIGNED, block("x")])) == says([block("x")])
    assert without_thinking(says([SIGNED])) is None
    assert without_thinking(says("x")) == says("x")
    calls = says([SIGNED], tool_calls=[{"id": "a", "tool": "f", "arguments": {}}])
    assert without_thinking(calls) == {**calls, "content": ""}


def test_who_wrote_a_message_is_known_to_its_rendering() -> None:
    history = Transcript()
    message, info = parse_message(says("x"))
    history.append(history.draft(message, info, 5, created="", response=Response(provider="anthropic")))
    rendering = Renderer(approx_token_counter, 1_000).render(rounds_of(history.snapshot())[0])
    assert rendering.messages[0].provider == "anthropic"


# -- rows that are not sent -------------------------------------------------------------------------------------------

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


def test_a_result_that_is_left_out_is_stood_in_for() -> None:
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


# -- giants -----------------------------------------------------------------------------------------------------------

GIANT = "\n".join(f"row {number:05d}" for number in range(5_000))


def test_an_output_larger_than_its_share_is_clipped_with_its_mark() -> None:
    view = valid(call("a"), result("a", GIANT), output_limit=500)
    assert view[1]["content"].startswith("row 00000")
    assert view[1]["content"].endswith("row 04999")
    assert "m3" in view[1]["content"]
    assert count_message_tokens(view[1]) <= 520
    assert "an output larger than its share is clipped" in fixes(call("a"), result("a", GIANT), output_limit=500)[0]


def test_an_output_within_its_share_is_whole() -> None:
    assert valid(call("a"), result("a", GIANT))[1]["content"] == GIANT


def test_an_output_with_more_bytes_than_may_be_shown_is_clipped_whatever_its_tokens() -> None:
    assert len(valid(call("a"), result("a", GIANT), output_bytes=1_000)[1]["content"]) <= 1_000


def test_an_orphan_is_clipped_as_well() -> None:
    (note,) = valid(result("lost", GIANT), output_limit=500)
    assert len(note["content"]) <= 1_700
    assert "m2" in note["content"]


@pytest.mark.parametrize(
    ("message", "summaries"),
    [
        (result("a", GIANT, metadata={"compact_summary": "five thousand rows"}), {}),
        (result("a", GIANT), {3: {"a": "five thousand rows"}}),
        (result("a", GIANT, metadata={"compact_summary": "older"}), {3: {"a": "five thousand rows"}}),
        (
            user(
                [{"type": "tool_result", "tool_use_id": "a", "content": GIANT, "compact_summary": "five thousand rows"}]
            ),
            {},
        ),
    ],
    ids=["metadata", "registered", "registered wins", "block"],
)
def test_a_giant_with_a_short_form_of_its_own_is_shown_by_it(message: Message, summaries: Summaries) -> None:
    assert valid(call("a"), message, output_limit=500, summaries=summaries)[1]["content"] == "five thousand rows"


@pytest.mark.parametrize("summary", ["", " ", None, 5, ["x"]])
def test_a_short_form_that_says_nothing_is_none(summary: Any) -> None:
    (round_,) = rounds(call("a"), result("a", "out", metadata={"compact_summary": summary}))
    assert ResultSummaries({}).of(round_.entries[1], "a") is None


def test_a_short_result_is_never_empty() -> None:
    (round_,) = rounds(call("a"), result("a", ""))
    assert short_result(result("a", ""), round_.entries[1], "a", 100, ResultSummaries({}))["content"] == NO_OUTPUT


def test_words_beside_results_in_a_tool_message_stay_as_a_quoted_note() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": "one"},
        {"type": "tool_result", "tool_use_id": "b", "content": "two"},
        block("Both read."),
    ]
    rendering = renderings(user("Start."), call("a", "b"), {"role": "tool", "content": blocks})[1]
    assert [one.message["content"] for one in rendering.messages[1:3]] == ["one", "two"]
    note = rendering.messages[3].message
    assert (note["role"], "Both read." in note["content"], note["content"][:15]) == ("user", True, "<quoted_output>")
    assert not parse_message(rendering.messages[-1].message)[1].human
    for one in rendering.messages:
        assert one.tokens == count_message_tokens(one.message)


@pytest.mark.parametrize(
    "content",
    [
        [block("Be careful."), IMAGE],
        [block(""), block("Be careful.")],
        [block("Be careful."), {"type": "file", "path": "rules.md"}],
        [{"type": "thinking", "thinking": "hm"}, block("Be careful.")],
        [block(" ")],
    ],
    ids=str,
)
async def test_a_system_prompt_in_blocks_is_valid(content: list[Any]) -> None:
    manager = ContextManager(load_config({"token_counter": "heuristic"}), plugins=Plugins())
    await manager.add_message({"role": "system", "content": content})
    await manager.add_message(user("Start."))
    view = await manager.get_messages_for_request(token_budget=5_000)
    assert check_request(view) == []
    assert (await manager.explain())["view"]["counted"] == sum(count_message_tokens(message) for message in view)


# -- tables -----------------------------------------------------------------------------------------------------------

RECORDS = json.dumps([{"flight_number": f"HAT{n}", "price": n} for n in range(40)])


def told(content: str, **settings: Any) -> RenderedRound:
    history = transcript([user("go"), call("a"), result("a", content)])
    renderer = Renderer(approx_token_counter, **settings)
    return renderer.render(rounds_of(history.snapshot())[1])


def test_a_large_output_in_json_is_shown_as_a_table_and_says_so() -> None:
    rendering = told(RECORDS, output_limit=1_000, tables=True)
    assert rendering.messages[1].message["content"].startswith("(flight_number,price):\n[(HAT0,0)\n")
    assert rendering.fixes == ("m3: an output in JSON is shown as a table",)


@pytest.mark.parametrize("settings", [{"output_limit": 10_000, "tables": True}, {"output_limit": 1_000}])
def test_a_small_one_or_where_tables_are_not_wanted_is_shown_as_it_is(settings: dict[str, Any]) -> None:
    assert told(RECORDS, **settings).messages[1].message["content"] == RECORDS


def test_a_table_larger_than_its_share_is_clipped() -> None:
    rendering = told(RECORDS, output_limit=80, tables=True)
    text = rendering.messages[1].message["content"]
    assert text.startswith("(flight_number,price):\n[(HAT0,0)\n")
    assert "characters cut, whole text: m3" in text
    assert rendering.messages[1].tokens <= 100


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


def test_a_call_that_only_a_block_states_keeps_its_signature() -> None:
    uses = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in ("a", "b", "c")]
    uses[0]["signature"], uses[2]["signature"] = "c2ln", 7
    (rendered,) = renderings(says([*uses]), result("a"), result("b"), result("c"))
    listed = rendered.messages[0].message["tool_calls"]
    assert [call.get("signature") for call in listed] == ["c2ln", None, None]


def test_the_checker_of_required_thinking_misses_a_signature_that_a_call_lost() -> None:
    call = {"id": "a", "tool": "read", "arguments": {}}
    signed = {**call, "signature": "c2ln"}
    use = {"type": "tool_use", "id": "a", "name": "read", "input": {}, "signature": "c2ln"}
    for answer in (says("", tool_calls=[signed]), says([use])):
        checker = RequiredThinkingChecker()
        checker.answered([user()], answer)
        assert checker.check([user(), says("", tool_calls=[signed]), result("a")]) == []
        for other in ([call], [{**call, "signature": "b3Ro"}]):
            assert len(checker.check([user(), says("", tool_calls=other), result("a")])) == 1
        assert checker.check([user(), says("", tool_calls=[call]), result("a"), user("Next.")]) == []
