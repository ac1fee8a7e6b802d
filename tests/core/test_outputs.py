"""Outputs: shown as tables, with fewer line numbers, clipped, by a short form, or described where too large."""

import json
import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.json_tables import json_as_table, to_compact_text
from amplifier_context_core.rendering.line_numbers import with_fewer_line_numbers
from amplifier_context_core.rendering.offload import describe, offloaded
from tests.core.drafts import GIANT, fixes, renderings, valid
from tests.managers import ask, feed, new_manager
from tests.messages import call, result, size, user, work
from tests.threads import longest_wait_beside


def test_an_output_larger_than_its_share_is_clipped_with_its_mark() -> None:
    _, shown = valid(call("a"), result("a", GIANT), output_limit=500)
    cuts_fall_between_lines = r"(row \d{5}\n)+\[\.\.\. .*m3 \.\.\.\](\nrow \d{5})+"
    assert re.fullmatch(cuts_fall_between_lines, shown["content"])
    assert count_message_tokens(shown) <= 520
    assert len(valid(call("a"), result("a", GIANT), output_bytes=1_000)[1]["content"]) <= 1_000, "whatever its tokens"
    assert "an output larger than its share is clipped" in fixes(call("a"), result("a", GIANT), output_limit=500)[0]


BLOCK = {"type": "tool_result", "tool_use_id": "a", "content": GIANT}


def test_a_giant_with_a_short_form_of_its_own_is_shown_by_it_and_one_that_is_registered_wins() -> None:
    for message, summaries in (
        (result("a", GIANT, metadata={"compact_summary": "all rows"}), {}),
        (result("a", GIANT, metadata={"compact_summary": "older"}), {3: {"a": "all rows"}}),
        (user([{**BLOCK, "compact_summary": "all rows"}]), {}),
    ):
        assert valid(call("a"), message, output_limit=500, summaries=summaries)[1]["content"] == "all rows"


FLIGHTS_JSON = json.dumps([{"flight_number": f"HAT{n}", "price": n} for n in range(40)])


def rendered(output: str, **settings: Any) -> str:
    """The content that is shown of an output; it has been counted."""
    (one,) = renderings(call("a"), result("a", output), **settings)
    shown = one.messages[1]
    assert shown.tokens == count_message_tokens(shown.message, approx_token_counter)
    return shown.message["content"]


def test_a_large_output_in_json_is_shown_as_a_table_that_is_clipped_to_its_share() -> None:
    for limits in ({"output_limit": 1_000}, {"output_limit": 80}, {"output_limit": 1_000, "output_bytes": 300}):
        shown = rendered(FLIGHTS_JSON, tables=True, **limits)
        assert shown.startswith("(flight_number,price):\n[(HAT0,0)\n")
        assert ("characters cut, whole text: m2" in shown) == (limits != {"output_limit": 1_000})
        assert len(shown) <= limits.get("output_bytes", 4 * limits["output_limit"])


def test_a_text_in_json_is_shown_by_its_lines_however_small_and_other_json_stays() -> None:
    output = json.dumps({"stdout": "".join(f"{n:6}\tx = {n}\n" for n in range(1, 30)), "returncode": 0})
    shown = rendered(output, tables=True, fewer_line_numbers=True)
    assert shown.startswith('{stdout: """\n     1\tx = 1\n     2\tx = 2\nx = 3\n')
    reply = json.dumps([{"id": n, "url": "https://example.com/" * 9, "body": "a\nb\nc\nd\n" * 9} for n in range(9)])
    for other in (FLIGHTS_JSON, reply):  # of a reply of a service, the lines of a text are the smaller part
        assert rendered(other, tables=True) == other


# -- tables: keys are written once, and nothing is lost ----------------------------------------------------------------
FLIGHTS = [{"flight_number": f"HAT{n:03d}", "seats": {"economy": n, "business": 2 * n}, "stops": []} for n in range(8)]


def table(value: object) -> str:
    shown = json_as_table(json.dumps(value))
    assert shown is not None
    return shown


def test_a_record_keeps_its_keys() -> None:
    shown = table({"reservation_id": "1N99U6", "flights": FLIGHTS, "insurance": None, "paid": True})
    assert re.fullmatch(
        r"\{reservation_id: 1N99U6, flights: \(flight_number,(?s:.*)\], insurance: null, paid: true\}", shown
    )
    assert table([FLIGHTS[:2], FLIGHTS[2:4], FLIGHTS[4:6]]).count("flight_number") == 1, "lists of lists share a head"
    assert "(B,[{kg: 7}])" in table([{"code": "A", "bags": []}, {"code": "B", "bags": [{"kg": 7}]}] * 8)
    deep: Any = "end"
    for _ in range(60):
        deep = [deep]
    assert '"end"' in to_compact_text(deep), "too deep for a table"


@pytest.mark.parametrize("text", ["92164", "-5", "1e5", "true", "null", "a, b", "(a)", " a", "", "two\nlines", '"'])
def test_a_text_that_could_be_read_otherwise_keeps_its_quotes(text: str) -> None:
    assert f"({json.dumps(text)},1)" in table([{"said": text, "by": 1}] * 20)
    assert table([{"a": "b: c"}] * 30 + [{"a: b": "c"}]).endswith('{a: b: c}, {"a: b": c}]')


def test_hidden_characters_stay_escapes() -> None:
    text = "\u202e\x85 é \u200b\U000e0041 \ud83d"
    shown = table([{text: text}] * 20)
    assert r'"\u202e\u0085 é \u200b\udb40\udc41 \ud83d"' in shown
    assert shown.replace("\n", "").isprintable()


CODE = 'def load(path):\n\tif path == "a\\nb":\n\t\treturn None\n' * 9


def test_a_text_of_several_lines_is_shown_by_its_lines_and_one_whose_lines_would_be_unclear_keeps_its_escapes() -> None:
    assert table({"content": [{"text": CODE}], "code": 0}) == f'{{content: [{{text: """\n{CODE}\n"""}}], code: 0}}'
    for sign in ('"""', "\x1b[31m", "\x9b31m", "\u202e", "\U000e0041", "\r\n"):
        assert json_as_table(json.dumps({"stdout": f"{sign}{CODE}"})) is None
    assert json_as_table(json.dumps({"stdout": "one line\n" * 2 + "x" * 200})) is None


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(FLIGHTS[:1]),
        json.dumps(FLIGHTS, indent=1),
        json.dumps(FLIGHTS)[:-5] + "]",
        "[" * 300 + "]" * 300,
        json.dumps(list(range(200))),
        '{"twice": 1, "twice": 2, "pad": [' + '"x", ' * 80 + '"x"]}',
    ],
    ids=["small", "a file", "broken", "deep", "no gain", "a key twice"],
)
def test_anything_else_is_left_as_it_is(text: str) -> None:
    assert json_as_table(text) is None


# -- line numbers: each tenth stays, and from these all others follow --------------------------------------------------
LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20), max_size=60)


def listing(lines: list[str], first: int = 1, mark: str = "→") -> str:
    """Lines as tools that read files number them."""
    return "\n".join(f"{number:6}{mark}{line}" for number, line in enumerate(lines, first))


@given(LINES.filter(bool), st.integers(1, 99_900), st.sampled_from("→\t"))
def test_all_numbers_and_lines_of_a_file_follow_from_what_is_shown(lines: list[str], first: int, mark: str) -> None:
    shown = with_fewer_line_numbers(listing(lines, first, mark)).split("\n")
    assert len(shown) == len(lines)
    for number, (line, here) in enumerate(zip(lines, shown, strict=True), first):
        assert here in (f"{number:6}{mark}{line}", line)
        is_numbered = re.match(r" *[0-9]+[→\t]", here) is not None
        assert is_numbered == (here != line), "a line that seems to have a number must have its own"


def test_the_first_each_tenth_and_the_last_line_keep_their_numbers_and_all_their_indentation() -> None:
    lines = [f"    step({n})" for n in range(5, 33)]
    shown = with_fewer_line_numbers(f"a head\n{listing(lines, 5)}\n\nan end").split("\n")
    assert [line for line in shown if "→" in line] == [f"{n:6}→    step({n})" for n in (5, 10, 20, 30, 32)]
    assert [shown[0], shown[2], *shown[-2:]] == ["a head", "    step(6)", "", "an end"]


def test_other_numbers_stay() -> None:
    numbers = range(40)
    gaps, marks = [f"{7 * n:6}\tx" for n in numbers], [f"{n}{'→' if n % 2 else chr(9)}x" for n in numbers]
    rows, items = [f"{n}\tx" for n in numbers], [f"{n}- an item" for n in numbers]
    for lines in ([listing(["x"] * 4)], gaps, marks, rows, items, [f"a.py:{n}: a match" for n in numbers]):
        text = "\n".join(lines)
        assert with_fewer_line_numbers(text) is text


# -- described ---------------------------------------------------------------------------------------------------------
LOG = [f"2026-11-22T10:00:{number % 60:02} INFO step {number}" for number in range(900)]
LOG[412] = "2026-11-22T10:00:52 ERROR cannot open /var/data/q3.db"


def test_the_line_with_the_mark_is_whole_in_any_room() -> None:
    for room, description in product((1, 10, 80, 160, 400), ("", "a log", "words " * 80)):
        shown = offloaded("word\n" * 100_000, room, "m12345", description)
        assert shown.split("\n")[0] == "[500,000 characters in 100,001 lines are kept outside this view: m12345]"


async def test_an_output_larger_than_the_budget_is_described_with_its_head_and_tail() -> None:
    messages = work(3)
    messages[2]["content"] = "\n".join(LOG * 25)
    manager = await feed(new_manager(max_tokens=16_000), messages)
    view = await ask(manager, 16_000)
    shown = next(message["content"] for message in view if message["role"] == "tool")
    parts = ("are kept outside this view: m3]", "a log; ", "step 0", "step 899", "ERROR cannot open")
    assert all(part in shown for part in parts)
    assert size(view) < 16_000 * 0.10
    original = await manager.recall("m3")
    assert original is not None
    assert original["content"] == messages[2]["content"], "the whole is in the history"


def test_other_threads_run_while_a_large_text_is_described() -> None:
    text = json.dumps([{"id": number, "name": "a longer value"} for number in range(100_000)])
    assert longest_wait_beside(lambda: describe(text)) < 0.4
