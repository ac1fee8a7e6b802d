"""The tables of all figures, each with its target."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from .sessions import BUDGET
from .targets import Figures, Group, Row

_STYLES = {"ok": "green", "miss": "bold red", "": ""}


@dataclass(frozen=True, slots=True)
class Part:
    """One table.

    Attributes:
        title: above it.
        columns: what was measured, and its figures; the first is what others are held against.
        groups: the rows.
    """

    title: str
    columns: Mapping[str, Figures]
    groups: Sequence[Group]

    def table(self) -> Table:
        """Return the table for printing."""
        table = Table(title=self.title or None, title_justify="left", title_style="bold", header_style="bold")
        table.add_column("", no_wrap=True)
        for column in self.columns:
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("target", no_wrap=True)
        for group in self.groups:
            table.add_section()
            table.add_row(Text(group.heading, "bold"))
            for row in group.rows:
                cells = [_cell(row, figures, self._smallest) for figures in self.columns.values()]
                table.add_row(row.name, *cells, row.target)
        return table

    def verdicts(self) -> dict[str, str]:
        """Return the verdict of every measured target: `"10k: p50 (< 1 ms)": "ok"`."""
        verdicts = {
            f"{column}: {name} ({row.target})": row.verdict(figures, self._smallest)
            for column, figures in self.columns.items()
            for name, row in self._named()
        }
        return {name: verdict for name, verdict in verdicts.items() if verdict}

    @property
    def _smallest(self) -> Figures:
        return next(iter(self.columns.values()))

    def _named(self) -> Iterator[tuple[str, Row]]:
        """Return the rows by unique names; the name of an indented row contains the row above it."""
        for group in self.groups:
            above = ""
            for row in group.rows:
                indented = row.name.startswith(" ")
                above = above if indented else row.name.partition(",")[0]
                yield f"{group.heading}: {f'{above}, {row.name.strip()}' if indented else row.name}", row


def notes(seconds: float) -> str:
    """Return the notes that explain the tables."""
    return (
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores; {seconds:.0f} s in all. "
        f"Budget {BUDGET:,} tokens; sessions like recorded coding sessions, in the shape Amplifier's loops store. "
        "Tokens are counted by the heuristic (4 characters a token), or a million messages would take minutes of "
        "counting alone. Figures in units of a baseline, which is measured in the same process, are compared with "
        "those of the smallest size. A stall is the time for which the event loop was blocked; in brackets, the "
        "longest pause of Python's cycle collector in that span, which grows with all objects of the process, the "
        "caller's copies included. Own CPU time excludes such pauses and the time of other programs."
    )


def _cell(row: Row, figures: Figures, smallest: Figures) -> Text:
    verdict = row.verdict(figures, smallest)
    return Text.assemble(row.show(figures), (f" {verdict}" if verdict else "", _STYLES[verdict]))
