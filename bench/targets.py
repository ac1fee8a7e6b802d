"""The rows of the tables: each figure, its format and its target."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.table import Table
from rich.text import Text

Figures = Mapping[str, float | None]
Verdict = Literal["ok", "miss", ""]

_STYLES = {"ok": "green", "miss": "bold red", "": ""}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a table.

    Attributes:
        name: what it is; empty for a heading's own row.
        key: of the figure.
        template: its format.
        most, least: what meets the target.
        of_first: the target is for the figure in units of the first column's, which has none itself.
    """

    name: str
    key: str
    template: str
    most: float = math.inf
    least: float = -math.inf
    of_first: bool = False

    @property
    def target(self) -> str:
        if math.isfinite(self.most):
            return f"≤ {self.most:g}{' × the first' if self.of_first else ''}"
        return f"≥ {self.least:g}" if math.isfinite(self.least) else ""

    def show(self, figures: Figures) -> str:
        value = _figure(figures, self.key)
        return "–" if math.isnan(value) else self.template.format(value)

    def verdict(self, figures: Figures, first: Figures) -> Verdict:
        value = _figure(figures, self.key)
        if self.of_first:
            value = math.nan if figures is first else value / _figure(first, self.key)
        if not self.target or math.isnan(value):
            return ""
        return "ok" if self.least <= value <= self.most else "miss"


def _figure(figures: Figures, key: str) -> float:
    """Return a figure; NaN if it could not be measured."""
    value = figures.get(key)
    return math.nan if value is None else value


@dataclass(frozen=True, slots=True)
class Part:
    """One table: rows by heading, and what was measured, a column each."""

    title: str
    groups: Mapping[str, Sequence[Row]]
    columns: Mapping[str, Figures]

    def table(self) -> Table:
        table = Table(title=self.title, title_justify="left", title_style="bold", header_style="bold")
        table.add_column("", no_wrap=True)
        for column in self.columns:
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("target", no_wrap=True)
        for heading, rows in self.groups.items():
            table.add_section()
            table.add_row(Text(heading, "bold"))
            for row in rows:
                table.add_row(row.name, *(self._cell(row, figures) for figures in self.columns.values()), row.target)
        return table

    def verdicts(self) -> Iterator[tuple[str, str]]:
        """Yield the verdict of every measured target: `"10k: A request: p50 (≤ 1)"`, `"ok"`."""
        for column, figures in self.columns.items():
            for heading, rows in self.groups.items():
                for row in rows:
                    if verdict := row.verdict(figures, self._first):
                        yield f"{column}: {heading}: {row.name.strip()} ({row.target})", verdict

    @property
    def _first(self) -> Figures:
        return next(iter(self.columns.values()))

    def _cell(self, row: Row, figures: Figures) -> Text:
        verdict = row.verdict(figures, self._first)
        return Text.assemble(row.show(figures), (f" {verdict}" if verdict else "", _STYLES[verdict]))


SESSIONS = {
    "add_message, µs": [
        Row("in all", "add_us", "{:.1f}"),
        Row("  beyond counting its tokens", "beyond_us", "{:.1f}", most=60),
        Row("  of the baseline: JSON round trip, append", "beyond_baselines", "{:.2f} ×", most=1.5, of_first=True),
    ],
    "A request, one new round each": [
        Row("p50", "request_p50", "{:.2f} ms", most=1.0),
        Row("p99", "request_p99", "{:.2f} ms"),
        Row("p50, of the baseline: a copy of the view", "request_baselines", "{:.2f} ×", most=1.3, of_first=True),
    ],
    "A request that compacts": [
        Row("one in so many", "per_compaction", "{:.0f}"),
        Row("one compaction, p50", "compaction_p50", "{:.0f} ms"),
        Row("  longest", "compaction_max", "{:.0f} ms", most=150),
        Row("  longest, own CPU time", "compaction_own", "{:.0f} ms", most=150),
    ],
    "Memory of a session": [
        Row("held", "memory_mb", "{:,.1f} MB"),
        Row("  for a byte of its messages as JSON", "memory_ratio", "{:.2f}", most=2.5),
    ],
}
AGAINST = {
    "CPU time of a request": [
        Row("without a compaction, p50", "plain", "{:.2f} ms"),
        Row("  × the other commit's", "plain_ratio", "{:.2f}"),
        Row("the same with signed thinking, p50", "thinking", "{:.2f} ms"),
        Row("  × the other commit's", "thinking_ratio", "{:.2f}"),
        Row("with a compaction, mean", "compacting_mean", "{:.1f} ms"),
        Row("  × the other commit's", "compacting_mean_ratio", "{:.2f}", most=2.0),
        Row("all requests together, × the other commit's", "all_ratio", "{:.2f}"),
    ]
}
APPENDING = {
    "One appender, µs a message": [
        Row("baseline: the bare loop", "bare_us", "{:.0f}"),
        Row("store.append", "append_us", "{:.0f}"),
        Row("  × the baseline's", "append_baselines", "{:.2f}"),
        Row("  above 1.15 × the baseline's (local)", "local_excess", "{:.0f}", most=60),
        Row("  speed, of the baseline's (PostgreSQL)", "server_share", "{:.2f}", least=0.4),
        Row("ContextManager.add_message", "add_us", "{:.0f}"),
    ],
    "16 appenders, messages a second": [
        Row("baseline", "bare_rate", "{:,.0f}"),
        Row("one session and its manager", "shared_rate", "{:,.0f}"),
        Row("a session each in one store", "spread_rate", "{:,.0f}"),
        Row("  × the baseline's", "spread_baselines", "{:.2f}"),
        Row("  × the baseline's (SQL)", "sql_share", "{:.2f}", least=0.7),
    ],
}
RESUMING = {
    "From the checkpoint to the first view": [
        Row("open, resume and first view", "resume_ms", "{:.1f} ms", most=50),
        Row("  against the first", "resume_ms", "{:.1f} ms", most=2.0, of_first=True),
        Row("entries loaded", "loaded", "{:,.0f}"),
    ],
    "A new process, from its start to the first view": [
        Row("baseline: only checkpoint and tail, by the store", "fresh_store_ms", "{:.0f} ms"),
        Row("first view", "fresh_view_ms", "{:.0f} ms"),
        Row("  × the baseline's", "fresh_ratio", "{:.2f}", most=4.0),
        Row("memory after the first view", "fresh_view_mb", "{:.0f} MB"),
    ],
    "Without a checkpoint": [
        Row("all loaded, to the first view", "rebuild_s", "{:.1f} s", most=60),
        Row("  memory of the process then", "rebuild_mb", "{:,.0f} MB", most=1_200),
    ],
    "The store": [
        Row("on disk", "size_mb", "{:,.0f} MB"),
        Row("filled in batches, µs a message", "fill_us", "{:.0f}"),
    ],
}
