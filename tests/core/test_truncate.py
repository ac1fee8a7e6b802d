"""Clipping: the head, a mark that says what was cut and where it is, the tail."""

from __future__ import annotations

from amplifier_context_core.rendering.truncate import clip_text

LINES = "\n".join(f"line {number:04d} of the output" for number in range(500))


def test_cuts_fall_between_lines_where_one_ends_nearby() -> None:
    head, _, tail = clip_text(LINES, 1_000).partition("\n[...")
    assert head.endswith("of the output")
    assert tail.partition("]\n")[2].startswith("line ")
