"""Tables on narrow screens: nothing is cut off, whatever the width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core.cli.formatting import display_width
from amplifier_context_testing.lab.grid import grid


def test_names_too_wide_for_the_screen_are_numbered_and_listed_whole() -> None:
    long = "context-simple:target_usage=0.4,compact_threshold=0.9"
    assert grid([["manager", "recall"], [long, "0.9"], ["newest", "0.5"]], 60) == [
        f"1  {long}",
        "2  newest",
        "",
        "#  recall",
        "1     0.9",
        "2     0.5",
    ]


CELLS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)


@given(
    st.integers(1, 5).flatmap(lambda heads: st.lists(st.lists(CELLS, min_size=heads, max_size=heads), min_size=1)),
    st.integers(1, 80),
)
def test_no_cell_is_lost_and_no_line_is_wider_than_it_must_be(table: list[list[str]], width: int) -> None:
    lines = grid(table, width)
    text = "".join("".join(lines).split())
    for row in table[1:]:
        for cell in row[1:]:
            assert "".join(cell.split()) in text
    widest = max(display_width(cell) for row in table for cell in row[1:] or [""])
    names = max(display_width(row[0]) for row in table)
    beside = names if names <= width / 2 else len(str(len(table)))
    assert max(map(display_width, lines)) <= max(width, beside + 2 + widest, 2 + len(str(len(table))) + 2)
