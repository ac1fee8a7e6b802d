"""The command `amplifier-context replay`: measure context managers on recorded sessions, without a model."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import click

from amplifier_context_cli.formatting import PIPE_WIDTH, counted, printable, screen_width, truncate
from amplifier_context_cli.store_options import run_command, store_at, tokens
from amplifier_context_core.messages.parsing import copy_message
from amplifier_context_core.stores import read_in_batches
from amplifier_context_core.stores.registry import URLS

from . import table
from .course import Size
from .figures_file import FiguresFile
from .grid import grid
from .managers import BASELINES, Manager, Unavailable, manager
from .peers import PEERS
from .run import PAUSES, Extras, Report, Row, measure
from .sessions import Session, distinct, read_sessions

DEFAULT = "context-simple"
QUIET = 60.0  # seconds between two lines of progress where there is no screen for a bar
NAMED, NOTICES = 3, 5  # sessions that are named with a notice; notices that are shown of one manager


def _headings(context: click.Context, option: click.Parameter, value: str | None) -> list[str]:
    names = [name.strip() for name in value.split(",")] if value else []
    for name in names:
        if name not in table.CELLS:
            raise click.BadParameter(f"there is no column {name!r}; there are {', '.join(table.CELLS)}")
    return names


@click.command()
@click.argument("data", nargs=-1, type=click.Path(path_type=Path, exists=True), metavar="DATA...")
@click.option(
    "--store",
    "url",
    metavar="URL",
    help=f"Also the sessions of a store: {URLS}.",
)
@click.option(
    "--context",
    "contexts",
    multiple=True,
    metavar="MANAGER",
    help="A manager: module id, module id with config (context-simple:target_usage=0.4), package.module:factory, "
    "a baseline or a peer. May be given several times.",
)
@click.option("--budget", type=tokens, metavar="TOKENS", help="Maximal tokens of each request, such as 32k.")
@click.option(
    "--fraction",
    "fractions",
    type=click.FloatRange(0, 1, min_open=True),
    multiple=True,
    default=(0.25,),
    show_default=True,
    help="The budget as a share of each conversation, plus its system prompt; --budget takes precedence. "
    "May be given several times.",
)
@click.option("--whole", is_flag=True, help="Take the share of the whole session, system prompt included.")
@click.option(
    "--first",
    type=click.IntRange(min=1),
    metavar="N",
    help="Replay only the first N sessions, before --part is applied.",
)
@click.option("--session", "names", multiple=True, metavar="ID", help="Of --store: only this session; repeatable.")
@click.option("--min-messages", type=click.IntRange(min=0), default=0, help="Skip shorter sessions.")
@click.option("--max-messages", type=click.IntRange(min=2), metavar="N", help="Skip longer sessions.")
@click.option(
    "--part",
    type=click.Choice(["all", "choose", "report"]),
    default="all",
    show_default=True,
    help="Replay half of the sessions, by a hash of their ids: choose settings on one half, report the other.",
)
@click.option("--baselines/--no-baselines", default=True, show_default=True, help="Also measure the three baselines.")
@click.option(
    "--peers/--no-peers", default=False, show_default=True, help="Also measure context managers of other projects."
)
@click.option(
    "--planted", type=click.IntRange(min=0), default=0, metavar="N", help="Also plant N rules at random places."
)
@click.option(
    "--pauses", is_flag=True, help="Insert pauses after a fifth of the human messages, so that caches expire."
)
@click.option("--halves", is_flag=True, help="With --markdown, also print the figures of each half of the sessions.")
@click.option("--misses", is_flag=True, help="Also write the missed names and sentences to the file of --json.")
@click.option(
    "--reach", is_flag=True, help="Also measure what one search of the recall tool brings of what is lacking."
)
@click.option("--memory", is_flag=True, help="Also measure the memory of a session: the largest is replayed once more.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write all figures to FILE.",
)
@click.option(
    "--columns",
    callback=_headings,
    metavar="HEADING,...",
    help="Print only these columns, in this order.",
)
@click.option("--markdown", is_flag=True, help="Print the table in Markdown.")
def replay(
    data: tuple[Path, ...],
    url: str | None,
    contexts: tuple[str, ...],
    budget: int | None,
    fractions: tuple[float, ...],
    whole: bool,
    first: int | None,
    names: tuple[str, ...],
    min_messages: int,
    max_messages: int | None,
    part: str,
    baselines: bool,
    peers: bool,
    planted: int,
    pauses: bool,
    halves: bool,
    misses: bool,
    reach: bool,
    memory: bool,
    json_file: Path | None,
    columns: list[str],
    markdown: bool,
) -> None:
    """Replay recorded sessions through context managers and measure them.

    DATA are files (JSONL, .gz or not) or folders, sub-folders included; or --store names a store of sessions. Before
    every recorded assistant message each manager returns the view that it would send. The command measures the price
    of these requests, how much of what the agent needed next they contain, whether a provider would accept them, and
    how long they took.

    The exit code is 1 if no session or no manager could be measured.
    """
    if not data and url is None:
        raise click.UsageError("name recordings or folders of them (DATA), or a store of sessions (--store)")
    if names and url is None:
        raise click.UsageError("--session names a session of a store: name the store too (--store)")
    file = FiguresFile(json_file) if json_file is not None else None
    managers, skipped = _managers(contexts or (DEFAULT,), baselines=baselines, peers=peers)
    try:
        sessions = read_sessions(data, min_messages=min_messages, skipped=skipped)
    except ValueError as problem:
        raise click.ClickException(str(problem)) from problem
    sessions = _with_kept(sessions, url, names, min_messages)
    longer = [one for one in sessions if max_messages is not None and len(one.messages) > max_messages]
    skipped += [f"{one.id}: {len(one.messages):,} messages, more than --max-messages" for one in longer]
    sessions = [one for one in sessions if one not in longer][:first]
    sessions = [session for session in sessions if part in ("all", session.part)]
    if not sessions:
        raise click.ClickException(
            "no session is left to replay: look at DATA, --store, --min-messages, --max-messages and --part"
        )
    sizes = [Size(budget=budget, fraction=share, whole=whole) for share in (fractions if budget is None else (1.0,))]
    extras = Extras(
        planted=planted,
        pauses=PAUSES if pauses else None,
        memory=memory,
        misses=misses,
        reach=reach,
        openai=not columns or "openai" in columns or json_file is not None,
    )
    try:
        report = _measured(sessions, managers, sizes, extras, skipped, file)
    except (Unavailable, ValueError) as problem:
        raise click.ClickException(str(problem)) from problem
    if not report.sessions:
        raise click.ClickException("every session's system prompt alone is larger than its budget: try a larger one")
    _print(report, columns, markdown=markdown, halves=halves)


def _with_kept(sessions: list[Session], url: str | None, names: tuple[str, ...], min_messages: int) -> list[Session]:
    """Return the sessions, followed by the sessions of a store: those that are named, or all of them."""
    if url is None:
        return sessions

    async def kept() -> list[Session]:
        found: list[Session] = []
        async with store_at(url) as at:
            for name in names:
                await at.length(name)
            # The oldest first, as recordings are read.
            for name in names or [info.session_id for info in reversed(await at.store.sessions())]:
                entries = [entry async for piece in read_in_batches(at.store, name) for entry in piece]
                messages = [copy_message(entry.message) for entry in entries]
                found.append(Session(name, at.location, messages))
        return found

    return list(
        distinct([*sessions, *(one for one in run_command(kept()) if len(one.messages) >= max(min_messages, 2))])
    )


def _measured(
    sessions: list[Session],
    managers: list[Manager],
    sizes: list[Size],
    extras: Extras,
    skipped: list[str],
    file: FiguresFile | None,
) -> Report:
    """Measure; write the figures so far to a file, also if the measurement is interrupted."""

    def keep(report: Report, *, complete: bool = False) -> None:
        if file is not None:
            file.keep(lambda: {**report.as_json(), "skipped": [*skipped, *report.skipped], "complete": complete})

    try:
        report = asyncio.run(_measure(sessions, managers, sizes, extras, keep))
        keep(report, complete=True)
    finally:
        if file is not None:
            file.finish()
    report.skipped[:0] = skipped
    return report


def _print(report: Report, columns: list[str], *, markdown: bool, halves: bool) -> None:
    if markdown:
        click.echo(f"{table.title(report)}\n\n{table.markdown(report, only=columns)}")
        for part in ("choose", "report") if halves else ():
            click.echo(f"\n{table.markdown(report, part, columns)}")
    else:
        # Without a screen the table is as wide as it needs to be.
        width = screen_width() if sys.stdout.isatty() or "COLUMNS" in os.environ else None
        click.echo(textwrap.fill(table.title(report), width or PIPE_WIDTH) + "\n")
        for line in grid(table.rows(report, only=columns), width, names=2 if len(report.sizes) > 1 else 1):
            click.echo(line)
        click.echo("\n" + textwrap.fill(table.caption(), width or PIPE_WIDTH))
    for row in report.rows:
        for notice in _noticed(row):
            click.echo(printable(f"{row.manager.label}, {notice}"), err=True)
    for reason in report.skipped:
        click.echo(printable(f"skipped: {reason}"), err=True)


def _noticed(row: Row) -> list[str]:
    """Return the notices of a manager, each with the first sessions that it is about."""
    sessions: dict[str, list[str]] = {}
    for session, text in row.notices:
        sessions.setdefault(text, []).append(session)
    lines = [
        f"{', '.join(names[:NAMED])}{f' and {len(names) - NAMED:,} more' if len(names) > NAMED else ''}: {text}"
        for text, names in sessions.items()
    ]
    more = len(lines) - NOTICES
    return [*lines[:NOTICES], *([f"{counted(more, 'more notice')} (--json keeps all)"] if more > 0 else [])]


async def _measure(
    sessions: list[Session],
    managers: list[Manager],
    sizes: list[Size],
    extras: Extras,
    replayed: Callable[[Report], None],
) -> Report:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    size = f"{counted(len(sessions), 'session')}, {sum(len(one.messages) for one in sessions):,} messages"
    click.echo(f"replaying {size}, through {counted(len(managers), 'manager')}", err=True)
    shown = time.monotonic()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        replays = len(sessions) * len(managers) * len(sizes) * (2 if extras.planted else 1)
        bar = bars.add_task("replaying", total=replays)
        done = 0

        def progress(manager: Manager, session: Session, requests: int) -> None:
            nonlocal done, shown
            done += requests == 1  # a replay begins
            if not console.is_terminal and time.monotonic() - shown >= QUIET:
                shown = time.monotonic()
                where = f"{manager.label}, {session.id}, request {requests:,}"
                click.echo(printable(f"replay {done:,} of {replays:,}: {where}"), err=True)
            room = max(20, console.width - 40)  # columns that the bar leaves
            description = truncate(printable(f"{manager.label}, {session.id}, request {requests:,}"), room)
            bars.update(bar, completed=done, description=description)

        return await measure(sessions, managers, *sizes, extras=extras, progress=progress, replayed=replayed)


def _managers(contexts: tuple[str, ...], *, baselines: bool, peers: bool) -> tuple[list[Manager], list[str]]:
    """Return the requested managers, and the reasons why some of the peers are missing."""
    try:
        chosen = [manager(spec) for spec in dict.fromkeys(contexts)]
    except (Unavailable, ValueError) as problem:
        raise click.ClickException(str(problem)) from problem
    skipped: list[str] = []
    more = [*(BASELINES if baselines else ()), *(PEERS if peers else ())]
    for name in more:
        if name in contexts:
            continue
        try:
            chosen.append(manager(name))
        except Unavailable as problem:
            skipped.append(str(problem))
    return chosen, skipped
