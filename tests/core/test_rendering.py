"""Rendering: what history stored becomes what every provider takes: rounds, calls, ids, names, roles."""

import copy
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amplifier_context_core.messages.parsing import NO_RESULT, ROLES, parse_message
from amplifier_context_core.rendering.merge import merge_consecutive
from amplifier_context_core.rendering.provider_limits import (
    safe_call_id,
    safe_speaker_name,
    safe_tool_name,
    wants_short_ids,
    with_short_ids,
)
from amplifier_context_core.rendering.rounds import REACH, Round, RoundList, rounds_with
from amplifier_context_core.rendering.sendable import is_left_out
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_testing import check_request
from tests.core.drafts import fixes, rounds, transcript, valid
from tests.messages import IMAGE, PNG_1X1, SIGNED, Message, block, call, result, says, system, user


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
    assert all(part in text["text"] for part in ("notes.md", "4,000 characters of data"))
    assert "QUJDQUJD" not in text["text"]


def test_images_in_openais_spelling_become_the_kernels_and_an_unknown_visibility_goes() -> None:
    url = f"data:image/png;base64,{PNG_1X1}"
    assert valid(user([{"type": "image_url", "image_url": {"url": url}}])) == [user([IMAGE])]
    assert valid(user([{"type": "text", "text": "x", "visibility": "odd"}])) == [user([block("x")])]
    (message,) = valid(user([{"type": "image_url", "image_url": "https://example.com/a.png"}]))
    assert message["content"][0]["source"] == {"type": "url", "url": "https://example.com/a.png"}


IMAGES = [
    *({"type": "image", **source} for source in ({}, {"source": "x"}, {"source": {"type": "base64"}})),
    *({"type": "image_url", "image_url": url} for url in (None, {"url": "data:image/png;base64,"})),
]
CALLS = [
    *({"id": "a", "function": {"name": name, "arguments": "{}"}, "type": "function"} for name in ("", None)),
    {"id": "a", "function": {"name": "f", "arguments": "{}"}},
    {"id": "a", "function": None, "type": "function", "name": "f"},
    *(
        {"id": "a", **call}
        for call in ({"tool": " ", "arguments": {}}, {"name": "f", "input": {"x": 1}}, {"tool": "f"})
    ),
]
THOUGHTS = [
    *(
        {"type": "thinking", **more}
        for more in ({}, {"thinking": "x", "signature": 5}, {"thinking": "x", "content": "s"})
    ),
    *({"type": "redacted_thinking"}, {"type": "reasoning", "content": None, "summary": "x"}),
]


@pytest.mark.parametrize(
    "messages",
    [
        *([user([image])] for image in IMAGES),
        *([says(None, tool_calls=[item]), result("a")] for item in CALLS),
        *([says([odd, block("x")])] for odd in THOUGHTS),
    ],
    ids=str,
)
def test_what_the_kernel_or_a_provider_refuses_is_described_completed_or_left_out(messages: list[Message]) -> None:
    shown = valid(*messages)
    assert shown[0].get("tool_calls") or shown[0]["content"][-1]["type"] == "text"


RETIRED = [{"disposition": "retired"}, {"disposition": "anchor_pruned"}, {"retired": True}]
LEFT_OUT: list[Any] = [*({"amplifier:instruction": one} for one in RETIRED), {"amplifier_public_reference_only": True}]
SHOWN: list[Any] = [
    *({"amplifier:instruction": one} for one in ({"disposition": "active"}, "odd")),
    *({"amplifier_public_reference_only": False}, None),
]


@pytest.mark.parametrize("metadata", [*LEFT_OUT, *SHOWN], ids=str)
def test_retired_and_reference_only_rows_are_left_out(metadata: Any) -> None:
    assert is_left_out(user("x", metadata=metadata)) is (metadata in LEFT_OUT)
    assert (valid(user("x", metadata=metadata)) == []) is (metadata in LEFT_OUT)


# -- calls and results -------------------------------------------------------------------------------------------------
def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    view = valid(call("a", "b"), result("b"))
    assert view[-1] == {"role": "tool", "tool_call_id": "a", "content": NO_RESULT, "name": "read"}
    assert fixes(call("a")) == ["m1: an unanswered call is shown with a placeholder result"]


@pytest.mark.parametrize("role", sorted(ROLES))
@pytest.mark.parametrize("answered", [True, False])
def test_text_beside_results_leaves_in_a_role_providers_take(role: str, answered: bool) -> None:
    beside = [{"type": "tool_result", "tool_use_id": "a", "content": "out"}, block("beside"), IMAGE]
    view = valid(*([call("a")] if answered else []), {"role": role, "name": "f", "content": beside})
    last, is_quoted = view[-1], role in ("tool", "function")
    assert last["role"] == ("user" if is_quoted else role)
    assert ("<quoted_output>" in str(last["content"])) == is_quoted
    assert all(part in str(last["content"]) for part in ("beside", "image"))
    assert "name" not in last or not is_quoted
    assert parse_message(last)[1].human == (role == "user")


def test_a_result_without_its_call_becomes_a_note_no_human_wrote() -> None:
    (note,) = valid(result("lost", "the end of something", name="read"))
    assert note["role"] == "user"
    assert all(part in note["content"] for part in ("the end of something", "read", "m2"))
    assert not parse_message(note)[1].human


def test_an_id_used_again_gets_a_name_of_its_own_and_its_result_with_it() -> None:
    view = valid(call("a"), result("a", "first"), call("a"), result("a", "second"))
    ids = [(view[at]["tool_calls"][0]["id"], view[at + 1]["tool_call_id"]) for at in (0, 2)]
    assert ids == [("a", "a"), ("a_m4", "a_m4")]
    assert [view[1]["content"], view[3]["content"]] == ["first", "second"]
    stated = {"type": "tool_call", "id": "a", "name": "read", "input": {}}
    view = valid(says([stated, stated], tool_calls=[{"id": "a", "tool": "read", "arguments": {}}]), result("a"))
    assert view[0]["content"] == [stated], "a call stated more often in blocks than in the list is stated once"


def test_calls_on_a_message_of_a_user_or_of_results_become_words() -> None:
    (message, note) = valid(user("x", tool_calls=[{"id": "a", "tool": "plane", "arguments": {"on": 1}}]), result("a"))
    assert message == user('x\n[called plane({"on":1})]')
    assert note["role"] == "user"
    blocks = [{"type": "tool_result", "tool_use_id": "a", "content": "one"}]
    view = valid(call("a"), user(blocks, tool_calls=[{"id": "b", "tool": "plane", "arguments": {}}]))
    assert view[-1]["content"] == "[called plane({})]"
    for calls in (None, [], [{"id": "b", "tool": "f", "arguments": {}}]):
        assert "tool_calls" not in valid(call("a"), result("a", tool_calls=calls))[-1], "a tool calls nothing"


# -- rounds: what must stay together does, in every order it may come --------------------------------------------------
def marks(found: list[Round]) -> list[list[int]]:
    return [[entry.seq for entry in one.entries] for one in found]


def answers(*ids: str, text: str | None = None) -> Message:
    """A user message with tool results, as Anthropic spells them."""
    blocks: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": id, "content": "out"} for id in ids]
    return user([*blocks, block(text)] if text else blocks)


def test_one_message_with_the_results_of_several_rounds_makes_them_one() -> None:
    assert marks(rounds(user(), call("a"), call("b"), says(), answers("a", "b"))) == [[1], [2, 3, 5], [4]]
    found = rounds(user(), call("a"), call("b"), call("c"), says("waiting"), answers("a", "b", "c"), says())
    assert marks(found) == [[1], [2, 3, 4, 6], [5], [7]]
    assert found[1].unanswered == ()
    found = rounds(user(), call("a", "x"), says(), call("b"), call("c"), answers("a", "b"), result("c"), result("x"))
    assert marks(found) == [[1], [2, 4, 6, 8], [3], [5, 7]]
    assert all(not round_.unanswered for round_ in found)
    assert marks(rounds(user(), call("a"), answers("a", text="And?"))) == [[1], [2, 3]]
    assert marks(rounds(user(), call("a"), call("b"), NOTE, answers("a", "b", text="?"))) == [[1], [2, 3, 5], [4]]


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


def test_a_replaced_result_is_waited_for_as_long_as_a_first_one() -> None:
    def entries(rounds: int) -> list[Entry]:
        talk = [user(), call("a"), result("a", "started"), result("a", "new"), user("And?"), says()]
        talk += [message for n in range(rounds) for message in (call(f"b{n}"), result(f"b{n}"))]
        made = transcript(talk).snapshot()
        return [*made[:2], *made[3:]]  # the place of the second is that of the first

    assert RoundList(entries(0)).final == 1
    assert RoundList(entries(29)).final == 1
    assert RoundList(entries(30)).final == 34


def test_the_round_of_an_entry_is_the_same_alone_and_among_others() -> None:
    talk = [user(), call("a", "b"), result("a"), *[user()] * (2 * REACH + 9), call("c"), result("c"), says()]
    history = transcript(talk).snapshot()
    wanted = {1, 2, 3, 9, REACH + 5, *range(len(talk) - 3, len(talk) + 1)}
    together = rounds_with(wanted | {len(talk) + 1}, history)
    assert {seq: together[seq] for seq in wanted} == {seq: rounds_with({seq}, history)[seq] for seq in wanted}
    assert marks([together[3], together[len(talk) - 1]]) == [[2, 3], [len(talk) - 2, len(talk) - 1]]
    assert together.keys() == wanted


# -- neighbours of one role joined -------------------------------------------------------------------------------------
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


# -- ids and names -----------------------------------------------------------------------------------------------------
FORMS = {
    "id": (safe_call_id, r"[a-zA-Z0-9_-]{1,40}"),
    "tool": (safe_tool_name, r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}"),
    "name": (safe_speaker_name, r"[a-zA-Z0-9_-]{1,64}"),
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
def test_every_form_is_accepted_by_every_provider_and_is_of_one_original(kind: str, pair: tuple[str, str]) -> None:
    safe, accepted = FORMS[kind]
    forms = [safe(text) for text in pair]
    assert all(re.fullmatch(accepted, form) for form in forms)
    assert [safe(form) for form in forms] == forms
    assert forms[0] != forms[1]


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("id", ["call_abc", "toolu_01A-b", "x" * 40, "3", "-", "123e4567-e89b-12d3-a456-426614174000"]),
        ("tool", ["read", "mcp__git-hub__list_2", "_x", "n" * 64]),
        ("name", ["anna", "expert_1", "3PO", "n" * 64]),
    ],
)
def test_what_every_provider_accepts_is_sent_as_it_is(kind: str, texts: list[str]) -> None:
    safe, _ = FORMS[kind]
    assert [safe(text) for text in texts] == texts


VIEW = [
    user("Go."),
    says(
        [block("x"), {"type": "tool_call", "id": "call_1", "name": "f", "input": {}}],
        tool_calls=[{"id": "call_1", "tool": "f", "arguments": {}}],
    ),
    result("call_1"),
    call("aB3dE6gH9", "call_2"),
    result("call_2"),
    result("aB3dE6gH9"),
]


def test_short_ids_are_nine_letters_or_digits_alike_in_calls_blocks_and_results() -> None:
    before = copy.deepcopy(VIEW)
    short = with_short_ids(VIEW)
    assert before == VIEW
    assert short[0] is VIEW[0]
    first, second = short[1]["tool_calls"][0]["id"], short[3]["tool_calls"][1]["id"]
    assert short[1]["content"][1]["id"] == short[2]["tool_call_id"] == first
    assert short[4]["tool_call_id"] == second != first
    assert short[3]["tool_calls"][0]["id"] == short[5]["tool_call_id"] == "aB3dE6gH9"
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", found) for found in (first, second))


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
