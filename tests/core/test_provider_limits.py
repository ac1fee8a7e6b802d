"""Ids and names: what every provider accepts is sent as it is, the rest in a form that every provider accepts."""

from __future__ import annotations

import copy
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
from tests.messages import block, call, result, says, user

FORMS = {
    "id": (safe_call_id, CALL_IDS),
    "tool": (safe_tool_name, TOOL_NAMES),
    "name": (safe_speaker_name, SPEAKER_NAMES),
}


TEXTS = st.text(min_size=1, max_size=80) | st.from_regex(r"[a-zA-Z0-9_.:|-]{1,90}", fullmatch=True)


@pytest.mark.parametrize("kind", FORMS)
@given(text=TEXTS)
@example(text="functions.bash:0")
@example(text="\ud83d")
@example(text="x\n")
@example(text="-1")
@example(text="9" * 64)
@example(text="\u691c\u7d22")
def test_every_form_is_accepted_by_every_provider_of_the_table(kind: str, text: str) -> None:
    safe, limits = FORMS[kind]
    form = safe(text)
    assert all(re.fullmatch(limit.pattern, form) for limit in limits)
    assert safe(form) == form


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


@pytest.mark.parametrize("kind", FORMS)
@given(pair=st.tuples(TEXTS, TEXTS).filter(lambda pair: pair[0] != pair[1]))
@example(pair=("a.b", "a_b"))
@example(pair=("a.b", "a:b"))
@example(pair=("x" * 200, "x" * 201))
@example(pair=("call 1", "call_1"))
@example(pair=("\ud83d", "\ufffd"))
def test_two_originals_never_have_one_form(kind: str, pair: tuple[str, str]) -> None:
    safe, _ = FORMS[kind]
    assert safe(pair[0]) != safe(pair[1])


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
    assert all(re.fullmatch(SHORT_CALL_ID.pattern, found) for found in (first, second))


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=30, unique=True))
def test_short_ids_are_unique_and_those_of_a_longer_view_begin_with_those_of_a_shorter(ids: list[str]) -> None:
    whole = with_short_ids([call(*ids), *map(result, ids)])
    found = [item["id"] for item in whole[0]["tool_calls"]]
    assert len(set(found)) == len(ids)
    assert [message["tool_call_id"] for message in whole[1:]] == found
    assert with_short_ids([call(ids[0])])[0]["tool_calls"][0]["id"] == found[0]


@pytest.mark.parametrize(
    ("provider", "model", "wanted"),
    [
        ("mistral", "", True),
        ("vllm", "mistralai/Devstral-Small-2507", True),
        ("ollama", "ministral-3:8b", True),
        ("openai", "gpt-5.6", False),
        ("", "", False),
    ],
)
def test_a_model_of_mistral_s_is_known_by_its_names(provider: str, model: str, wanted: bool) -> None:
    assert wants_short_ids(provider, model) is wanted
