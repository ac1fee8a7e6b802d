"""`amplifier-context sessions` and `show`: which sessions are kept, and what was said in one."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from .opening import carry_out, known, store_at, store_option

if TYPE_CHECKING:
    from ..stores import SessionInfo
    from ..transcript import Entry


@click.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def sessions(address: str | None, as_json: bool) -> None:
    """List the sessions a store keeps, the last changed first."""

    async def work() -> list[SessionInfo]:
        async with store_at(address) as store:
            return await store.sessions()

    found = carry_out(work())
    if as_json:
        for info in found:
            _print_json({name: getattr(info, name) for name in ("session_id", "length", "updated", "size", "holder")})
        return
    if not found:
        click.echo("no sessions there yet")
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("session", overflow="fold")
    for title in ("messages", "size"):
        table.add_column(title, justify="right")
    for title in ("last changed", "in use by"):
        table.add_column(title)
    for info in found:
        size = f"{info.size / 1_000:,.0f} kB" if info.size else ""
        table.add_row(escape(info.session_id), f"{info.length:,}", size, info.updated[:19], escape(info.holder))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


@click.command()
@click.argument("session_id", metavar="SESSION")
@store_option
@click.option("--from", "first", metavar="MARK", help="First message to show, such as m12; by default the first.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N messages.")
@click.option("--full", is_flag=True, help="Whole texts, not their first line.")
@click.option("--archived", is_flag=True, help="What edits and interrupts took out of the history, instead.")
@click.option("--json", "as_json", is_flag=True, help="The messages as they are stored, one a line.")
def show(
    session_id: str,
    address: str | None,
    first: str | None,
    last: int | None,
    full: bool,
    archived: bool,
    as_json: bool,
) -> None:
    """Show the messages of a session, also while somebody works in it."""
    from ..stores import slices
    from ..transcript import seq_of

    try:
        start = seq_of(first) if first else 0
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--from") from None

    async def work() -> None:
        async with store_at(address) as store:
            length = await known(store, session_id)
            if archived:
                _print(await store.archived(session_id), start, full=full, as_json=as_json)
                return
            async for entries in slices(store, session_id, max(0, length - last) if last else 0):
                _print(entries, start, full=full, as_json=as_json)

    carry_out(work())


def _print(entries: Iterable[Entry], start: int, *, full: bool, as_json: bool) -> None:
    for entry in entries:
        if entry.seq < start:
            continue
        if as_json:
            _print_json(entry.message)
            continue
        head = (
            f"{entry.mark:>7} {entry.turn_id:>6} {entry.role:<9} {entry.tokens if entry.tokens >= 0 else '?':>7} tokens"
        )
        text = _text(entry)
        if full:
            click.echo(f"{head}\n{text}\n")
        else:
            line = " ".join(text.split())
            click.echo(f"{head}  {line[:100]}{'…' if len(line) > 100 else ''}")


def _text(entry: Entry) -> str:
    from ..fence import well_formed
    from ..messages import arguments_text, calls_of, result_text, results_of, text_of

    parts = [text_of(entry.message.get("content"))]
    parts.extend(result_text(result.content) for result in results_of(entry.message) if entry.role != "tool")
    parts.extend(f"→ {call.name} {arguments_text(call)}" for call in calls_of(entry.message))
    text = well_formed("\n".join(part for part in parts if part))
    # What a tool printed may hold sequences that take over a terminal.
    return "".join(mark if mark in "\n\t" or mark.isprintable() else "�" for mark in text)


def _print_json(data: Any) -> None:
    import json

    from ..stores.rows import message_json

    # A terminal takes some characters for commands; a program reads the escaped ones as well.
    click.echo(json.dumps(data) if sys.stdout.isatty() else message_json(data).decode())
