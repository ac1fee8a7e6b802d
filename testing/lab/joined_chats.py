"""Chats of many sessions: the recordings of each half as one long conversation, replayed as any other.

python -m amplifier_context_testing.lab.joined_chats DATA... [--fraction SHARE] [--context MANAGER] [--orders COUNT]

Recorded chats are short. Joined, they are one history in which people wrote facts many sessions ago. What is left of a
fact depends on what came after it, so the chats are joined in several orders: as they were read, and shuffled by
a seed. The table has the columns of the lab that show what is left of them in all orders together.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import click

from ..checks.message_shapes import SYSTEM_ROLES
from .course import Size
from .managers import manager
from .run import measure
from .sessions import Part, Session, read_sessions
from .table import CELLS

_COLUMNS = (
    "evidence",
    "people",
    "rules",
    "agent",
    "words",
    "far words",
    "prefix",
    "openai",
    "breaks",
    "faulty",
    "over",
)


def joined(sessions: Sequence[Session], name: str) -> Session:
    """Return sessions as one conversation, without their system prompts; questions and host messages stay with it."""
    whole = Session(name, "joined chats", [])
    for session in sessions:
        kept = [at for at, message in enumerate(session.messages) if message.get("role") not in SYSTEM_ROLES]
        moved = {old: len(whole.messages) + new for new, old in enumerate(kept)}
        questions = [
            replace(question, indices=tuple(moved[at] for at in question.indices if at in moved))
            for question in session.questions
        ]
        whole = replace(
            whole,
            messages=[*whole.messages, *(session.messages[at] for at in kept)],
            questions=(*whole.questions, *questions),
            host=whole.host | {moved[at] for at in session.host if at in moved},
        )
    return whole


def orders(sessions: Sequence[Session], count: int) -> Iterator[list[Session]]:
    """Yield sessions in so many orders: as they are, then shuffled, by the same seeds in every run."""
    for seed in range(count):
        ordered = list(sessions)
        if seed:
            random.Random(seed).shuffle(ordered)
        yield ordered


@click.command(help=__doc__)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--fraction", "fractions", type=float, multiple=True, default=(0.5, 0.25, 0.1, 0.05))
@click.option("--context", "names", multiple=True, default=("context-simple", "newest-checkpointed"))
@click.option("--orders", "count", type=click.IntRange(1), default=8, show_default=True)
def main(paths: tuple[str, ...], fractions: tuple[float, ...], names: tuple[str, ...], count: int) -> None:
    """Print what is left of each half, at each share of its tokens."""
    halves: tuple[Part, Part] = ("choose", "report")
    chats = [
        joined(sessions, f"{half} {number}")
        for half in halves
        for number, sessions in enumerate(orders(read_sessions(paths, part=half), count))
    ]
    sizes = [Size(fraction=fraction) for fraction in fractions]
    report = asyncio.run(measure(chats, [manager(name) for name in names], *sizes))
    click.echo(
        "| half | manager | budget | " + " | ".join(_COLUMNS) + " |\n| --- | --- |" + " ---: |" * (1 + len(_COLUMNS))
    )
    for half in halves:
        for row in report.rows:
            figures = row.of(name for name in row.by_session if name.startswith(half))
            cells = " | ".join(CELLS[column](figures) for column in _COLUMNS)
            click.echo(f"| {half} | {row.manager.label} | {row.size.label} | {cells} |")


if __name__ == "__main__":
    main()
