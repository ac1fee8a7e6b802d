"""``python -m bench.summaries``: what a request takes while a model writes chapters in the background.

The same session runs with context-simple and with context-summary, request by request in turn, so that both meet the
same load of the machine. The writer extracts its summaries and answers late. A real agent leaves the background seconds
between two requests; here it gets what `--pause` says.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter, thread_time
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from amplifier_context_core import ContextManager, HeuristicTokenCounter, load_config
from amplifier_context_core.events import PRE_COMPACT
from amplifier_context_summary.config import load_summary_config
from amplifier_context_summary.manager import SummaryManager
from amplifier_context_testing.summaries.writers import Writer

from .sessions import BUDGET, messages, rounds
from .timers import percentile, run

_SIZE = 20_000  # messages that are enough for all requests


class LateWriter(Writer):
    """Extracts summaries, and answers as late as a model would.

    Args:
        seconds: until each answer.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def complete(self, request: Any, **options: Any) -> Any:
        """Answer a request for a summary."""
        await asyncio.sleep(self._seconds)
        return await super().complete(request, **options)


class Announced:
    """Counts the compactions that are announced; some of them have no gain and are not counted by the manager."""

    def __init__(self) -> None:
        self.count = 0

    async def emit(self, event: str, data: dict[str, Any]) -> None:
        """Count an event."""
        self.count += event == PRE_COMPACT


@dataclass
class Measured:
    """One manager and the seconds of its requests."""

    manager: ContextManager
    announced: Announced
    plain: list[float] = field(default_factory=list[float])
    compacting: list[float] = field(default_factory=list[float])
    beside: list[float] = field(default_factory=list[float])  # while a model was being asked
    own: list[float] = field(default_factory=list[float])  # of the processor, in requests that do not compact

    async def request(self, group: list[dict[str, Any]]) -> None:
        """Add messages and ask for a view."""
        for message in group:
            await self.manager.add_message(message)
        announced = self.announced.count
        asking = isinstance(self.manager, SummaryManager) and self.manager.writer.is_running
        started, began = perf_counter(), thread_time()
        await self.manager.get_messages_for_request()
        took, own = perf_counter() - started, thread_time() - began
        compacted = self.announced.count > announced
        (self.compacting if compacted else self.plain).append(took)
        if not compacted:
            self.own.append(own)
        if asking:
            self.beside.append(took)


async def measure(requests: int, seconds: float, pause: float) -> dict[str, Measured]:
    """Return both managers after so many requests, by module id."""
    counter, writer = HeuristicTokenCounter(), LateWriter(seconds)
    rich = load_summary_config({"max_tokens": BUDGET, "max_summary_calls": 10_000, "summary_spend": 100.0})
    hooks = Announced(), Announced()
    simple = ContextManager(load_config({"max_tokens": BUDGET}), session_id="simple", hooks=hooks[0], counter=counter)
    summary = SummaryManager(
        rich, session_id="summary", hooks=hooks[1], counter=counter, providers=lambda: {writer.name: writer}
    )
    both = {"context-simple": Measured(simple, hooks[0]), "context-summary": Measured(summary, hooks[1])}
    streams = [rounds(messages(_SIZE, seed)) for seed in (1, 1)]
    for group, same in islice(zip(*streams, strict=True), requests):
        await both["context-simple"].request(group)
        await both["context-summary"].request(same)
        await asyncio.sleep(pause)
    for one in both.values():
        await one.manager.close()
    return both


def _milliseconds(seconds: list[float], share: float) -> str:
    return f"{percentile(seconds, share) * 1000:.2f} ms" if seconds else "–"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--requests", default=3_000, show_default=True, help="Requests of each session.")
@click.option("--seconds", default=0.5, show_default=True, help="Until the model answers.")
@click.option("--pause", default=0.0, show_default=True, help="Seconds after each two requests.")
def main(requests: int, seconds: float, pause: float) -> None:
    """Measure requests with and without a model that writes chapters, in one process, in turn."""
    logging.basicConfig(level=logging.ERROR)
    both = run(measure(requests, seconds, pause))
    kinds = ("requests", "processor", "compacting", "asking")
    table = Table("module", *(column for kind in kinds for column in (kind, "p50", "p99")))
    for name, one in both.items():
        cells = [
            text
            for values in (one.plain, one.own, one.compacting, one.beside)
            for text in (str(len(values)), *(_milliseconds(values, share) for share in (0.5, 0.99)))
        ]
        table.add_row(name, *cells)
    Console(width=165, highlight=False).print(table)


if __name__ == "__main__":
    main()
