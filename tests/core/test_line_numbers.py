"""Line numbers: each tenth stays, and from these all others follow."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.rendering.line_numbers import with_fewer_line_numbers

LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20), max_size=60)
NUMBERED = re.compile(r"(.*?)( *[0-9]+)([→\t:-])")


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


@given(st.text())
def test_what_is_no_listing_is_the_same_object(text: str) -> None:
    shown = with_fewer_line_numbers(text)
    assert shown is text or len(shown) < len(text)


def test_the_first_each_tenth_and_the_last_line_keep_their_numbers_and_all_their_indentation() -> None:
    lines = [f"    step({n})" for n in range(5, 33)]
    shown = with_fewer_line_numbers(f"a head\n{listing(lines, 5)}\n\nan end").split("\n")
    numbered = [line for line in shown if "→" in line]
    assert numbered == [f"{n:6}→    step({n})" for n in (5, 10, 20, 30, 32)]
    assert shown[0] == "a head"
    assert shown[-2:] == ["", "an end"]
    assert shown[2] == "    step(6)"


def test_a_search_keeps_path_and_number_of_the_first_and_last_line_and_of_each_match() -> None:
    lines = [f"    step({n})" for n in range(21, 29)]
    parts = [found(lines, {24}, 21, "a/b.py"), found(lines[:3], {82}, 81, "a/b.py"), found(lines, {33}, 31, "c.py")]
    assert with_fewer_line_numbers("\n--\n".join(parts)).split("\n") == [
        "a/b.py-21-    step(21)",
        *("    step(22)", "    step(23)"),
        "a/b.py:24:    step(24)",
        *("    step(25)", "    step(26)", "    step(27)"),
        "a/b.py-28-    step(28)",
        *("--", *parts[1].split("\n"), "--"),
        "c.py-31-    step(21)",
        "    step(22)",
        "c.py:33:    step(23)",
        *("    step(24)", "    step(25)", "    step(26)", "    step(27)"),
        "c.py-38-    step(28)",
    ]


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
