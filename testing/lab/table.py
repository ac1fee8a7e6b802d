"""The lab's report for people: a table, and what the table leaves out."""

from __future__ import annotations

from rich.table import Table

from .figures import Figures
from .run import Report

COLUMNS = (
    "manager",
    "recall",
    "located",
    "far",
    "far loc.",
    "probes",
    "cost",
    "ratio",
    "1.0",
    "blocks",
    "cached",
    "breaks",
    "faulty",
    "lost",
    "no prompt",
    "over",
    "chapters",
    "p50 ms",
    "p99 ms",
)
EVIDENCE = ("evidence", "answers", "search")


def columns(report: Report) -> list[str]:
    """The headings; questions only where there are some."""
    asked = any(row.figures.questions for row in report.rows)
    measured = any(row.figures.memory for row in report.rows)
    return [*COLUMNS, *(EVIDENCE if asked else ()), *(("MB",) if measured else ())]


def cells(label: str, figures: Figures, heads: list[str]) -> list[str]:
    """A row of text for the headings."""
    shown = {
        "manager": label,
        "recall": _share(figures.recall),
        "located": _share(figures.located_recall),
        "far": _share(figures.far_recall),
        "far loc.": _share(figures.far_located_recall),
        "probes": _share(figures.probe_share),
        "cost": f"{figures.cost / 1e6:.2f} M",
        "ratio": _share(figures.cost_ratio),
        "1.0": _share(figures.cost_ratio_plain),
        "blocks": _share(figures.cost_ratio_blocks),
        "cached": _share(figures.cached_share),
        "breaks": f"{figures.breaks:,}",
        "faulty": f"{figures.faulty:,}",
        "lost": f"{figures.human_lost:,}",
        "no prompt": f"{figures.prompt_lost:,}",
        "over": f"{figures.over:,}",
        "chapters": _share(figures.chapter_share),
        "p50 ms": f"{figures.p50 * 1e3:.1f}",
        "p99 ms": f"{figures.p99 * 1e3:.1f}",
        "evidence": _share(figures.evidence_share),
        "answers": _share(figures.answer_share),
        "search": _share(figures.search_share),
        "MB": f"{figures.memory / 1e6:.1f}",
    }
    return [shown[head] for head in heads]


def rich_table(report: Report) -> Table:
    """The table for a terminal."""
    table = Table(title=title(report), caption=caption(report), caption_justify="left", title_justify="left")
    heads = columns(report)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place == 0 else "right", no_wrap=place > 0, overflow="fold")
    for row in report.rows:
        table.add_row(*cells(row.manager.label, row.figures, heads))
    return table


def markdown(report: Report) -> str:
    """The table for a document."""
    heads = columns(report)
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" + " ---: |" * (len(heads) - 1)]
    lines += ["| " + " | ".join(cells(row.manager.label, row.figures, heads)) + " |" for row in report.rows]
    return "\n".join(lines)


def title(report: Report) -> str:
    """What was replayed, at which budget."""
    size = report.size
    budget = f"{size.fraction:.0%} of each {'session' if size.whole else 'conversation, and its system prompt'}"
    if size.budget is not None:
        budget = f"{size.budget:,} tokens"
    requests = report.rows[0].figures.requests if report.rows else 0
    outgrown = report.rows[0].figures.outgrown if report.rows else 0
    count = len(report.sessions)
    return (
        f"{count:,} session{'s' if count != 1 else ''}, {requests:,} requests, {outgrown:,} of them with a history "
        f"above the budget; budget {budget}"
    )


def caption(report: Report) -> str:
    """The words the headings stand for."""
    return (
        "recall: identifiers the recorded next message uses again, still in the view; located: on a line that says "
        "where they came from; far: last mentioned outside the newest quarter of the budget. cost: input tokens, "
        "cached at 0.1, fresh at 1.25; ratio: to an unlimited window; 1.0: with fresh at 1.0; blocks: where the cache "
        "knows breakpoints only. faulty: requests a provider would refuse, or without the newest human message (lost)."
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
