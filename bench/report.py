"""The table of all figures, each beside its target."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping

from rich.table import Table
from rich.text import Text

from .sessions import BUDGET, name_of
from .targets import Figures, Group, Row, groups, large_group

_STYLES = {"ok": "green", "miss": "bold red", "": ""}


def tables(sizes: Mapping[int, Figures], large: Figures | None) -> list[Table]:
    """One table for the sizes, one for the large message, as far as they were measured."""
    made: list[Table] = []
    if sizes:
        titles = [name_of(size) for size in sizes]
        made.append(_table("Sessions of so many messages", titles, groups(), list(sizes.values())))
    if large:
        made.append(_table("", ["5 MB"], [large_group()], [large]))
    return made


def notes(seconds: float) -> str:
    """What must be known to read the table."""
    return (
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores; {seconds:.0f} s in all. "
        f"Budget {BUDGET:,} tokens; sessions like recorded coding sessions, in the shape Amplifier's loops store. "
        "Tokens are counted by the heuristic (4 characters a token), or a million messages would take minutes of "
        "counting alone. Figures in units of a floor, which is measured in the same process, are held against those of "
        "the smallest size. A stall is how long the event loop stood still; in brackets, the longest pause of Python's "
        "own cycle collector in that span: it grows with all the process holds, the caller's copies included. Own CPU "
        "time is without such pauses, and without what other programs took."
    )


def verdicts(sizes: Mapping[int, Figures], large: Figures | None) -> dict[str, str]:
    """Every target that was measured: `"10k: p50 (< 1 ms)": "ok"`."""
    told: dict[str, str] = {}
    smallest: Figures = next(iter(sizes.values())) if sizes else {}
    for size, figures in sizes.items():
        for name, row in _named(groups()):
            told[f"{name_of(size)}: {name} ({row.target})"] = row.verdict(figures, smallest)
    for name, row in _named([large_group()]) if large else ():
        told[f"{name} ({row.target})"] = row.verdict(large or {}, {})
    return {name: verdict for name, verdict in told.items() if verdict}


def _named(of: list[Group]) -> Iterator[tuple[str, Row]]:
    """Rows under a name that tells them apart: of an indented row, the row above it is part."""
    for group in of:
        above = ""
        for row in group.rows:
            indented = row.name.startswith(" ")
            above = above if indented else row.name.partition(",")[0]
            yield f"{group.heading}: {f'{above}, {row.name.strip()}' if indented else row.name}", row


def _table(title: str, columns: list[str], of: list[Group], figures: list[Figures]) -> Table:
    table = Table(title=title or None, title_justify="left", title_style="bold", header_style="bold")
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("target", no_wrap=True)
    for group in of:
        table.add_section()
        table.add_row(Text(group.heading, "bold"))
        for row in group.rows:
            cells = [_cell(row, one, figures[0]) for one in figures]
            table.add_row(row.name, *cells, row.target)
    return table


def _cell(row: Row, figures: Figures, smallest: Figures) -> Text:
    verdict = row.verdict(figures, smallest)
    return Text.assemble(row.show(figures), (f" {verdict}" if verdict else "", _STYLES[verdict]))
