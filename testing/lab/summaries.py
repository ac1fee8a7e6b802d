"""What summaries by a model cost and keep, in two tables: whole sessions, and recorded boundaries.

python -m amplifier_context_testing.lab.summaries claude_code_entire.jsonl.gz [--fraction 0.25] [--first 3]

There is no model. In whole sessions a script extracts the summaries; that gives calls, tokens, money and waits. At the
boundaries the summaries that Claude Code's model wrote are the answers (`boundaries`); that gives what they keep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click

from amplifier_context_core.messages.tokens import count_message_tokens

from . import boundaries
from .course import Size
from .managers import Manager, Opened, manager, mount_of
from .paced import EVENTS, UNLIMITED, LabWriter, open_paced
from .run import Row, measure
from .sessions import read_sessions
from .table import CELLS
from .token_scale import TokenScale

MODULE = "context-summary"
DIGEST = "context-simple"
PRICES: Mapping[str, float] = {"the session's own model": 1.0, "a model at a fifth of its price": 0.2}
SHOWN = ("recall", "far", "people", "rules", "agent", "far words", "prefix", "declared", "openai", "breaks", "chapters")
COMPACTED = "context:compaction"


@dataclass(slots=True)
class Spent:
    """What the summaries of some sessions took.

    Attributes:
        calls: for each compaction, since the one before.
        input, output: tokens.
        money: in prices of a plain input token of the session's model.
        waits: requests that waited.
        failures: reasons.
        counted: tokens that the chapters of the last views count, those with a text.
        unused: of these, tokens that the chapters do not have.
    """

    calls: list[int] = field(default_factory=list[int])
    input: int = 0
    output: int = 0
    money: float = 0.0
    waits: int = 0
    failures: list[str] = field(default_factory=list[str])
    counted: int = 0
    unused: int = 0

    async def look_at(self, context: Any) -> None:
        """Add what the chapters of a session's last view leave of the room that they count (docs/summary.md)."""
        last, counter = context.compactor.last_sent, await context.token_counter()
        for segment in last.view.segments() if last else ():
            if segment.chapter and segment.chapter.texts:
                self.counted += segment.tokens
                self.unused += segment.tokens - sum(count_message_tokens(one.message, counter) for one in segment.shown)

    def take(self, writer: LabWriter, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Add what one session took."""
        since = 0
        for event, data in events:
            if event == EVENTS[0]:
                since += 1
            elif event == COMPACTED:
                self.calls.append(since)
                since = 0
            elif event == EVENTS[2]:
                self.failures.append(str(data["reason"]))
        self.input += sum(call.input for call in writer.calls)
        self.output += sum(call.output for call in writer.calls)
        self.money += writer.money
        self.waits += writer.waits


def asking(label: str, price: float, spent: Spent, config: Mapping[str, Any]) -> Manager:
    """Return the manager that asks a model of this price, and adds what that takes to `spent`."""

    async def open_asking(scale: TokenScale, budget: int) -> Opened:
        writer = LabWriter(scale, price=price)
        opened = await open_paced(mount_of(MODULE), {**UNLIMITED, **config}, writer)

        async def close() -> None:
            await spent.look_at(opened.context)
            await opened.close()
            spent.take(writer, opened.events)

        return Opened(opened.context, close)

    return Manager(label, open_asking, names_openai=True)


async def whole_sessions(paths: Sequence[Path], size: Size, first: int | None) -> list[list[str]]:
    """Return the table of whole sessions, headings first."""
    sessions = read_sessions(paths, min_messages=100)[:first]
    spents = {label: Spent() for label in PRICES}
    managers = [manager(DIGEST)]
    managers += [asking(label, price, spents[label], {}) for label, price in PRICES.items()]
    report = await measure(sessions, managers, size)
    of_calls = ("calls", "calls per compaction", "tokens in / out", "with summaries", "share", "waits", "unused")
    return [["", *SHOWN, *of_calls], *(_row(row, spents.get(row.manager.label)) for row in report.rows)]


def _row(row: Row, spent: Spent | None) -> list[str]:
    cells = [row.manager.label, *(CELLS[name](row.figures) for name in SHOWN)]
    unlimited = row.figures.unlimited["prefix"].price
    if spent is None:
        return [*cells, "–", "–", "–", f"{row.figures.cost / unlimited:.3f}", "–", "–", "–"]
    per = f"{median(spent.calls):g} / {max(spent.calls)}" if spent.calls else "–"
    return [
        *cells,
        f"{sum(spent.calls)}",
        per,
        f"{spent.input / 1e3:,.0f} k / {spent.output / 1e3:,.0f} k",
        f"{(row.figures.cost + spent.money) / unlimited:.3f}",
        f"{spent.money / row.figures.cost:.3f}",
        f"{spent.waits}",
        f"{spent.unused / spent.counted:.3f}" if spent.counted else "–",
    ]


SMALL: Mapping[str, Any] = {"target_usage": 0.02, "chapter_share": 0.02}  # chapters about as large as the summaries


async def at_boundaries(paths: Sequence[Path]) -> list[list[str]]:
    """Return the table of recorded boundaries, headings first."""
    sessions, scale = boundaries.recorded_sessions(paths), TokenScale()
    judged = partial(boundaries.judged, sessions, scale=scale)
    by_hand, whole = boundaries.BY_HAND, boundaries.WHOLE
    outcomes = {
        "the recorded summary alone, as Claude Code used it": boundaries.as_used(sessions, scale),
        "digest": await judged(DIGEST, None, config={}),
        "summary as recorded": await judged(MODULE, boundaries.as_recorded, config=whole),
        "summary extracted": await judged(MODULE, boundaries.extracting, config=by_hand),
        "digest, little room": await judged(DIGEST, None, config=SMALL),
        "summary as recorded, little room": await judged(MODULE, boundaries.as_recorded, config={**whole, **SMALL}),
    }
    rows = [[name, *outcome.cells()] for name, outcome in outcomes.items()]
    return [["", *boundaries.HEADS], *rows]


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    heads, *body = rows
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" + " ---: |" * (len(heads) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(line) + " |" for line in body)])


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="DATA...")
@click.option("--fraction", type=click.FloatRange(0, 1, min_open=True), default=0.25, show_default=True)
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="Only the first N sessions, of whole sessions.")
@click.option("--only", type=click.Choice(["boundaries", "sessions"]), help="Print one of the tables only.")
def main(data: tuple[Path, ...], fraction: float, first: int | None, only: str | None) -> None:
    """Print both tables, in Markdown."""
    if only != "sessions":
        click.echo(_markdown(asyncio.run(at_boundaries(data))) + "\n")
    if only != "boundaries":
        click.echo(_markdown(asyncio.run(whole_sessions(data, Size(fraction=fraction), first))))


if __name__ == "__main__":
    main()
