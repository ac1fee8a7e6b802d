"""The command of the lab: measure context managers on recorded sessions, without a model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from amplifier_context_cli.formatting import counted, printable
from amplifier_context_cli.store_options import tokens

from . import table
from .course import Size
from .managers import PEERS, Manager, Unavailable, manager
from .run import Report, measure
from .sessions import PARTS, read_sessions


def _headings(context: click.Context, option: click.Parameter, value: str | None) -> list[str]:
    names = [name.strip() for name in value.split(",")] if value else []
    for name in names:
        if name not in table.CELLS:
            raise click.BadParameter(f"there is no column {name!r}; there are {', '.join(table.CELLS)}")
    return names


@click.command()
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="DATA...")
@click.option(
    "--context",
    "contexts",
    multiple=True,
    default=("context-simple",),
    metavar="MANAGER",
    help="A module id, with config (context-simple:target_usage=0.4), package.module:factory, or a peer. Repeatable.",
)
@click.option("--budget", type=tokens, metavar="TOKENS", help="Maximal tokens of each request, such as 32k.")
@click.option(
    "--fraction",
    "fractions",
    type=click.FloatRange(0, 1, min_open=True),
    multiple=True,
    default=(0.25,),
    show_default=True,
    help="The budget as a share of each conversation, plus its system prompt; --budget goes before it. Repeatable.",
)
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="Only the first N sessions, before --part.")
@click.option("--min-messages", type=click.IntRange(min=0), default=0, help="Skip shorter sessions.")
@click.option(
    "--part",
    type=click.Choice(["all", *PARTS]),
    default="all",
    show_default=True,
    help="Half of the sessions, by a hash of their ids: choose settings on one half, report the other.",
)
@click.option("--peers", is_flag=True, help="Also the unlimited window and context managers of other projects.")
@click.option("--json", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures to a file.")
@click.option("--columns", callback=_headings, metavar="HEADING,...", help="Print only these columns, in this order.")
def main(
    data: tuple[Path, ...],
    contexts: tuple[str, ...],
    budget: int | None,
    fractions: tuple[float, ...],
    first: int | None,
    min_messages: int,
    part: str,
    peers: bool,
    file: Path | None,
    columns: list[str],
) -> None:
    """Replay recorded sessions through context managers and print a table of figures in Markdown.

    DATA are files (JSONL, .gz or not) or folders. Before every recorded assistant message each manager returns the view
    that it would send.
    """
    skipped: list[str] = []
    try:
        managers = _managers(dict.fromkeys([*contexts, *(PEERS if peers else ())]), contexts, skipped)
        sessions = read_sessions(data, min_messages=min_messages, skipped=skipped)[:first]
        sessions = [session for session in sessions if part in ("all", session.part)]
        if not sessions:
            raise click.ClickException("no session is left to replay: look at DATA, --min-messages and --part")
        click.echo(f"{counted(len(sessions), 'session')} through {counted(len(managers), 'manager')}", err=True)
        sizes = [Size(budget, share) for share in (fractions if budget is None else (1.0,))]
        report = asyncio.run(measure(sessions, managers, *sizes, replayed=_progress))
    except (Unavailable, ValueError) as problem:
        raise click.ClickException(str(problem)) from problem
    if not report.sessions:
        raise click.ClickException("every session's system prompt alone is larger than its budget: try a larger one")
    if file is not None:
        file.write_text(json.dumps({**report.as_json(), "skipped": [*skipped, *report.skipped]}, indent=1) + "\n")
    click.echo(f"{table.title(report)}\n\n{table.markdown(report, columns)}")
    for label, text in dict.fromkeys((row.manager.label, text) for row in report.rows for _, text in row.notices):
        click.echo(printable(f"{label}: {text}"), err=True)
    for reason in [*skipped, *report.skipped]:
        click.echo(printable(f"skipped: {reason}"), err=True)


def _progress(report: Report) -> None:
    row = report.rows[-1]
    click.echo(printable(f"{row.manager.label}, {row.size.label}: session {len(row.by_session):,}"), err=True)


def _managers(names: dict[str, None], named: tuple[str, ...], skipped: list[str]) -> list[Manager]:
    """Return the managers; one that is not available is an error only where it was named."""
    found: list[Manager] = []
    for name in names:
        try:
            found.append(manager(name))
        except Unavailable as problem:
            if name in named:
                raise
            skipped.append(str(problem))
    return found


if __name__ == "__main__":
    main()
