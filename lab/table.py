"""The lab's report for people: a table in Markdown, and what was replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .compactions import summary
from .figures import Figures
from .run import Report
from .shares import Share, quantile

Cell = Callable[[Figures], str]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _both(last: Share, everywhere: Share) -> str:
    return f"{_share(last.value)} / {_share(everywhere.value)}"


def _rounds(after: Mapping[str, Any]) -> str:
    """Rounds that are whole after a compaction: the tenth percentile, and the median."""
    return f"{after['rounds_p10']:.0f} / {after['rounds']:.0f}"


def _spent(after: Mapping[str, Any]) -> str:
    """What a view after a compaction is spent on: use of the budget, whole rounds, chapters, names in them."""
    return " / ".join(_share(after[name]) for name in ("used", "whole", "chapters", "names"))


# Each heading with its cell, in the order of the table.
CELLS: Mapping[str, Cell] = {
    "recall": lambda f: _share(f.recall.value),
    "located": lambda f: _share(f.located.value),
    "far": lambda f: _share(f.far.value),
    "people": lambda f: _both(f.last.people, f.all.people),
    "rules": lambda f: _both(f.last.rules, f.all.rules),
    "agent": lambda f: _both(f.last.agent, f.all.agent),
    "words": lambda f: _share(f.words.value),
    "far words": lambda f: _share(f.far_words.value),
    "edits": lambda f: _share(f.edits.value),
    "lines": lambda f: _share(f.lines.value),
    "prefix": lambda f: _share(f.ratio()),
    "effective": lambda f: _share(f.effective_ratio),
    "anthropic": lambda f: _share(f.ratio("anthropic")),
    "declared": lambda f: _share(f.ratio("declared")),
    "openai": lambda f: _share(f.ratio("openai")),
    "breaks": lambda f: f"{f.breaks:,}",
    "faulty": lambda f: f"{f.faulty:,}",
    "over": lambda f: f"{f.over:,}",
    "chapters": lambda f: _share(f.chapter_share),
    "rounds whole": lambda f: _rounds(summary(f.compactions)),
    "no round whole": lambda f: _share(summary(f.compactions)["none"]),
    "large round": lambda f: _share(summary(f.compactions)["large"]),
    "after": lambda f: _spent(summary(f.compactions)),
    "p50 ms": lambda f: f"{1e3 * quantile(f.times, 0.5):.1f}",
    "p99 ms": lambda f: f"{1e3 * quantile(f.times, 0.99):.1f}",
}


def markdown(report: Report, only: Sequence[str] = ()) -> str:
    """Return the table with all columns or only some, in their order."""
    heads = only or tuple(CELLS)
    budgets = len(report.sizes) > 1
    rows = [["manager", *(["budget"] if budgets else []), *heads]]
    for row in report.rows:
        cells = [CELLS[head](row.figures) for head in heads]
        rows.append([row.manager.label, *([row.size.label] if budgets else []), *cells])
    rows.insert(1, ["---", *["---:"] * (len(rows[0]) - 1)])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def title(report: Report) -> str:
    budget = " and ".join(one.label for one in report.sizes)
    budget += " of each conversation, and its system prompt" if report.sizes[0].budget is None else " tokens"
    first = report.rows[0].figures if report.rows else Figures()
    outgrown = [f"{row.figures.outgrown:,}" for row in report.rows if row.manager is report.rows[0].manager]
    count = len(report.sessions)
    return (
        f"{count:,} session{'s' if count != 1 else ''}, {first.requests:,} requests, {' and '.join(outgrown)} of them "
        f"with a history above the budget; budget {budget}; sentences of people {first.last.people.sought:,}, rules "
        f"{first.last.rules.sought:,}, of the agent {first.last.agent.sought:,}"
    )
