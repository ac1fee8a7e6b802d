"""What an answer must show before it counts."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.transcript import Transcript
from amplifier_context_summary.checks import RejectedAnswer, checked
from amplifier_context_summary.patch import MAX_MARKS, Patch
from amplifier_context_summary.state import State

CALL = {"id": "c1", "tool": "run", "arguments": {"command": "pytest"}}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Never delete the tests\nin `old/`. Run them all!\n> quoted: always push"},
    {"role": "assistant", "content": "I have run them, all pass.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "12 passed"},
]
PASTED_RULE = "Never log to stdout."


def entries(messages: list[dict[str, Any]]) -> dict[str, Entry]:
    transcript = Transcript()
    for message in messages:
        copied, info = parse_message(message)
        transcript.append(transcript.draft(copied, info, 10, created=""))
    return {entry.mark: entry for entry in transcript.snapshot()}


def check(patch: dict[str, Any]) -> Patch:
    return checked(Patch.model_validate(patch), entries(HISTORY), State(), frozenset())


@pytest.mark.parametrize(("evidence", "counts"), [("m3", True), ("m1", True), ("m2", False)])
def test_a_task_is_done_by_the_mark_of_a_result_or_a_person_but_not_of_the_call(evidence: str, counts: bool) -> None:
    done = {"done": [{"text": "run the tests", "evidence": [evidence]}], "next": "go on"}
    assert bool(check(done).done) is counts


@pytest.mark.parametrize(
    ("quote", "kept"),
    [
        ("delete the tests", "Never delete the tests"),
        ("Run them", "Run them all!"),
        ("tests in `old/`. Run", "Never delete the tests in `old/`. Run them all!"),
        ("Never delete the tests in `old/`. Run them all!", "Never delete the tests in `old/`. Run them all!"),
        ("delete the files", None),
        ("  ", None),
    ],
)
def test_a_rule_is_the_whole_sentence_of_a_person_that_the_quote_is_from(quote: str, kept: str | None) -> None:
    rules = check({"rules": [{"quote": quote}], "next": "go on"}).rules
    assert [rule.quote for rule in rules] == ([kept] if kept else [])


def rules_in(content: str) -> list[str]:
    """Return the rules that are kept of a message of a person when a model quotes `PASTED_RULE`."""
    quoted = Patch.model_validate({"rules": [{"quote": PASTED_RULE}], "next": "go on"})
    people = entries([{"role": "user", "content": content}])
    return [rule.quote for rule in checked(quoted, people, State(), frozenset()).rules]


@pytest.mark.parametrize(
    "pasted",
    [
        f"```\n{PASTED_RULE}\n```",
        f"> {PASTED_RULE}",
        f"<log>\n{PASTED_RULE}\n</log>",
        f"The output: <log>{PASTED_RULE}</log>",
    ],
    ids=["fence", "quotation", "element", "tags on a line"],
)
def test_what_a_person_pasted_is_no_rule_unless_the_person_writes_it_too(pasted: str) -> None:
    assert rules_in(f"See this:\n{pasted}\nGo on.") == []
    assert rules_in(f"See this:\n{pasted}\n{PASTED_RULE}") == [PASTED_RULE]


def test_a_message_too_long_to_be_written_by_a_person_states_no_rule() -> None:
    assert rules_in(f"{PASTED_RULE} " * 400) == []


def test_a_quote_that_reaches_from_a_persons_words_into_pasted_ones_is_no_rule() -> None:
    assert check({"rules": [{"quote": "Run them all! > quoted: always push"}], "next": "go on"}).rules == ()


def test_an_item_names_few_marks_and_unknown_ones_take_no_place() -> None:
    unknown = [f"m{number}" for number in range(100, 200)]
    known = ["m1", "m2", "m3"]
    [fact] = check({"facts": [{"text": "a", "marks": [*unknown, *known]}]}).facts
    assert fact.marks == ("m1", "m2", "m3")
    many = {f"m{number}": entry for number in range(1, 300) for entry in [entries(HISTORY)["m3"]]}
    given = {"facts": [{"text": "a", "marks": list(many)}], "done": [{"text": "b", "evidence": list(many)}]}
    left = checked(Patch.model_validate(given), many, State(), frozenset())
    assert len(left.facts[0].marks) == len(left.done[0].evidence) == MAX_MARKS


def test_a_patch_of_which_nothing_is_shown_is_rejected() -> None:
    with pytest.raises(RejectedAnswer):
        check({"rules": [{"quote": "Always push."}], "done": [{"text": "all", "evidence": ["m2"]}]})
