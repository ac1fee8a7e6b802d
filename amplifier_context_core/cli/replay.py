"""`amplifier-context replay`: recorded sessions through any context managers, measured; no model involved."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from amplifier_context_testing.lab import Manager, Report, Session, Size

DEFAULT = "context-simple"
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([km]?)", re.IGNORECASE)
_TIMES = {"": 1, "k": 1_000, "m": 1_000_000}


def _tokens(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A number of tokens: `32000`, `32k`, `0.2m`."""
    if value is None:
        return None
    found = _AMOUNT.fullmatch(value.strip().replace("_", ""))
    tokens = int(float(found[1]) * _TIMES[found[2].lower()]) if found else 0
    if tokens < 1:
        raise click.BadParameter(f"{value!r} is not a number of tokens such as 32000 or 32k", ctx, param)
    return tokens


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="DATA...")
@click.option(
    "--context",
    "contexts",
    multiple=True,
    metavar="MANAGER",
    help="A manager: module id, module id with config (context-simple:target_usage=0.4), package.module:factory, "
    "a floor or a peer. May be given several times.",
)
@click.option("--budget", callback=_tokens, metavar="TOKENS", help="Tokens of each request, such as 32k.")
@click.option(
    "--fraction",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.25,
    show_default=True,
    help="The budget as a share of each conversation, its system prompt besides; --budget goes before it.",
)
@click.option("--whole", is_flag=True, help="The share is of the whole session, system prompt included.")
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="Only the first N sessions; --part is of these.")
@click.option("--min-messages", type=click.IntRange(min=0), default=0, help="Leave shorter sessions out.")
@click.option(
    "--part",
    type=click.Choice(["all", "choose", "report"]),
    default="all",
    show_default=True,
    help="Half of the sessions, by a hash of their ids: settings are chosen on one, figures reported of the other.",
)
@click.option("--floors/--no-floors", default=True, show_default=True, help="Also the three floors.")
@click.option("--peers/--no-peers", default=False, show_default=True, help="Also other people's context managers.")
@click.option("--memory", is_flag=True, help="Also the memory a session needs: the largest is replayed once more.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="All figures."
)
@click.option("--markdown", is_flag=True, help="Print the table for a document.")
def replay(
    data: tuple[Path, ...],
    contexts: tuple[str, ...],
    budget: int | None,
    fraction: float,
    whole: bool,
    first: int | None,
    min_messages: int,
    part: str,
    floors: bool,
    peers: bool,
    memory: bool,
    json_file: Path | None,
    markdown: bool,
) -> None:
    """Replay recorded sessions through context managers and measure them.

    DATA are files (JSONL, .gz or not) or folders of them. Before every recorded assistant message each manager is
    asked for the view it would send. Measured is what a user pays for these requests, how much of what the agent
    needed next was still in them, whether a provider would take them, and how long they took.

    Exit code 1 says that no session or no manager was left to measure.
    """
    import asyncio
    import json

    _need_lab()
    from amplifier_context_testing.lab import Size, Unavailable, read_sessions

    managers, skipped = _managers(contexts or (DEFAULT,), floors=floors, peers=peers)
    try:
        sessions = read_sessions(data, min_messages=min_messages)[:first]
    except ValueError as problem:
        raise click.ClickException(str(problem)) from problem
    sessions = [session for session in sessions if part in ("all", session.part)]
    if not sessions:
        raise click.ClickException("no session is left to replay: look at DATA, --min-messages and --part")
    size = Size(budget=budget, fraction=fraction, whole=whole)
    try:
        report = asyncio.run(_measure(sessions, managers, size, memory))
    except (Unavailable, ValueError) as problem:
        raise click.ClickException(str(problem)) from problem
    report.skipped[:0] = skipped
    if not report.sessions:
        raise click.ClickException("every session's system prompt alone is larger than its budget: try a larger one")
    if json_file is not None:
        json_file.write_text(json.dumps(report.as_json(), indent=1) + "\n", encoding="utf-8")
    _print(report, markdown=markdown)


def _print(report: Report, *, markdown: bool) -> None:
    from rich.console import Console

    from amplifier_context_testing.lab import table

    console = Console(soft_wrap=False)
    if markdown:
        click.echo(f"{table.title(report)}\n\n{table.markdown(report)}")
    else:
        # A table that is cut off tells nothing: where no terminal says how wide it is, it is as wide as it needs to be.
        console = console if console.is_terminal else Console(width=240)
        console.print(table.rich_table(report))
    for reason in report.skipped:
        click.echo(f"skipped: {reason}", err=True)


async def _measure(sessions: list[Session], managers: list[Manager], size: Size, memory: bool) -> Report:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from amplifier_context_testing.lab import measure

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task("replaying", total=len(sessions) * len(managers))
        done: set[tuple[str, str]] = set()

        def progress(manager: Manager, session: Session, requests: int) -> None:
            done.add((manager.label, session.id))
            said = f"{manager.label}, {session.id}, request {requests:,}"
            bars.update(bar, completed=len(done), description=said)

        return await measure(sessions, managers, size, progress=progress, memory=memory)


def _managers(contexts: tuple[str, ...], *, floors: bool, peers: bool) -> tuple[list[Manager], list[str]]:
    """The managers asked for, and why some of the peers are not among them."""
    from amplifier_context_testing.lab import Unavailable, manager
    from amplifier_context_testing.lab.managers import FLOORS
    from amplifier_context_testing.lab.peers import PEERS

    try:
        chosen = [manager(spec) for spec in dict.fromkeys(contexts)]
    except (Unavailable, ValueError) as problem:
        raise click.ClickException(str(problem)) from problem
    skipped: list[str] = []
    more = [*(FLOORS if floors else ()), *(PEERS if peers else ())]
    for name in more:
        if name in contexts:
            continue
        try:
            chosen.append(manager(name))
        except Unavailable as problem:
            skipped.append(str(problem))
    return chosen, skipped


def _need_lab() -> None:
    try:
        importlib.import_module("amplifier_context_testing.lab")
    except ModuleNotFoundError as problem:
        if not (problem.name or "").startswith("amplifier_context_testing"):
            raise
        raise click.ClickException(
            "the replay lab is not installed\n"
            "pip install amplifier-context-testing   (with [peers] for other people's context managers)"
        ) from problem
