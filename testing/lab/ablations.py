"""What each part of the chapters buys: the default manager with one part switched off.

python -m amplifier_context_testing.lab.ablations DATA... [--fraction 0.25 ...] [--min-messages 100] [--pauses]

Settings are chosen on one half of the data, so the table has each half apart. What a manager makes of pauses shows with
`--pauses` only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from amplifier_context_core.compaction.tuning import Tuning

from .course import Size
from .frontier import tuned
from .managers import Manager
from .run import PAUSES, Extras, Report, measure
from .sessions import Part, read_sessions
from .table import markdown, title

Change = tuple[Mapping[str, Any], Mapping[str, Any]]  # config, constants of chapters

# A cache of five minutes, as the lab's cache of any prefix has it; without a provider's name an hour is taken.
PAUSED: Mapping[str, Change] = {
    "as it is": ({"cache_ttl": 300}, {}),
    "without compactions after pauses": ({"cache_ttl": 0}, {}),
}
VARIANTS: Mapping[str, Change] = {
    "as it is": ({}, {}),
    "without sentences": ({}, {"person_chars": 0, "agent_chars": 0}),
    "without the agent's sentences": ({}, {"agent_chars": 0}),
    "without excerpts": ({}, {"excerpt_chars": 0}),
    "without roots": ({}, {"roots": False}),
    "without one ranking": ({}, {"one_ranking": False}),
}


def variants(*, pauses: bool = False) -> list[Manager]:
    """Return the managers of the table."""
    chosen = PAUSED if pauses else VARIANTS
    return [tuned(name, config, replace(Tuning(), **constants)) for name, (config, constants) in chosen.items()]


async def ablate(data: Sequence[Path], sizes: Sequence[Size], *, min_messages: int, pauses: bool) -> Report:
    """Return the report of all variants."""
    sessions = read_sessions(data, min_messages=min_messages)

    def replayed(report: Report) -> None:
        row = report.rows[-1]
        if len(row.by_session) == len(sessions):
            click.echo(f"{row.manager.label}, {row.size.label}", err=True)

    extras = Extras(pauses=PAUSES if pauses else None)
    return await measure(sessions, variants(pauses=pauses), *sizes, extras=extras, replayed=replayed)


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="DATA...")
@click.option("--fraction", "fractions", type=click.FloatRange(0, 1, min_open=True), multiple=True, default=(0.25,))
@click.option("--min-messages", type=click.IntRange(min=0), default=100, show_default=True)
@click.option("--pauses", is_flag=True, help="Insert pauses after a fifth of the human messages.")
def main(data: tuple[Path, ...], fractions: tuple[float, ...], min_messages: int, pauses: bool) -> None:
    """Print the table of ablations, each half of the data apart, in Markdown."""
    sizes = [Size(fraction=fraction) for fraction in fractions]
    report = asyncio.run(ablate(data, sizes, min_messages=min_messages, pauses=pauses))
    click.echo(title(report))
    parts: tuple[Part, ...] = ("choose", "report")
    for part in parts:
        if report.half(part):
            click.echo(f"\n{markdown(report, part)}")


if __name__ == "__main__":
    main()
