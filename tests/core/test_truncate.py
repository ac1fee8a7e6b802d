"""Clipping: the head, a mark that says what was cut and where it is, the tail."""

from __future__ import annotations

import re

import pytest

from amplifier_context_core.rendering.truncate import clip_text, cut_mark

LINES = "\n".join(f"line {number:04d} of the output" for number in range(500))


@pytest.mark.parametrize("text", ["", "short", "x" * 100, "\n" * 100, "漢" * 100])
def test_what_is_short_enough_is_the_same_text(text: str) -> None:
    assert clip_text(text, 100) is text


@pytest.mark.parametrize("size", [1, 2, 10, 29, 30, 31, 47, 48, 49, 50, 51, 60, 99, 100, 1_000, 5_000])
def test_a_clipped_text_is_within_its_size_and_clipping_it_again_changes_nothing(size: int) -> None:
    for text in (LINES, "x" * 10_000, " " * 10_000, "a\n" * 5_000, "👩‍👩‍👧‍👦" * 1_000):
        once = clip_text(text, size, "m12")
        assert len(once) <= size
        assert clip_text(once, size, "m12") == once


def test_the_head_and_the_tail_are_of_the_text_and_the_mark_counts_what_is_between() -> None:
    clipped = clip_text(LINES, 1_000, "m12")
    head, cut, tail = re.fullmatch(
        r"(?s)(.*)\n\[\.\.\. ([\d,]+) characters cut, whole text: m12 \.\.\.\]\n(.*)", clipped
    ).groups()  # type: ignore[union-attr]
    assert LINES.startswith(head)
    assert LINES.endswith(tail)
    assert int(cut.replace(",", "")) == len(LINES) - len(head) - len(tail)
    assert len(head) > len(tail) > 200


def test_cuts_fall_between_lines_where_one_ends_nearby() -> None:
    head, _, tail = clip_text(LINES, 1_000).partition("\n[...")
    assert head.endswith("of the output")
    assert tail.partition("]\n")[2].startswith("line ")


def test_most_of_the_room_is_used_also_in_a_text_of_one_line() -> None:
    assert len(clip_text("x" * 10_000, 1_000)) >= 990
    assert len(clip_text(LINES, 1_000)) > 800


def test_without_a_mark_nothing_is_named() -> None:
    assert clip_text("x" * 1_000, 100).count("whole text") == 0
    assert cut_mark(1_234, None) == "[... 1,234 characters cut ...]"
    assert cut_mark(1_234, "m7") == "[... 1,234 characters cut, whole text: m7 ...]"


def test_where_the_mark_has_no_room_the_bare_head_is_left() -> None:
    assert clip_text("abcdefghij" * 100, 10, "m12") == "abcdefghij"


def test_a_text_that_says_something_is_not_clipped_to_white_space() -> None:
    """Providers refuse messages of white space only."""
    for size in range(1, 80):
        assert clip_text(" " * 400 + "end", size, "m12").strip()
        assert clip_text("\n\t" * 400 + "end" + " " * 400, size, "m12").strip()
