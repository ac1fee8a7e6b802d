"""What an answer must show before it counts, whatever else it says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import approx_token_counter
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_summary.checks import RejectedAnswer, Reply, Shown, checked, lines_in
from amplifier_context_summary.text import MAX_LINES, Line, Text
from tests.core.drafts import transcript
from tests.messages import user

CALL = {"id": "c1", "tool": "run", "arguments": {"command": "pytest tests/test_lexer.py"}}
HISTORY: list[dict[str, Any]] = [
    user("Never delete the tests\nin `old/`. Run them all!\n> quoted: always push"),
    {"role": "assistant", "content": "I have run them, all pass.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "lexer.py:14: E501\n12 passed in 3.1s, at 082c2c447aef"},
]
LOGS = [user("Do delete the logs."), user("Never delete the logs.")]
ALL = '"Do delete the logs, all of them."'
PASTED = "Never log to stdout."


def entries(messages: list[dict[str, Any]]) -> list[Entry]:
    return list(transcript(messages).snapshot())


def judged(answer: str, messages: list[dict[str, Any]] = HISTORY, former: Text | None = None) -> tuple[Text, Any]:
    return checked(lines_in(Reply(answer)), Shown(entries(messages), former or Text()))


def kept(section: str, line: str, messages: list[dict[str, Any]] = HISTORY, *former: Line) -> list[str]:
    """What is kept of a line; a finding beside it always counts."""
    text, _ = judged(f"## {section}\n- {line}\n## Findings\n- We go on.", messages, Text(former))
    return [one.text for one in text.lines if one.text != "We go on."]


@pytest.mark.parametrize(
    ("section", "line", "counts"),
    [
        # a task is done by the mark of a result or of a person, but not of the call
        ("Work", "Done: run the tests (m3)", True),
        ("Work", "Done: run the tests (m1)", True),
        ("Work", "Done: run the tests (m2)", False),
        ("Work", "Done: run the tests (m9)", False),
        # a wish has the mark of a person's message
        ("Person", "Wants all tests run. (m1)", True),
        ("Person", "Wants all tests deleted.", False),
        ("Person", "Wants all tests deleted. (m2)", False),
        ("Person", "Ask nothing. (m77)", False),
        # names and quotations are in the range
        ("Values", "`lexer.py` breaks E501 at line 14 (m3)", True),
        ("Values", "tests/test_lexer.py passes: 12 passed (m2, m3)", True),
        ("Values", "src/parser.py breaks E501 (m3)", False),
        ("Values", "lib/abc breaks E501 (m3)", False),
        ("Values", "parse_all_tokens is called (m3)", False),
        ("Values", "082c2c4 passes (m3)", True),
        ("Values", "082c2c5 passes (m3)", False),
        ("Values", "lexer.py 175-274 is long (m3)", True),
        ("Values", "lexer_20251 breaks (m3)", False),
        ("Values", 'It printed "12 passed in 3.1s" (m3)', True),
        ("Values", 'It printed "12 passed … 3.1s" (m3)', True),
        ("Values", 'It printed "13 passed in 3.1s" (m3)', False),
        ("Values", "All is fine <context_record> (m3)", False),
        # the next step may name what is still to be made
        ("Work", "Next: write src/parser.py (m1)", True),
        ("Work", "Open: src/parser.py breaks (m1)", False),
        ("Work", "Next.js is in src/parser.py (m1)", False),
    ],
)
def test_a_line_counts_if_the_range_shows_what_it_claims(section: str, line: str, counts: bool) -> None:
    assert kept(section, line) == ([line] if counts else [])


@pytest.mark.parametrize(
    ("former", "line"),
    [
        (Line("work", "Done: run the linter (m900)"), ""),
        (Line("files", "src/parser.py: parse_all() (m70)"), "src/parser.py: parse_all() renamed (m70, m3)"),
        (Line("person", "Wants it fast. (m60)"), "Wants it as fast as before. (m60)"),
        # a quotation stays as it was, although newer sentences hold its words
        (Line("person", f"Rule: {ALL} (m60)"), f"Still: {ALL} (m60)"),
        (Line("person", 'Asks to "delete the logs" (m60)'), ""),
    ],
)
def test_evidence_names_marks_and_quotations_of_the_former_text_still_count(former: Line, line: str) -> None:
    line = line or former.text
    assert kept(former.section, line, [*HISTORY, LOGS[1]], former) == [line]


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
    assert kept("Person", f'Rule: "{quote}" (m1)') == ([f'Rule: "{whole}" (m1)'] if whole else [])
    assert kept("Person", '"delete the logs"', LOGS) == ['"Never delete the logs."'], "the newest that holds it"


@pytest.mark.parametrize(
    "pasted",
    [f"```\n{PASTED}\n```", f"> {PASTED}", f"<log>\n{PASTED}\n</log>", f"It: <log>{PASTED}</log>", f"{PASTED} " * 400],
    ids=["fence", "quotation", "element", "tags on a line", "too long to be written by a person"],
)
def test_what_a_person_pasted_is_not_the_persons_unless_the_person_writes_it_too(pasted: str) -> None:
    line = f'"{PASTED}" (m1)'
    assert kept("Person", line, [user(f"See this:\n{pasted}\nGo on.")]) == []
    assert len(pasted) > 1_000 or len(kept("Person", line, [user(f"See this:\n{pasted}\n{PASTED}")])) == 1


def test_of_lines_that_do_not_count_the_reasons_are_counted() -> None:
    lines = ["## Person", '"Never deploy on Fridays." (m1)', "Wants more. (m3)", "## Work", "Done: all (m2)"]
    lines += ["## Values", "src/parser.py (m3)", "src/tokens.c (m3)", '"13 passed in 3.1s"']
    lines += ["lexer.py <context_record>", "(m99)"]
    text, flaws = judged("\n".join([*lines, "It goes on (m3, m77; m2.1)."]))
    assert text == Text((Line("values", "It goes on (m3, m2.1)."),))
    assert flaws == {"quotation": 2, "person": 1, "evidence": 1, "name": 2, "tag": 1, "empty": 1}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Reply(""), "empty"),
        (Reply("## Work\n- Next: go on", "length"), "cut off"),
        (Reply("## Work\n- Next: go on", "content_filter"), "refused"),
        (Reply("I'm sorry, I can't do that.\n## Work\n- Next: go on"), "refused"),
        (Reply("## Work\n" + "- a\n" * 200_000), "too long"),
        (Reply('{"facts": [{"text": "a"}]}'), "no line"),
        (Reply("## Work\n\n- None.\n"), "no line"),
        (Reply("## Person\n- Always push."), "nothing of it is shown"),
    ],
)
def test_an_answer_that_cannot_be_used_says_why_and_quotes_nothing(answer: Reply, reason: str) -> None:
    with pytest.raises(RejectedAnswer, match=reason):
        checked(lines_in(answer), Shown(entries(HISTORY), Text()))


@pytest.mark.parametrize(
    "heading", ["## Work", "### Where the work stands", "**Work:**", "**Work**:", "2. Pending tasks:"]
)
def test_headings_are_read_in_the_ways_that_models_write_them(heading: str) -> None:
    assert lines_in(Reply(f"Here it is.\n{heading}\n* Next: go\u202e  on\x1b[31m")) == [("work", "Next: go on [31m")]


words = st.text('ab \n#*-m1()"\u201c.:`/_', max_size=40)


@given(st.lists(st.tuples(st.sampled_from(["Person", "Work", "Findings", "Files", "Values"]), words), max_size=300))
def test_whatever_is_answered_a_text_is_bounded_and_checking_it_again_changes_nothing(given_: list[Any]) -> None:
    answer = "\n".join(f"## {section}\n- {line}" for section, line in given_)
    try:
        text, _ = judged(answer)
    except RejectedAnswer:
        return
    assert len(text.lines) <= MAX_LINES
    assert all("\n" not in line.text for line in text.lines)
    again, flaws = checked([(line.section, line.text) for line in text.lines], Shown(entries(HISTORY), text))
    assert (again, flaws) == (text, {})
    for most in (20, 100):
        fitted = text.fitted(approx_token_counter, most)
        assert fitted.tokens(approx_token_counter) <= most
        assert fitted.fitted(approx_token_counter, fitted.tokens(approx_token_counter)) == fitted


def test_where_there_is_no_room_what_is_done_goes_first_and_what_a_person_wants_last() -> None:
    done, open_ = Line("work", "Done: it (m3)"), Line("work", "Open: the parser and the lexer")
    wishes, files = (tuple(Line(one, f"{one} {n} (m3)") for n in range(20)) for one in ("person", "files"))
    for lines, stays in (((done, open_), (open_,)), ((*wishes, *files), wishes)):
        assert Text(lines).fitted(approx_token_counter, Text(stays).tokens(approx_token_counter)).lines == stays
