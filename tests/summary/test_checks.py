"""What an answer must show before it counts, whatever else it says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import approx_token_counter
from amplifier_context_core.messages.parsing import parse_message
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.transcript import Transcript
from amplifier_context_summary.checks import RejectedAnswer, Reply, Shown, checked, lines_in
from amplifier_context_summary.text import MAX_CHARS, MAX_LINES, Line, Text

CALL = {"id": "c1", "tool": "run", "arguments": {"command": "pytest tests/test_lexer.py"}}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Never delete the tests\nin `old/`. Run them all!\n> quoted: always push"},
    {"role": "assistant", "content": "I have run them, all pass.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "lexer.py:14: E501\n12 passed in 3.1s, at 082c2c447aef"},
]
PASTED_RULE = "Never log to stdout."


def entries(messages: list[dict[str, Any]]) -> list[Entry]:
    transcript = Transcript()
    for message in messages:
        copied, info = parse_message(message)
        transcript.append(transcript.draft(copied, info, 10, created=""))
    return list(transcript.snapshot())


def kept(answer: str, messages: list[dict[str, Any]] = HISTORY, former: Text | None = None) -> list[str]:
    """The lines that are kept of an answer; a decision that always counts is left out."""
    text = f"{answer}\n## Findings\n- We go on."
    shown, before = entries(messages), former or Text()
    lines = checked(lines_in(Reply(text)), Shown(shown, before))[0].lines
    return [line.text for line in lines if line.text != "We go on."]


@pytest.mark.parametrize(("evidence", "counts"), [("m3", True), ("m1", True), ("m2", False), ("m9", False)])
def test_a_task_is_done_by_the_mark_of_a_result_or_a_person_but_not_of_the_call(evidence: str, counts: bool) -> None:
    line = f"Done: run the tests ({evidence})"
    assert kept(f"## Work\n- {line}") == ([line] if counts else [])


def test_a_task_that_was_done_needs_no_new_evidence() -> None:
    line = "Done: run the linter (m900)"
    assert kept(f"## Work\n- {line}", former=Text((Line("work", line),))) == [line]


@pytest.mark.parametrize(
    ("quote", "whole"),
    [
        ("delete the tests", "Never delete the tests"),
        ("tests in `old/`. Run", "Never delete the tests in `old/`. Run them all!"),
        ("Never delete the tests in `old/`. Run them all!", "Never delete the tests in `old/`. Run them all!"),
        ("delete the files", None),
        ("Run them all! > quoted: always push", None),
    ],
)
def test_a_quotation_of_a_person_is_the_whole_sentence_that_it_is_from(quote: str, whole: str | None) -> None:
    assert kept(f'## Person\n- Rule: "{quote}" (m1)') == ([f'Rule: "{whole}" (m1)'] if whole else [])


@pytest.mark.parametrize(
    "pasted",
    [f"```\n{PASTED_RULE}\n```", f"> {PASTED_RULE}", f"<log>\n{PASTED_RULE}\n</log>", f"It: <log>{PASTED_RULE}</log>"],
    ids=["fence", "quotation", "element", "tags on a line"],
)
def test_what_a_person_pasted_is_not_the_persons_unless_the_person_writes_it_too(pasted: str) -> None:
    answer = f'## Person\n- "{PASTED_RULE}" (m1)'
    assert kept(answer, [{"role": "user", "content": f"See this:\n{pasted}\nGo on."}]) == []
    assert len(kept(answer, [{"role": "user", "content": f"See this:\n{pasted}\n{PASTED_RULE}"}])) == 1


def test_a_message_too_long_to_be_written_by_a_person_is_not_quoted() -> None:
    assert kept(f'## Person\n- "{PASTED_RULE}" (m1)', [{"role": "user", "content": f"{PASTED_RULE} " * 400}]) == []


@pytest.mark.parametrize("line", ["Wants all tests deleted.", "Wants all tests deleted. (m2)", "Ask nothing. (m77)"])
def test_a_wish_without_the_mark_of_a_persons_message_is_no_wish(line: str) -> None:
    assert kept(f"## Person\n- {line}") == []
    assert kept("## Person\n- Wants all tests run. (m1)") == ["Wants all tests run. (m1)"]


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("`lexer.py` breaks E501 at line 14 (m3)", True),
        ("tests/test_lexer.py passes: 12 passed (m2, m3)", True),
        ("src/parser.py breaks E501 (m3)", False),
        ("lib/abc breaks E501 (m3)", False),
        ("parse_all_tokens is called (m3)", False),
        ("082c2c4 passes (m3)", True),
        ("082c2c5 passes (m3)", False),
        ("lexer.py 175-274 is long (m3)", True),
        ("lexer_20251 breaks (m3)", False),
        ('It printed "12 passed in 3.1s" (m3)', True),
        ('It printed "12 passed … 3.1s" (m3)', True),
        ('It printed "13 passed in 3.1s" (m3)', False),
        ("All is fine <context_record> (m3)", False),
    ],
)
def test_names_and_quotations_are_in_the_range(line: str, counts: bool) -> None:
    assert kept(f"## Values\n- {line}") == ([line] if counts else [])


def test_the_next_step_may_name_what_is_still_to_be_made() -> None:
    assert kept("## Work\n- Next: write src/parser.py (m1)") == ["Next: write src/parser.py (m1)"]
    assert kept("## Work\n- Open: src/parser.py breaks (m1)") == []
    assert kept("## Work\n- Next.js is in src/parser.py (m1)") == []


def test_names_and_marks_of_the_former_text_still_count() -> None:
    former = Text((Line("files", "src/parser.py: parse_all_tokens() (m70)"), Line("person", "Wants it fast. (m60)")))
    line = "src/parser.py: parse_all_tokens() renamed (m70, m3)"
    assert kept(f"## Files\n- {line}", former=former) == [line]
    assert kept("## Person\n- Wants it as fast as before. (m60)", former=former) == [
        "Wants it as fast as before. (m60)"
    ]


def test_a_quotation_is_completed_to_the_newest_sentence_that_holds_it() -> None:
    messages = [{"role": "user", "content": text} for text in ("Do delete the logs.", "Never delete the logs.")]
    assert kept('## Person\n- "delete the logs"', messages) == ['"Never delete the logs."']


def test_a_quotation_in_a_line_of_the_former_text_stays_as_it_was() -> None:
    messages = [{"role": "user", "content": "Never delete the logs."}]
    former = Text((Line("person", 'Rule: "Do delete the logs, all of them." (m60)'),))
    for line in (former.lines[0].text, 'Still: "Do delete the logs, all of them." (m60)'):
        assert kept(f"## Person\n- {line}", messages, former) == [line]
    former = Text((Line("person", 'Asks to "delete the logs" (m60)'),))
    assert kept(f"## Person\n- {former.lines[0].text}", messages, former) == [former.lines[0].text]


def test_a_text_has_so_many_lines_and_no_line_is_longer_than_so_many_characters() -> None:
    lines = lines_in(Reply("\n".join(["## Values", *(f"- value {number}" for number in range(1_000))])))
    assert len(lines) == MAX_LINES
    (_, line), *_ = lines_in(Reply(f"## Values\n- {'word ' * 1_000}"))
    assert len(line) <= MAX_CHARS + 2
    assert line.endswith("word …")


def test_a_line_that_whole_sentences_make_too_long_is_dropped() -> None:
    topics = ("the tests", "the notes", "the index")
    said = " ".join(f"Never delete {topic} {'of the parser ' * 65}again." for topic in topics)
    quoted = " ".join(f'"Never delete {topic}"' for topic in topics)
    answer = f"## Person\n- {quoted} (m1)\n## Findings\n- We go on."
    _, flaws = checked(lines_in(Reply(answer)), Shown(entries([{"role": "user", "content": said}]), Text()))
    assert flaws == {"length": 1}


def test_of_lines_that_do_not_count_the_reasons_are_counted() -> None:
    lines = ["Person", '"Never deploy on Fridays." (m1)', "Wants more. (m3)", "Work", "Done: all (m2)", "Values"]
    lines += [
        "src/parser.py (m3)",
        "src/tokens.c (m3)",
        '"13 passed in 3.1s"',
        "lexer.py <context_record>",
        "It goes on.",
    ]
    answer = "\n".join(line if " " in line or "." in line else f"## {line}" for line in lines)
    text, flaws = checked(lines_in(Reply(answer)), Shown(entries(HISTORY), Text()))
    assert [line.text for line in text.lines] == ["It goes on."]
    assert flaws == {"quotation": 2, "person": 1, "evidence": 1, "name": 2, "tag": 1}


def test_unknown_marks_are_dropped_and_the_others_stay() -> None:
    assert kept("## Findings\n- Twelve pass (m3, m77; m2.1). So go on (m99).") == ["Twelve pass (m3, m2.1). So go on."]


def test_an_answer_of_which_nothing_is_shown_is_rejected() -> None:
    with pytest.raises(RejectedAnswer):
        checked([("person", "Always push.")], Shown(entries(HISTORY), Text()))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Reply(""), "empty"),
        (Reply("## Work\n- Next: go on", "length"), "cut off"),
        (Reply("## Work\n- Next: go on", "content_filter"), "refused"),
        (Reply("I'm sorry, I can't do that.\n## Work\n- Next: go on"), "refused"),
        (Reply("## Work\n" + "- a\n" * 200_000), "too long"),
        (Reply("Fine, I go on."), "no line"),
        (Reply('{"facts": [{"text": "a"}]}'), "no line"),
        (Reply("## Work\n\n- None.\n"), "no line"),
    ],
)
def test_an_answer_that_cannot_be_used_says_why_and_quotes_nothing(answer: Reply, reason: str) -> None:
    with pytest.raises(RejectedAnswer, match=reason):
        lines_in(answer)


@pytest.mark.parametrize(
    "heading", ["## Work", "### Where the work stands", "**Work:**", "**Work**:", "2. Pending tasks:"]
)
def test_headings_are_read_in_the_ways_that_models_write_them(heading: str) -> None:
    assert lines_in(Reply(f"Here it is.\n{heading}\n* Next: go\u202e  on\x1b[31m")) == [("work", "Next: go on [31m")]


words = st.text('ab \n#*-m1()"\u201c.:`/_', max_size=40)


@given(st.lists(st.tuples(st.sampled_from(["Person", "Work", "Findings", "Files", "Values"]), words), max_size=300))
def test_whatever_is_answered_a_text_is_bounded_and_checking_it_again_changes_nothing(given_: list[Any]) -> None:
    answer = "\n".join(f"## {section}\n- {line}" for section, line in given_)
    shown = entries(HISTORY)
    try:
        text, _ = checked(lines_in(Reply(answer)), Shown(shown, Text()))
    except RejectedAnswer:
        return
    assert len(text.lines) <= MAX_LINES
    assert all("\n" not in line.text for line in text.lines)
    again, flaws = checked([(line.section, line.text) for line in text.lines], Shown(shown, text))
    assert (again, flaws) == (text, {})
    for most in (20, 100):
        fitted = text.fitted(approx_token_counter, most)
        assert fitted.tokens(approx_token_counter) <= most
        assert fitted.fitted(approx_token_counter, fitted.tokens(approx_token_counter)) == fitted


def test_a_line_of_nothing_but_unknown_marks_is_empty() -> None:
    lines = lines_in(Reply("## Values\n- (m99)\n- We go on."))
    assert checked(lines, Shown(entries(HISTORY), Text())) == (Text((Line("values", "We go on."),)), {"empty": 1})


def test_what_is_done_goes_before_what_is_open_where_there_is_no_room() -> None:
    lines = (Line("work", "Done: it (m3)"), Line("work", "Open: the parser and the lexer"))
    room = Text(lines[1:]).tokens(approx_token_counter)
    assert Text(lines).fitted(approx_token_counter, room).lines == lines[1:]


def test_what_a_person_wants_stays_longest_where_there_is_no_room() -> None:
    lines = [Line(section, f"{section} {number} (m3)") for section in ("person", "files") for number in range(20)]
    room = Text(tuple(lines[:20])).tokens(approx_token_counter)
    fitted = Text(tuple(lines)).fitted(approx_token_counter, room)
    assert list(fitted.lines) == lines[:20]
