"""The rows of the tables: each figure, its format and its target."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Figures = Mapping[str, float | None]
Verdict = Literal["ok", "miss", ""]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the table.

    Attributes:
        name: what it is.
        show: the figure as text, from all figures of a size.
        value: what is held against the target; None where there is none.
        target: the target in words; empty where there is none.
        maximum: the largest value that meets the target.
        minimum: the smallest value that meets the target.
    """

    name: str
    show: Callable[[Figures], str]
    value: Callable[[Figures, Figures], float] | None = None
    target: str = ""
    maximum: float = math.inf
    minimum: float = -math.inf

    def verdict(self, figures: Figures, smallest: Figures) -> Verdict:
        """Return the verdict for a size; `smallest` are the figures of the smallest size."""
        if self.value is None:
            return ""
        value = self.value(figures, smallest)
        if math.isnan(value):
            return ""
        return "ok" if self.minimum <= value <= self.maximum else "miss"


@dataclass(frozen=True, slots=True)
class Group:
    """Rows under one heading."""

    heading: str
    rows: Sequence[Row]


def figure(figures: Figures, key: str) -> float:
    """Return a figure; NaN if it could not be measured."""
    value = figures.get(key)
    return math.nan if value is None else value


def value_of(key: str) -> Callable[[Figures, Figures], float]:
    return lambda figures, _: figure(figures, key)


def against_smallest(key: str) -> Callable[[Figures, Figures], float]:
    return lambda figures, smallest: figure(figures, key) / figure(smallest, key)


def text_of(template: str, *keys: str, scale: float = 1.0) -> Callable[[Figures], str]:
    def show(figures: Figures) -> str:
        values = [figure(figures, key) * scale for key in keys]
        return "–" if any(math.isnan(value) for value in values) else template.format(*values)

    return show


def milliseconds(value: float) -> str:
    """Return a duration with a unit."""
    if math.isnan(value):
        return "–"
    if value >= 10_000:
        return f"{value / 1000:,.0f} s"
    if value >= 1_000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def _took(name: str) -> Callable[[Figures], str]:
    return lambda figures: milliseconds(figure(figures, f"{name}_ms"))


def stall_of(name: str) -> Callable[[Figures], str]:
    """Return a cell with the longest stall and, in brackets, the longest pause of the cycle collector."""

    def show(figures: Figures) -> str:
        stall, collecting = figure(figures, f"{name}_stall"), figure(figures, f"{name}_gc")
        return f"{milliseconds(stall)} ({milliseconds(collecting)})"

    return show


def _ratio_row(name: str, key: str, target: str, maximum: float) -> Row:
    """Return the row of a figure in units of its baseline, compared with the smallest size."""

    def show(figures: Figures) -> str:
        return f"{figure(figures, key):.2f}"

    def value(figures: Figures, smallest: Figures) -> float:
        return math.nan if figures is smallest else against_smallest(key)(figures, smallest)

    return Row(name, show, value, target, maximum)


def groups() -> list[Group]:
    """Return the rows of the table in order."""
    return [
        Group(
            "add_message, µs",
            [
                Row("in all", text_of("{:.1f}", "add_us")),
                Row("  counting its tokens alone", text_of("{:.1f}", "count_us")),
                Row("  beyond counting", text_of("{:.1f}", "beyond_us"), value_of("beyond_us"), "≤ 60", 60),
                Row("  of it the collector's pauses", text_of("{:.1f}", "add_gc_us")),
                Row("  baseline: JSON round trip, append", text_of("{:.1f}", "baseline_us")),
                _ratio_row("  without these pauses, × the baseline", "beyond_baselines", "≤ 1.5×", 1.5),
            ],
        ),
        Group(
            "A request, one new round each",
            [
                Row("p50", text_of("{:.2f} ms", "request_p50"), value_of("request_p50"), "< 1 ms", 1.0),
                Row("p99", text_of("{:.2f} ms", "request_p99")),
                Row("baseline: a copy of the view, p50", text_of("{:.2f} ms", "copy_p50")),
                _ratio_row("p50, × the baseline", "request_baselines", "≤ 1.3×", 1.3),
            ],
        ),
        Group(
            "A request that compacts",
            [
                Row("how many do", _compacting),
                Row("one compaction, p50", text_of("{:.0f} ms", "compaction_p50")),
                Row("  longest", text_of("{:.0f} ms", "compaction_max"), value_of("compaction_max"), "≤ 150 ms", 150),
                Row(
                    "  longest, own CPU time",
                    text_of("{:.0f} ms", "compaction_own"),
                    value_of("compaction_own"),
                    "≤ 150 ms",
                    150,
                ),
                Row("  share of the ladder", text_of("{:.0f} %", "ladder_share", scale=100)),
                Row("  its slowest strategy", _slowest),
                Row("longest stall (collector's)", stall_of("steady")),
            ],
        ),
        Group(
            "The whole history at once",
            [
                Row("get_messages", _took("get")),
                Row("  longest stall (collector's)", stall_of("get")),
                Row("set_messages, echo", _took("echo")),
                Row("  longest stall (collector's)", stall_of("echo")),
                Row("set_messages, echo of a filter", _took("resume")),
                Row("  longest stall (collector's)", stall_of("resume")),
                Row("set_messages into a new session", _took("import")),
                Row("  longest stall (collector's)", stall_of("import")),
                Row("  then the first request", _took("first")),
                Row("  longest stall (collector's)", stall_of("first")),
            ],
        ),
        Group(
            "Memory of a session",
            [
                Row("held", text_of("{:,.1f} MB", "memory_mb")),
                Row("its messages as JSON", text_of("{:,.1f} MB", "json_mb")),
                Row(
                    "held for a byte of JSON",
                    text_of("{:.2f}×", "memory_ratio"),
                    value_of("memory_ratio"),
                    "≤ 2.5×",
                    2.5,
                ),
            ],
        ),
    ]


def large_group() -> Group:
    """Return the rows of the single large message."""
    return Group(
        "A message of 5 MB, exact counter",
        [
            Row("counting it in one go", _took("count")),
            Row("a tool's: add_message", _took("add")),
            Row("  longest stall", text_of("{:.1f} ms", "add_stall"), value_of("add_stall"), "≤ 20 ms", 20),
            Row("the request after it", _took("request")),
            Row("  longest stall", text_of("{:.1f} ms", "request_stall"), value_of("request_stall"), "≤ 20 ms", 20),
            Row("a tool's in JSON: add_message and request", _took("records")),
            Row("  longest stall", text_of("{:.1f} ms", "records_stall"), value_of("records_stall"), "≤ 20 ms", 20),
            Row("a human's: add_message and request", _took("human")),
            Row("  longest stall", text_of("{:.1f} ms", "human_stall"), value_of("human_stall"), "≤ 20 ms", 20),
        ],
    )


def against_group() -> Group:
    """Return the rows of a comparison with another commit."""
    return Group(
        "CPU time of a request",
        [
            Row("how many compact", _compacting),
            Row("without a compaction, p50", text_of("{:.2f} ms", "plain")),
            Row("  × the other commit's", text_of("{:.2f}", "plain_ratio")),
            Row("the same with signed thinking, p50", text_of("{:.2f} ms", "thinking")),
            Row("  × the other commit's", text_of("{:.2f}", "thinking_ratio")),
            Row("with a compaction, p50", text_of("{:.1f} ms", "compacting")),
            Row(
                "  × the other commit's",
                text_of("{:.2f}", "compacting_ratio"),
                value_of("compacting_ratio"),
                "≤ 2×",
                2.0,
            ),
            Row("  mean", text_of("{:.1f} ms", "compacting_mean")),
            Row(
                "  mean, × the other commit's",
                text_of("{:.2f}", "compacting_mean_ratio"),
                value_of("compacting_mean_ratio"),
                "≤ 2×",
                2.0,
            ),
            Row("all requests together, × the other commit's", text_of("{:.2f}", "all_ratio")),
        ],
    )


def _compacting(figures: Figures) -> str:
    compactions = figure(figures, "compactions")
    return f"1 in {figure(figures, 'requests') / compactions:.0f}" if compactions else "none"


def _slowest(figures: Figures) -> str:
    strategies = {key.removeprefix("strategy_"): figure(figures, key) for key in figures if key.startswith("strategy_")}
    known = {name: share for name, share in strategies.items() if not math.isnan(share)}
    if not known:
        return "–"
    name = max(known, key=lambda name: known[name])
    return f"{name} {known[name]:.0%}"
