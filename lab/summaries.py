"""What summaries by a model cost and keep, in whole sessions: a script extracts them, for there is no model.

python -m lab.summaries claude_code_entire.jsonl.gz [--fraction 0.25] [--first 3]
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import click

from amplifier_context_core.messages.tokens import count_message_tokens
from amplifier_context_testing.caches.token_scale import TokenScale

from .course import Size
from .managers import Manager, Opened, manager, mount_of
from .paced import EVENTS, UNLIMITED, LabWriter, open_paced
from .run import Row, measure
from .sessions import read_sessions
from .table import CELLS, lined

MODULE = "context-summary"
PRICES: Mapping[str, float] = {"the session's own model": 1.0, "a model at a fifth of its price": 0.2}
SHOWN = ("recall", "far", "people", "rules", "agent", "far words", "prefix", "declared", "openai", "breaks", "chapters")
OF_CALLS = ("calls", "calls per compaction", "tokens in / out", "with summaries", "share", "waits", "unused")


@dataclass(slots=True)
class Spent:
    """What the summaries of some sessions took.

    Attributes:
        calls: for each compaction, since the one before.
        input, output: tokens.
        money: in prices of a plain input token of the session's model.
        counted: tokens that the chapters of the last views count, those with a text.
        unused: of these, tokens that the chapters do not have (docs/summary.md).
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
        last, counter = context.compactor.last_sent, await context.token_counter()
        for segment in last.view.segments() if last else ():
            if segment.chapter and segment.chapter.texts:
                self.counted += segment.tokens
                self.unused += segment.tokens - sum(count_message_tokens(one.message, counter) for one in segment.shown)

    def take(self, writer: LabWriter, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        since = 0
        for event, data in events:
            if event == EVENTS[0]:
                since += 1
            elif event == "context:compaction":
                self.calls.append(since)
                since = 0
            elif event == EVENTS[2]:
                self.failures.append(str(data["reason"]))
        self.input += sum(given for given, _ in writer.calls)
        self.output += sum(written for _, written in writer.calls)
        self.money += writer.money
        self.waits += writer.waits


def asking(label: str, price: float, spent: Spent, config: Mapping[str, Any]) -> Manager:
    async def open_asking(scale: TokenScale, budget: int) -> Opened:
        writer = LabWriter(scale, price)
        opened = await open_paced(mount_of(MODULE), {**UNLIMITED, **config}, writer)

        async def close() -> None:
            await spent.look_at(opened.context)
            await opened.close()
            spent.take(writer, opened.events)

        return Opened(opened.context, close)

    return Manager(label, open_asking, reads_provider=False)


def _row(row: Row, spent: Spent | None) -> list[str]:
    cells = [row.manager.label, *(CELLS[name](row.figures) for name in SHOWN)]
    unlimited = row.figures.unlimited["prefix"].price
    if spent is None:
        return [*cells, "–", "–", "–", f"{row.figures.cost / unlimited:.3f}", "–", "–", "–"]
    return [
        *cells,
        f"{sum(spent.calls)}",
        f"{median(spent.calls):g} / {max(spent.calls)}" if spent.calls else "–",
        f"{spent.input / 1e3:,.0f} k / {spent.output / 1e3:,.0f} k",
        f"{(row.figures.cost + spent.money) / unlimited:.3f}",
        f"{spent.money / row.figures.cost:.3f}",
        f"{spent.waits}",
        f"{spent.unused / spent.counted:.3f}" if spent.counted else "–",
    ]


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="DATA...")
@click.option("--fraction", type=click.FloatRange(0, 1, min_open=True), default=0.25, show_default=True)
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="Only the first N sessions.")
def main(data: tuple[Path, ...], fraction: float, first: int | None) -> None:
    """Print the table, in Markdown."""
    spents = {label: Spent() for label in PRICES}
    managers = [manager("context-simple"), *(asking(label, PRICES[label], spents[label], {}) for label in PRICES)]
    sessions = read_sessions(data, min_messages=100)[:first]
    report = asyncio.run(measure(sessions, managers, Size(fraction=fraction)))
    rows = [_row(row, spents.get(row.manager.label)) for row in report.rows]
    click.echo(lined([["", *SHOWN, *OF_CALLS], *rows]))


if __name__ == "__main__":
    main()
