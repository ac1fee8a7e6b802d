"""The commands `sessions` and `show`: list stored sessions, and show their messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from .formatting import (
    command,
    counted,
    display_width,
    padded,
    printable_text,
    screen_width,
    shell_quoted,
    size_text,
    time_text,
    truncate,
)
from .store_options import (
    other_store_hint,
    require_all,
    require_session,
    run_command,
    store_at,
    store_location,
    store_option,
)

if TYPE_CHECKING:
    from ..stores import SessionInfo, Store
    from ..transcript.entry import Entry

DETAILED = 200  # newest sessions of a list that are read for details: each costs some milliseconds
OPENING = 8  # messages at the beginning of a session that are searched for its first prompt
INDENT = 4  # columns before the details of a session
FIGURES = f"{'messages':>8}  {'size':>8}  last changed"
TIME = 22  # columns of a time
NARROW = 80  # columns of a screen below which the columns of a message are narrower


@dataclass(frozen=True, slots=True)
class Listed:
    """A session of a list.

    Attributes:
        info: the store's information.
        first_prompt: its first message of a human; empty if there is none near the beginning.
        fork_of: id of the session that its messages come from; empty if it is not a fork.
        problem: the reason why it cannot be read; empty if it can.
    """

    info: SessionInfo
    first_prompt: str = ""
    fork_of: str = ""
    problem: str = ""


@click.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def sessions(url: str | None, as_json: bool) -> None:
    """List the sessions of a store, the last changed first.

    Below each: its first prompt, the session it is a fork of, and the process that has it open. Of many sessions only
    the newest have these details.
    """

    from ..stores.validation import is_notes

    async def work() -> list[Listed]:
        async with store_at(url) as store:
            found = [info for info in await store.sessions() if not is_notes(info.session_id)]
            newest = [await _listed(store, info) for info in found[:DETAILED]]
            return [*newest, *map(Listed, found[DETAILED:])]

    found = run_command(work())
    if as_json:
        for listed in found:
            figures = {
                name: getattr(listed.info, name) for name in ("session_id", "length", "updated", "size", "holder")
            }
            print_json({**figures, "first_prompt": listed.first_prompt, "fork_of": listed.fork_of})
        return
    if not found:
        click.echo(f"no sessions in {store_location(url)} yet; {other_store_hint(url)}", err=True)
        return
    _print_list(found, screen_width(), url)
    if len(found) > DETAILED:
        click.echo(f"first prompts and forks are shown for the newest {DETAILED} only", err=True)


async def _listed(store: Store, info: SessionInfo) -> Listed:
    """Read the beginning of a session and find the session that it is a fork of."""
    from ..errors import ContextError
    from ..messages.parsing import text_of

    try:
        entries = await store.read(info.session_id, 0, OPENING)
        prompt = next((text_of(entry.message.get("content")) for entry in entries if entry.human), "")
        inherited = bool(entries) and entries[0].session_id != info.session_id
        return Listed(info, prompt, await _parent(store, info) if inherited else "")
    except ContextError as problem:
        return Listed(info, problem=str(problem))


async def _parent(store: Store, info: SessionInfo) -> str:
    """Return the session that the last inherited message comes from.

    A session's own messages come last, so a binary search finds the first of them.
    """
    low, high, middle = 1, info.length, info.length
    parent = ""
    while low <= high:
        entry = next(iter(await store.read(info.session_id, middle - 1, middle)), None)
        if entry is None or entry.session_id == info.session_id:
            high = middle - 1
        else:
            parent, low = entry.session_id, middle + 1
        middle = (low + high) // 2
    return parent


def _print_list(found: list[Listed], width: int, url: str | None) -> None:
    room = max(8, width - len(FIGURES) - 2 - (TIME - len("last changed")))
    names = [shell_quoted(listed.info.session_id) for listed in found]
    column = min(room, max([len("session"), *map(display_width, names)]))
    click.echo(f"{padded('session', column)}  {FIGURES}")
    for name, listed in zip(names, found, strict=True):
        info = listed.info
        if display_width(name) > column:  # it gets its own line: an id must not be truncated
            click.echo(name)
            name = ""
        size = size_text(info.size) if info.size else ""
        line = f"{padded(name, column)}  {info.length:>8,}  {size:>8}  {time_text(info.updated)}"
        click.echo(line.rstrip())
        below = [printable_text(listed.first_prompt)] if listed.first_prompt.strip() else []
        notes = [f"fork of {shell_quoted(listed.fork_of)}"] * bool(listed.fork_of)
        notes += [f"in use by {info.holder}"] * bool(info.holder)
        if listed.problem:
            notes.append(f"cannot be read: {command('verify', info.session_id, url=url)}")
        for text in below:
            click.echo(" " * INDENT + truncate(text, width - INDENT))
        if notes:
            click.echo(" " * INDENT + " · ".join(notes))


@click.command()
@click.argument("session_id", metavar="SESSION")
@store_option
@click.option("--from", "first", metavar="MARK", help="First message to show, such as m12; by default the first.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Show only the newest N messages.")
@click.option("--full", is_flag=True, help="Show whole texts instead of their first line.")
@click.option(
    "--archived",
    is_flag=True,
    help="Show the archive instead: messages that edits and interrupts removed from the history.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the stored messages as JSON, one a line.")
def show(
    session_id: str,
    url: str | None,
    first: str | None,
    last: int | None,
    full: bool,
    archived: bool,
    as_json: bool,
) -> None:
    """Show the messages of a session, also of one that is open in another process.

    Each begins with its mark, its turn, its role and its tokens as counted here; a provider's count may differ.
    """
    from ..stores import read_in_batches
    from ..transcript.entry import seq_of

    try:
        start = seq_of(first) if first else 0
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--from") from None
    width = screen_width()

    async def work() -> str:
        """Print the messages; return a notice if there is nothing to print."""
        name = shell_quoted(session_id)
        async with store_at(url) as store:
            length = await require_session(store, session_id, url)
            if archived:
                gone = await store.archived(session_id)
                shown = _print(gone, start, width, full=full, as_json=as_json)
                there = f"{counted(len(gone), 'archived message')}" if gone else "no archived messages"
                return (
                    ""
                    if shown
                    else f"{name} has {there} in {store_location(url)}{f', none from {first} on' * bool(gone)}"
                )
            begin = max(0, length - last) if last else 0
            read = shown = newest = 0
            async for entries in read_in_batches(store, session_id, begin):
                shown += _print(entries, start, width, full=full, as_json=as_json)
                read += len(entries)
                newest = max([newest, *(entry.seq for entry in entries)])
            await require_all(store, session_id, length - begin - read, url)
        if not length:
            return f"{name} has no messages in {store_location(url)}"
        return (
            "" if shown else f"{name} has no message from {first} on in {store_location(url)}; its newest is m{newest}"
        )

    if nothing := run_command(work()):
        click.echo(nothing, err=True)


def _print(entries: Iterable[Entry], start: int, width: int, *, full: bool, as_json: bool) -> int:
    """Print the messages from a seq on; return their number."""
    shown = 0
    for entry in entries:
        if entry.seq < start:
            continue
        shown += 1
        if as_json:
            print_json(entry.message)
            continue
        tokens = f"{entry.tokens:,}" if entry.tokens >= 0 else "?"
        if width < NARROW:
            head = f"{entry.mark:>5} {entry.turn_id:>4} {entry.role:<9} {tokens:>6}"
        else:
            head = f"{entry.mark:>7} {entry.turn_id:>6} {entry.role:<9} {tokens:>7} counted"
        text = _text(entry)
        click.echo(f"{head}\n{text}\n" if full else f"{head}  {truncate(text, width - len(head) - 2)}")
    return shown


def _text(entry: Entry) -> str:
    from ..messages.parsing import arguments_text, calls_of, result_text, results_of, text_of

    parts = [text_of(entry.message.get("content"))]
    parts.extend(result_text(result.content) for result in results_of(entry.message) if entry.role != "tool")
    parts.extend(f"→ {call.name} {arguments_text(call)}" for call in calls_of(entry.message))
    return printable_text("\n".join(part for part in parts if part))


def print_json(data: Any) -> None:
    """Print a value as JSON in one line of ASCII, which every terminal and every encoding takes."""
    import json

    click.echo(json.dumps(data))
