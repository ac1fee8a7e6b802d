"""Chats of many sessions: the recordings of each half as one long conversation, replayed as any other.

python -m amplifier_context_testing.lab.joined_chats DATA... [--fraction SHARE] [--context MANAGER]

Recorded chats are short. Joined, they are one history in which people wrote facts many sessions ago. The table has the
columns of the lab that show what is left of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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


@click.command(help=__doc__)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--fraction", "fractions", type=float, multiple=True, default=(0.5, 0.25, 0.1, 0.05))
@click.option("--context", "names", multiple=True, default=("context-simple", "newest-checkpointed"))
def main(paths: tuple[str, ...], fractions: tuple[float, ...], names: tuple[str, ...]) -> None:
    """Print what is left of each half, at each share of its tokens."""
    halves: tuple[Part, Part] = ("choose", "report")
    chats = [joined(read_sessions(paths, part=half), half) for half in halves]
    sizes = [Size(fraction=fraction) for fraction in fractions]
    report = asyncio.run(measure(chats, [manager(name) for name in names], *sizes))
    click.echo(
        "| half | manager | budget | " + " | ".join(_COLUMNS) + " |\n| --- | --- |" + " ---: |" * (1 + len(_COLUMNS))
    )
    for half in halves:
        for row in report.rows:
            cells = " | ".join(CELLS[column](row.by_session[half]) for column in _COLUMNS)
            click.echo(f"| {half} | {row.manager.label} | {row.size.label} | {cells} |")


if __name__ == "__main__":
    main()
