"""Rendering: what history stored becomes what every provider takes: rounds, calls, ids, names, roles."""

import copy
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core.rendering.merge import merge_consecutive
from amplifier_context_core.rendering.provider_limits import (
    CALL_IDS,
    SHORT_CALL_ID,
    SPEAKER_NAMES,
    TOOL_NAMES,
    safe_call_id,
    safe_speaker_name,
    safe_tool_name,
    wants_short_ids,
    with_short_ids,
)
from amplifier_context_core.rendering.renderer import NO_RESULT
from amplifier_context_core.rendering.rounds import REACH, Round, RoundList, rounds_with
from tests.core.drafts import fixes, transcript, valid
from tests.messages import IMAGE, SIGNED, Message, block, call, result, says, system, user

STATED = {"type": "tool_call", "id": "a", "name": "read", "input": {}}
LISTED = [{"id": "a", "tool": "read", "arguments": {}}]


@pytest.mark.parametrize(
    "round_",
    [
        [says("Hello.", metadata={"openai:reasoning_items": ["rs_1"]}, unknown={"kept": True})],
        [system("A notice.")],
        [call("a", "b"), result("a"), result("b", [block("x"), IMAGE])],
        [says([SIGNED, block("x"), {**STATED, "visibility": None}], tool_calls=LISTED), result("a", name="read")],
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


ODD_CALLS = [
    *({"function": {"name": name, "arguments": "{}"}, "type": "function"} for name in ("", None)),
    *({"function": {"name": "f", "arguments": "{}"}}, {"function": None, "type": "function", "name": "f"}),
    *({"tool": " ", "arguments": {}}, {"name": "f", "input": {"x": 1}}, {"tool": "f"}),
]
ODD_BLOCKS = [
    *({"type": "image", **source} for source in ({}, {"source": "x"}, {"source": {"type": "base64"}})),
    *({"type": "image_url", "image_url": url} for url in (None, {"url": "data:image/png;base64,"})),
    *({"type": "thinking", **more} for more in ({}, {"thinking": "x", "signature": 5})),
    *({"type": "redacted_thinking"}, {"type": "reasoning", "content": None, "summary": "x"}),
]


@pytest.mark.parametrize("odd", [*ODD_CALLS, *ODD_BLOCKS], ids=str)
def test_what_the_kernel_or_a_provider_refuses_is_described_completed_or_left_out(odd: Message) -> None:
    if odd in ODD_CALLS:
        assert valid(says(None, tool_calls=[{"id": "a", **odd}]), result("a"))[0]["tool_calls"]
    else:
        message = (user if "image" in odd["type"] else says)([odd, block("x")])
        assert valid(message)[0]["content"][-1]["type"] == "text"


# -- calls and results -------------------------------------------------------------------------------------------------
def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    view = valid(call("a", "b"), result("b"))
    assert view[-1] == {"role": "tool", "tool_call_id": "a", "content": NO_RESULT, "name": "read"}
    assert fixes(call("a")) == ["m1: an unanswered call is shown with a placeholder result"]


def test_an_id_used_again_gets_a_name_of_its_own_and_its_result_with_it() -> None:
    view = valid(call("a"), result("a", "first"), call("a"), result("a", "second"))
    ids = [(view[at]["tool_calls"][0]["id"], view[at + 1]["tool_call_id"]) for at in (0, 2)]
    assert ids == [("a", "a"), ("a_m4", "a_m4")]
    assert [view[1]["content"], view[3]["content"]] == ["first", "second"]
    view = valid(says([STATED, STATED], tool_calls=LISTED), result("a"))
    assert view[0]["content"] == [STATED], "a call stated more often in blocks than in the list is stated once"


# -- rounds: what must stay together does, in every order it may come --------------------------------------------------
def marks(found: list[Round]) -> list[list[int]]:
    return [[entry.seq for entry in one.entries] for one in found]


NOTE = user("note", metadata={"source": "hook"})


def closed(*messages: Message) -> int:
    return RoundList(transcript(messages).snapshot()).closed


def test_a_round_with_an_open_call_is_not_closed_nor_is_what_follows_it() -> None:
    assert closed(user(), call("a", "b"), result("a")) == 1
    assert closed(user(), call("a"), call("b"), result("b")) == 1
    assert closed(user(), call("a"), NOTE, says()) == 1
    summary = "This session is being continued from a previous conversation that ran out of context. On a.py."
    for in_its_place in (summary, "And?"):
        assert closed(user(), call("a"), user(in_its_place), says()) == 4


def test_the_round_of_an_entry_is_the_same_alone_and_among_others() -> None:
    talk = [user(), call("a", "b"), result("a"), *[user()] * (2 * REACH + 9), call("c"), result("c"), says()]
    history = transcript(talk).snapshot()
    wanted = {3, REACH + 5, len(talk) - 1}
    together = rounds_with(wanted | {len(talk) + 1}, history)
    assert together == {seq: rounds_with({seq}, history)[seq] for seq in wanted}
    assert marks([together[3], together[len(talk) - 1]]) == [[2, 3], [len(talk) - 2, len(talk) - 1]]


# -- neighbours of one role joined -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("messages", "merged"),
    [
        ([user("a"), user("b"), says("c"), user("d")], [user("a\n\nb"), says("c"), user("d")]),
        ([user("a"), user([block("b")])], [user([block("a"), block("b")])]),
        ([says(""), says("b")], [says("b")]),
        ([says([block("a")]), says("")], [says([block("a")])]),
        ([system("a"), system("b")], [system("a"), system("b")]),
        ([user("a", name="anna"), user("b", name="ben")], [user("a\n\nb", name="anna")]),
        # A mark that no human wrote a text does not cover a human's.
        (
            [user("a", metadata={"source": "context-compaction", "kept": 1}), user("b", metadata={"kept": 1})],
            [user("a\n\nb", metadata={"kept": 1})],
        ),
    ],
    ids=str,
)
def test_neighbours_of_one_role_become_one(messages: list[Message], merged: list[Message]) -> None:
    assert merge_consecutive(messages) == merged


# -- ids and names -----------------------------------------------------------------------------------------------------
FORMS = {
    "id": (safe_call_id, CALL_IDS),
    "tool": (safe_tool_name, TOOL_NAMES),
    "name": (safe_speaker_name, SPEAKER_NAMES),
}
TEXTS = st.text(min_size=1, max_size=80) | st.from_regex(r"[a-zA-Z0-9_.:|-]{1,90}", fullmatch=True)


@pytest.mark.parametrize("kind", FORMS)
@given(pair=st.tuples(TEXTS, TEXTS).filter(lambda pair: pair[0] != pair[1]))
@example(pair=("a.b", "a_b"))
@example(pair=("a.b", "a:b"))
@example(pair=("x" * 200, "x" * 201))
@example(pair=("call 1", "call_1"))
@example(pair=("\ud83d", "\ufffd"))
@example(pair=("functions.bash:0", "x\n"))
@example(pair=("-1", "9" * 64))
@example(pair=("\u691c\u7d22", "x"))
def test_every_form_is_accepted_by_every_provider_of_the_table_and_is_of_one_original(
    kind: str, pair: tuple[str, str]
) -> None:
    safe, limits = FORMS[kind]
    forms = [safe(text) for text in pair]
    assert all(re.fullmatch(limit.pattern, form) for limit in limits for form in forms)
    assert [safe(form) for form in forms] == forms
    assert forms[0] != forms[1]


def test_what_every_provider_accepts_is_sent_as_it_is() -> None:
    for kind, texts in (("id", "toolu_01A-b 3 - 123e4567-e89b-12d3-a456-426614174000"), ("tool", "mcp__git-hub__2 _x")):
        assert all(FORMS[kind][0](text) == text for text in (*texts.split(), "n" * 40))
    assert all(safe_speaker_name(name) == name for name in ("expert_1", "3PO", "n" * 64))


def test_short_ids_are_nine_letters_or_digits_alike_in_calls_blocks_and_results() -> None:
    view = [user("Go."), says([block("x"), STATED], tool_calls=LISTED), result("a"), call("aB3dE6gH9")]
    before = copy.deepcopy(view)
    short = with_short_ids(view)
    assert before == view
    assert (short[0], short[3]) == (view[0], view[3])
    id = short[1]["tool_calls"][0]["id"]
    assert short[1]["content"][1]["id"] == short[2]["tool_call_id"] == id
    assert re.fullmatch(SHORT_CALL_ID.pattern, id)


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=30, unique=True))
def test_short_ids_are_unique_and_those_of_a_longer_view_begin_with_those_of_a_shorter(ids: list[str]) -> None:
    whole = with_short_ids([call(*ids), *map(result, ids)])
    found = [item["id"] for item in whole[0]["tool_calls"]]
    assert len(set(found)) == len(ids)
    assert [message["tool_call_id"] for message in whole[1:]] == found
    assert with_short_ids([call(ids[0])])[0]["tool_calls"][0]["id"] == found[0]


def test_a_model_of_mistral_s_is_known_by_its_names() -> None:
    for provider, model in (("mistral", ""), ("vllm", "mistralai/Devstral-Small-2507"), ("ollama", "ministral-3:8b")):
        assert wants_short_ids(provider, model)
    assert not wants_short_ids("openai", "gpt-5.6")
    assert not wants_short_ids("", "")
