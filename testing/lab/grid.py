"""Tables that fit the screen: columns that find no room go on below, beside the same names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from amplifier_context_cli.formatting import display_width, fitting_end, padded

GAP = "  "  # between columns
_NAMES = 0.5  # of the screen: names that are wider are numbered, and listed above the table


def grid(table: Sequence[Sequence[str]], width: int | None, names: int = 1) -> list[str]:
    """Return a table as lines of text, nothing of it cut off.

    Args:
        table: its rows, headings first.
        width: columns of the screen; None for as many as the table needs.
        names: how many columns, from the left, name a row. They are repeated beside each group of the others.
    """
    lines: list[str] = []
    rows = [list(row) for row in table]
    if width is not None and _taken(rows, range(names)) > width * _NAMES:
        numbers = count(1)
        listed = [next(numbers) for _ in rows[1:]]
        digits = len(str(len(listed)))
        for number, row in zip(listed, rows[1:], strict=True):
            lines += _folded(f"{number:>{digits}}{GAP}{GAP.join(row[:names])}", width, digits + len(GAP))
        lines.append("")
        rows = [
            ["#" if number is None else str(number), *row[names:]]
            for number, row in zip([None, *listed], rows, strict=True)
        ]
        names = 1
    for group in _groups(rows, width, names):
        if lines and lines[-1]:
            lines.append("")
        widths = _widths(rows, group)
        for row in rows:
            cells = [
                padded(row[column], widths[column])
                if column < names
                else " " * (widths[column] - display_width(row[column])) + row[column]
                for column in group
            ]
            lines.append(GAP.join(cells).rstrip())
    return lines


def _groups(rows: Sequence[Sequence[str]], width: int | None, names: int) -> Iterator[list[int]]:
    """Yield the columns of each group: the names, and as many others as fit beside them, at least one."""
    group = list(range(names))
    for column in range(names, len(rows[0])):
        if len(group) > names and width is not None and _taken(rows, [*group, column]) > width:
            yield group
            group = list(range(names))
        group.append(column)
    yield group


def _widths(rows: Sequence[Sequence[str]], group: Sequence[int]) -> dict[int, int]:
    return {column: max(display_width(row[column]) for row in rows) for column in group}


def _taken(rows: Sequence[Sequence[str]], group: Sequence[int]) -> int:
    return sum(_widths(rows, group).values()) + len(GAP) * (len(group) - 1)


def _folded(text: str, width: int, indent: int) -> list[str]:
    """Wrap a text to the width of the screen, the further lines indented; the text need not contain blanks."""
    lines: list[str] = []
    start = 0
    while start < len(text):
        pad = indent if lines else 0
        end = max(fitting_end(text, width - pad, start), start + 1)
        lines.append(" " * pad + text[start:end])
        start = end
    return lines
