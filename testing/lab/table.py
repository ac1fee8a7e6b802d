"""The lab's report for people: a table, and what the table leaves out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .compactions import summary
from .figures import Figures
from .run import Report
from .sessions import Part
from .shares import Share

Cell = Callable[[Figures], str]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _both(last: Share, everywhere: Share) -> str:
    """Two shares: in the last view of each session, and in all views."""
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
    "far loc.": lambda f: _share(f.far_located.value),
    "no roots": lambda f: f"{_share(f.spelled.value)} / {_share(f.far_spelled.value)}",
    "people": lambda f: _both(f.last.people, f.all.people),
    "own": lambda f: _both(f.last.own, f.all.own),
    "rules": lambda f: _both(f.last.rules, f.all.rules),
    "planted": lambda f: _both(f.last.planted, f.all.planted),
    "agent": lambda f: _both(f.last.agent, f.all.agent),
    "words": lambda f: _share(f.words.value),
    "far words": lambda f: _share(f.far_words.value),
    "probes": lambda f: _share(f.probes.value),
    "edits": lambda f: _share(f.edits.value),
    "lines": lambda f: _share(f.lines.value),
    "re-reads": lambda f: f"{f.re_reads:,}",
    "cost": lambda f: f"{f.cost / 1e6:.2f} M",
    "prefix": lambda f: _share(f.ratio()),
    "effective": lambda f: _share(f.effective_ratio),
    "1.0": lambda f: _share(f.plain_ratio),
    "anthropic": lambda f: _share(f.ratio("anthropic")),
    "declared": lambda f: _share(f.ratio("declared")),
    "openai": lambda f: _share(f.ratio("openai")),
    "cached": lambda f: _share(f.cached_share),
    "breaks": lambda f: f"{f.breaks:,}",
    "faulty": lambda f: f"{f.faulty:,}",
    "lost": lambda f: f"{f.human_lost:,}",
    "no prompt": lambda f: f"{f.prompt_lost:,}",
    "over": lambda f: f"{f.over:,}",
    "chapters": lambda f: _share(f.chapter_share),
    "rounds whole": lambda f: _rounds(summary(f.compactions)),
    "no round whole": lambda f: _share(summary(f.compactions)["none"]),
    "large round": lambda f: _share(summary(f.compactions)["large"]),
    "after": lambda f: _spent(summary(f.compactions)),
    "p50 ms": lambda f: f"{f.p50 * 1e3:.1f}",
    "p99 ms": lambda f: f"{f.p99 * 1e3:.1f}",
    "evidence": lambda f: _share(f.evidence.value),
    "answers": lambda f: _share(f.answers.value),
    "search": lambda f: _share(f.search.value),
    "reach": lambda f: _share(f.reach.value),
    "oracle": lambda f: _share(f.oracle.value),
    "MB": lambda f: f"{f.memory / 1e6:.1f}",
}
ALWAYS = tuple(CELLS)[: tuple(CELLS).index("evidence")]


def columns(report: Report) -> list[str]:
    """Return the headings of figures: questions, planted rules, memory only where there are some."""
    figures = [row.figures for row in report.rows]
    shown = {
        "planted": report.extras.planted > 0,
        **dict.fromkeys(("evidence", "answers", "search"), any(one.evidence.sought for one in figures)),
        **dict.fromkeys(("reach", "oracle"), report.extras.reach),
        "MB": any(one.memory for one in figures),
    }
    return [head for head in CELLS if shown.get(head, True)]


def rows(report: Report, part: Part | None = None, only: Sequence[str] = ()) -> list[list[str]]:
    """Return the table as text, headings first.

    Args:
        report: what was measured.
        part: only the sessions of this half.
        only: headings of the columns, in order; by default all of which there are figures.
    """
    heads = only or columns(report)
    budgets = len(report.sizes) > 1
    figures = report.half(part) if part is not None else [(row, row.figures) for row in report.rows]
    table = [["manager", *(["budget"] if budgets else []), *heads]]
    for row, found in figures:
        label = row.manager.label if part is None else f"{part} ({found.sessions}): {row.manager.label}"
        table.append([label, *([row.size.label] if budgets else []), *(CELLS[head](found) for head in heads)])
    return table


def markdown(report: Report, part: Part | None = None, only: Sequence[str] = ()) -> str:
    """Return the table for a document."""
    heads, *body = rows(report, part, only)
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" + " ---: |" * (len(heads) - 1)]
    lines += ["| " + " | ".join(line) + " |" for line in body]
    return "\n".join(lines)


def title(report: Report) -> str:
    """Return what was replayed, at which budget, and how much of each kind was looked for."""
    size = report.sizes[0]
    budget = " and ".join(one.label for one in report.sizes)
    if size.budget is None:
        budget += f" of each {'session' if size.whole else 'conversation, and its system prompt'}"
    else:
        budget += " tokens"
    first = report.rows[0].figures if report.rows else Figures()
    outgrown = [f"{row.figures.outgrown:,}" for row in report.rows if row.manager is report.rows[0].manager]
    count = len(report.sessions)
    kinds = first.last
    planted = f" and {kinds.planted.sought:,} planted" if report.extras.planted else ""
    return (
        f"{count:,} session{'s' if count != 1 else ''}, {first.requests:,} requests, {' and '.join(outgrown)} of them "
        f"with a history above the budget; budget {budget}; sentences of people {kinds.people.sought:,}, rules "
        f"{kinds.rules.sought:,}{planted}, of the agent {kinds.agent.sought:,}"
    )


def caption() -> str:
    """Return what the headings mean."""
    return (
        "recall: identifiers the recorded next message uses again, still in the view; located: on a line that names "
        "where they came from; far: last mentioned outside the newest quarter of the budget. people, rules, agent: "
        "sentences word for word in the last view / in all views; words: plain words the agent uses again. cost: input "
        "tokens with a cache of any prefix, read at 0.1, written at 1.25; prefix: that to an unlimited window; 1.0: "
        "where writing costs nothing extra; anthropic, declared, openai: to an unlimited window under these caches. "
        "faulty: requests a provider would refuse, or without the newest human message (lost)."
    )
