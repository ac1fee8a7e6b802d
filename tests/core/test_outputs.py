"""Outputs: shown as tables, with fewer line numbers, clipped, by a short form, or described where too large."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.messages.tokens import approx_token_counter, count_message_tokens
from amplifier_context_core.rendering.json_tables import json_as_table, to_compact_text
from amplifier_context_core.rendering.line_numbers import with_fewer_line_numbers
from amplifier_context_core.rendering.offload import describe, offloaded
from amplifier_context_core.rendering.renderer import RenderedRound, Renderer
from amplifier_context_core.rendering.rounds import rounds_of
from amplifier_context_core.rendering.summaries import Summaries
from tests.core.drafts import GIANT, fixes, transcript, valid
from tests.managers import ask, feed, new_manager
from tests.messages import Message, call, nested, result, size, user, work
from tests.threads import longest_wait_beside


def test_an_output_larger_than_its_share_is_clipped_with_its_mark() -> None:
    _, shown = valid(call("a"), result("a", GIANT), output_limit=500)
    assert re.fullmatch("row 00000.*m3.*row 04999", shown["content"], re.DOTALL)
    assert count_message_tokens(shown) <= 520
    head, _, tail = shown["content"].partition("\n[...")
    assert re.fullmatch(r"(row \d{5}\n?)+", head), "cuts fall between lines"
    assert tail.partition("]\n")[2].startswith("row ")
    assert len(valid(call("a"), result("a", GIANT), output_bytes=1_000)[1]["content"]) <= 1_000, "whatever its tokens"
    assert "an output larger than its share is clipped" in fixes(call("a"), result("a", GIANT), output_limit=500)[0]


BLOCK = {"type": "tool_result", "tool_use_id": "a", "content": GIANT}


@pytest.mark.parametrize(
    ("message", "summaries"),
    [
        (result("a", GIANT, metadata={"compact_summary": "five thousand rows"}), {}),
        (result("a", GIANT), {3: {"a": "five thousand rows"}}),
        (result("a", GIANT, metadata={"compact_summary": "older"}), {3: {"a": "five thousand rows"}}),
        (user([{**BLOCK, "compact_summary": "five thousand rows"}]), {}),
    ],
    ids=["metadata", "registered", "registered wins", "block"],
)
def test_a_giant_with_a_short_form_of_its_own_is_shown_by_it(message: Message, summaries: Summaries) -> None:
    assert valid(call("a"), message, output_limit=500, summaries=summaries)[1]["content"] == "five thousand rows"


FLIGHTS_JSON = json.dumps([{"flight_number": f"HAT{n}", "price": n} for n in range(40)])


def rendered(content: str, **settings: Any) -> RenderedRound:
    history = transcript([user("go"), call("a"), result("a", content)])
    renderer = Renderer(approx_token_counter, **settings)
    return renderer.render(rounds_of(history.snapshot())[1])


def test_a_large_output_in_json_is_shown_as_a_table_that_is_clipped_to_its_share() -> None:
    rendering = rendered(FLIGHTS_JSON, output_limit=1_000, tables=True)
    assert rendering.messages[1].message["content"].startswith("(flight_number,price):\n[(HAT0,0)\n")
    assert rendering.fixes == ("m3: an output in JSON is shown with fewer signs",)
    (_, clipped) = rendered(FLIGHTS_JSON, output_limit=80, tables=True).messages
    assert clipped.message["content"].startswith("(flight_number,price):\n[(HAT0,0)\n")
    assert "characters cut, whole text: m3" in clipped.message["content"]
    assert clipped.tokens <= 100
    (_, clipped) = rendered(FLIGHTS_JSON, output_limit=1_000, tables=True, output_bytes=300).messages
    assert len(clipped.message["content"]) <= 300, "whatever its tokens"


def test_a_text_in_json_is_shown_by_its_lines_however_small_and_other_json_stays() -> None:
    output = json.dumps({"stdout": "".join(f"{n:6}\tx = {n}\n" for n in range(1, 30)), "returncode": 0})
    rendering = rendered(output, output_limit=100_000, tables=True, fewer_line_numbers=True)
    assert rendering.messages[1].message["content"].startswith('{stdout: """\n     1\tx = 1\n     2\tx = 2\nx = 3\n')
    reply = json.dumps([{"id": n, "url": "https://example.com/" * 9, "body": "a\nb\nc\nd\n" * 9} for n in range(9)])
    for other in (FLIGHTS_JSON, reply):  # of a reply of a service, the lines of a text are the smaller part
        assert rendered(other, output_limit=100_000, tables=True).messages[1].message["content"] == other


def test_a_listing_is_shown_with_fewer_line_numbers_and_says_so() -> None:
    listing = "\n".join(f"{number:6}\tline {number}" for number in range(1, 41))
    rendering = rendered(listing, output_limit=1_000, fewer_line_numbers=True)
    shown = rendering.messages[1]
    assert shown.message["content"].startswith("     1\tline 1\nline 2\n")
    assert shown.tokens == count_message_tokens(shown.message, approx_token_counter)
    assert rendering.fixes == ("m3: each tenth line of a listing is shown with its number",)
    clipped = rendered(listing, output_limit=1_000, fewer_line_numbers=True, output_bytes=300).messages[1]
    assert len(clipped.message["content"]) <= 300
    assert clipped.message["content"].startswith("     1\tline 1\nline 2\n")


# -- tables: keys are written once, and nothing is lost ----------------------------------------------------------------
FLIGHTS = [
    {"flight_number": f"HAT{n:03d}", "from": "SFO", "seats": {"economy": n, "business": 2 * n}, "stops": []}
    for n in range(1, 9)
]


def table(value: object) -> str:
    return json_as_table(json.dumps(value))


def test_a_record_keeps_its_keys() -> None:
    shown = table({"reservation_id": "1N99U6", "flights": FLIGHTS, "insurance": None, "paid": True})
    assert shown.startswith("{reservation_id: 1N99U6, flights: (flight_number,")
    assert shown.endswith("], insurance: null, paid: true}")
    assert table([FLIGHTS[:2], FLIGHTS[2:4], FLIGHTS[4:6]]).count("flight_number") == 1, "lists of lists share a head"
    assert "(B,[{kg: 7}])" in table([{"code": "A", "bags": []}, {"code": "B", "bags": [{"kg": 7}]}] * 8)
    assert '"end"' in to_compact_text(nested(60, "end")), "too deep for a table"
    tables: list[Any] = []
    for _ in range(30):
        tables = [{"number": 1, "inner": tables}, {"number": 2, "inner": []}]
    assert json_as_table(json.dumps(tables)) is None, "tables within tables are too"


@pytest.mark.parametrize("text", ["92164", "-5", "1e5", "true", "null", "a, b", "(a)", " a", "", "two\nlines", '"'])
def test_a_text_that_could_be_read_otherwise_keeps_its_quotes(text: str) -> None:
    assert f"({json.dumps(text)},1)" in table([{"said": text, "by": 1}] * 20)


def test_a_key_that_could_be_read_as_key_and_value_keeps_its_quotes() -> None:
    assert table([{"a": "b: c"}] * 30 + [{"a: b": "c"}]).endswith('{a: b: c}, {"a: b": c}]')


def test_hidden_characters_stay_escapes() -> None:
    text = "\u202e\x85 é \u200b\U000e0041 \ud83d"
    shown = table([{text: text}] * 20)
    assert r'"\u202e\u0085 é \u200b\udb40\udc41 \ud83d"' in shown
    assert shown.replace("\n", "").isprintable()


CODE = 'def load(path):\n\tif path == "a\\nb":\n\t\treturn None\n' * 9


def test_a_text_of_several_lines_is_shown_by_its_lines() -> None:
    assert table({"stdout": CODE, "returncode": 0}) == f'{{stdout: """\n{CODE}\n""", returncode: 0}}'
    assert table({"content": [{"text": CODE}]}) == f'{{content: [{{text: """\n{CODE}\n"""}}]}}'


@pytest.mark.parametrize(
    "text",
    [
        f'{CODE}"""',
        f"\x1b[31m{CODE}",
        f"\x9b31m{CODE}",
        f"\u202e{CODE}",
        f"\U000e0041{CODE}",
        CODE.replace("\n", "\r\n"),
        "one line\n" * 2 + "x" * 200,
    ],
)
def test_a_text_whose_lines_would_be_unclear_keeps_its_escapes(text: str) -> None:
    assert json_as_table(json.dumps({"stdout": text})) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        json.dumps(FLIGHTS[:1]),
        json.dumps(FLIGHTS, indent=1),
        json.dumps(FLIGHTS)[:-5] + "]",
        "[" * 300 + "]" * 300,
        json.dumps(list(range(200))),
        '{"twice": 1, "twice": 2, "pad": [' + '"x", ' * 80 + '"x"]}',
        "[not json at all] " * 20 + "]",
    ],
    ids=["empty", "short", "small", "a file", "broken", "deep", "no gain", "a key twice", "prose"],
)
def test_anything_else_is_left_as_it_is(text: str) -> None:
    assert json_as_table(text) is None


# -- line numbers: each tenth stays, and from these all others follow --------------------------------------------------
LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20), max_size=60)


def listing(lines: list[str], first: int = 1, mark: str = "→") -> str:
    """Lines as tools that read files number them."""
    return "\n".join(f"{number:6}{mark}{line}" for number, line in enumerate(lines, first))


def found(lines: list[str], matches: set[int], first: int, path: str) -> str:
    """Lines as `grep -n -C` writes them."""
    ends = [":" if number in matches else "-" for number in range(first, first + len(lines))]
    name = [f"{path}{end}" if path else "" for end in ends]
    return "\n".join(f"{name[i]}{first + i}{ends[i]}{line}" for i, line in enumerate(lines))


@given(LINES.filter(bool), st.integers(1, 99_900), st.sampled_from("→\t"))
def test_all_numbers_and_lines_of_a_file_follow_from_what_is_shown(lines: list[str], first: int, mark: str) -> None:
    shown = with_fewer_line_numbers(listing(lines, first, mark)).split("\n")
    assert len(shown) == len(lines)
    for number, (line, here) in enumerate(zip(lines, shown, strict=True), first):
        assert here in (f"{number:6}{mark}{line}", line)
        is_numbered = re.match(r" *[0-9]+[→\t]", here) is not None
        assert is_numbered == (here != line), "a line that seems to have a number must have its own"


@given(LINES.filter(bool), st.sets(st.integers(1, 70)), st.integers(1, 20), st.sampled_from(["", "a/b.py", "a-1-b"]))
def test_all_numbers_and_lines_of_a_search_follow_from_what_is_shown(
    lines: list[str], matches: set[int], first: int, path: str
) -> None:
    whole = found(lines, matches, first, path).split("\n")
    shown = with_fewer_line_numbers("\n".join(whole)).split("\n")
    assert len(shown) == len(lines)
    for number, (line, here, written) in enumerate(zip(lines, shown, whole, strict=True), first):
        assert here == written or (here == line and number not in matches and line != "--")


def test_the_first_each_tenth_and_the_last_line_keep_their_numbers_and_all_their_indentation() -> None:
    lines = [f"    step({n})" for n in range(5, 33)]
    shown = with_fewer_line_numbers(f"a head\n{listing(lines, 5)}\n\nan end").split("\n")
    assert [line for line in shown if "→" in line] == [f"{n:6}→    step({n})" for n in (5, 10, 20, 30, 32)]
    assert [shown[0], shown[2], *shown[-2:]] == ["a head", "    step(6)", "", "an end"]


def test_a_search_keeps_path_and_number_of_the_first_and_last_line_and_of_each_match() -> None:
    lines = [f"    step({n})" for n in range(21, 29)]
    parts = [found(lines, {24}, 21, "a/b.py"), found(lines[:3], {82}, 81, "a/b.py")]
    first = ["a/b.py-21-    step(21)", *lines[1:3], "a/b.py:24:    step(24)", *lines[4:7], "a/b.py-28-    step(28)"]
    shown = with_fewer_line_numbers("\n--\n".join(parts)).split("\n")
    assert shown == [*first, "--", *parts[1].split("\n")], "of fewer than five lines all"


@pytest.mark.parametrize(
    "text",
    [
        listing(["x"] * 4),
        "\n".join(f"{n} words" for n in range(40)),
        "\n".join(f"{7 * n:6}\tx" for n in range(40)),
        "\n".join(f"{n}{'→' if n % 2 else chr(9)}x" for n in range(40)),
        "\n".join(f"{n}\tx" for n in range(40)),
        "\n".join(f"{n}- an item" for n in range(40)),
        "\n".join(f"a.py:{n}: a match" for n in range(40)),
    ],
    ids=["short", "prose", "numbers with gaps", "two marks", "a table with numbered rows", "a list", "matches"],
)
def test_other_numbers_stay(text: str) -> None:
    assert with_fewer_line_numbers(text) is text


def test_a_file_within_json_stays_json_with_all_that_stands_beside_it() -> None:
    lines = ['if name == "a":', "\treturn '\\n'", "", "é → b"] * 20
    output = {"file": "/a.py", "content": "head\n" + listing(lines, mark="\t") + "\nend", "lines": 80}
    shown = json.loads(with_fewer_line_numbers(json.dumps(output)))
    assert shown == {**output, "content": with_fewer_line_numbers(str(output["content"]))}
    assert len(shown["content"]) < len(str(output["content"])) - 300


# -- described ---------------------------------------------------------------------------------------------------------
RECORDS = [{"id": number, "name": f"user_{number}", "state": "open"} for number in range(500)]
LOG = [f"2026-11-22T10:00:{number % 60:02} INFO step {number}" for number in range(900)]
LOG[412] = "2026-11-22T10:00:52 ERROR cannot open /var/data/q3.db"
DIFF = """diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,4 @@
 import os
+import re
-import sys
"""


@pytest.mark.parametrize(
    ("text", "description"),
    [
        (json.dumps(RECORDS), "JSON: a list of 500 objects with keys id, name, state"),
        (json.dumps({"total": 2, "rows": RECORDS}), "JSON: an object with keys total, rows (rows: 500 items)"),
        ("\n".join(map(json.dumps, RECORDS)), "JSON lines: 500 objects with keys id, name, state"),
        ("id,name\n" + "\n".join(f"{n},x" for n in range(70)), "CSV: 70 rows, columns id, name"),
        ("id\tname\n" + "\n".join(f"{n}\tx" for n in range(70)), "TSV: 70 rows, columns id, name"),
        (DIFF, "a diff of 1 files (src/a.py), 1 lines added, 1 removed"),
        ("\n".join(LOG), 'a log; 1 lines report errors: line 413 "2026-11-22T10:00:52 ERROR cannot open /var/'),
        (
            json.dumps({"stdout": "\n".join(LOG), "returncode": 0}),
            'JSON: an object with keys stdout, returncode; 1 lines report errors: line 413 "2026-11-22T10:00:52 ERROR',
        ),
        ("\n".join(f"src/module_{n}/test.py" for n in range(40)), "a listing of 40 entries"),
        ("src/a.py\nsrc/b.py\nsrc/c.py", "a listing of 3 entries"),
        ("src/a.py\nsrc/b.py", "text"),
        ("1234567", "text"),
        ('"a string of JSON"', "text"),
        ("Words, and more words. No form at all!", "text"),
        ("[not json", "text"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_output_is_described_by_its_shape(text: str, description: str) -> None:
    assert describe(text).startswith(description)


@pytest.mark.parametrize("room", [1, 10, 80, 100, 160, 200, 400])
@pytest.mark.parametrize("description", ["", "a log", "words " * 80])
def test_the_line_with_the_mark_is_whole_in_any_room(room: int, description: str) -> None:
    shown = offloaded("word\n" * 100_000, room, "m12345", description)
    assert shown.split("\n")[0] == "[500,000 characters in 100,001 lines are kept outside this view: m12345]"


def output(tokens: int) -> list[dict[str, Any]]:
    messages = work(3)
    messages[2]["content"] = "\n".join(LOG * (tokens * 4 // sum(len(line) + 1 for line in LOG) + 1))
    return messages


async def test_an_output_larger_than_the_budget_is_described_with_its_head_and_tail() -> None:
    manager = await feed(new_manager(max_tokens=16_000), output(200_000))
    view = await ask(manager, 16_000)
    shown = next(message["content"] for message in view if message["role"] == "tool")
    parts = ("are kept outside this view: m3]", "a log; ", "step 0", "step 899", "ERROR cannot open")
    assert all(part in shown for part in parts)
    assert size(view) < 16_000 * 0.10
    assert "an output too large for the view is described" in str((await manager.explain())["rounds"])
    assert len((await manager.recall("m3"))["content"]) > 800_000, "the whole is in the history"
    assert (await manager.search("q3.db"))[0] == "m3"


@pytest.mark.parametrize(("tokens", "above"), [(60_000, 1.0), (60_000, 0.1), (2_000, 0.1)])
async def test_a_short_form_that_a_caller_registered_is_shown_in_place_of_a_description(
    tokens: int, above: float
) -> None:
    manager = await feed(new_manager(max_tokens=16_000, offload_above=above), output(tokens))
    await manager.compact_summary("call_0", "Step 412 cannot open q3.db.")
    shown = next(message["content"] for message in await ask(manager, 16_000) if message["role"] == "tool")
    assert shown == "Step 412 cannot open q3.db."


PATHS = ["src/module/test.py", "/src/odd(1)!/files/a file.py/", "src/a file/module/test.py"]
NO_PATHS = ["a file/test.py", "src!/a file/test.py", "src/a file/te!st.py", "src//", "/"]


@pytest.mark.parametrize("line", [*PATHS, "-rw-r--r-- 1 root root 12 Nov 22 10:00 a!.py", *NO_PATHS])
def test_a_line_of_a_listing_is_a_path_whose_last_names_are_plain(line: str) -> None:
    assert describe("\n".join([line] * 4)) == ("text" if line in NO_PATHS else "a listing of 4 entries")


def test_other_threads_run_while_a_large_text_is_described() -> None:
    text = json.dumps([{"id": number, "name": "a longer value"} for number in range(100_000)])
    assert longest_wait_beside(lambda: describe(text)) < 0.4
