"""The commands `sessions` and `show`: list stored sessions, and show their messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from amplifier_context_core.errors import ContextError
from amplifier_context_core.messages.parsing import text_of
from amplifier_context_core.messages.timestamps import seconds_of
from amplifier_context_core.stores import SessionInfo, Store, read_in_batches
from amplifier_context_core.stores.validation import is_notes
from amplifier_context_core.transcript.entry import Entry

from .formatting import (
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
from .printing import is_json, print_json, print_row, words
from .store_options import OpenedStore, age, mark, on_session, on_store

DETAILED = 200  # newest sessions of a list that are read for details: each costs some milliseconds
OPENING = 8  # messages at the beginning of a session that are searched for its first prompt
INDENT = 4  # columns before the details of a session
FIGURES = 44  # columns of the figures of a session: messages, size, last change
NARROW = 80  # columns of a screen below which the columns of a message are narrower


@dataclass(frozen=True, slots=True)
class Listed:
    """A session of a list.

    Attributes:
        first_prompt: its first message of a human; empty if there is none near the beginning.
        fork_of: id of the session that its messages come from; empty if it is not a fork.
    """

    info: SessionInfo
    first_prompt: str = ""
    fork_of: str = ""
    is_damaged: bool = False


@click.command()
@on_store
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="List only the N sessions changed last.")
@click.option("--older-than", "older", type=age, metavar="AGE", help="Not changed for an age such as 12h, 30d or 8w.")
@click.option("--newer-than", "newer", type=age, metavar="AGE", help="Changed within an age.")
@click.option("--match", "title", metavar="TEXT", help="With this text in the first prompt, in any case of letters.")
async def sessions(
    at: OpenedStore, last: int | None, older: timedelta | None, newer: timedelta | None, title: str | None
) -> None:
    """List the sessions of a store, the last changed first.

    Below each: its first prompt, the session it is a fork of, and the process that has it open. Of many sessions only
    the newest have these details. With several options, the sessions that all of them name.
    """
    everything = [info for info in await at.store.sessions() if not is_notes(info.session_id)]
    infos = [info for info in everything if _is_between(info, older, newer)]
    if title is None:
        infos = infos[:last]
        found = [await _listed(at.store, info) for info in infos[:DETAILED]] + list(map(Listed, infos[DETAILED:]))
    else:
        read = [await _listed(at.store, info) for info in infos]
        found = [one for one in read if title.casefold() in one.first_prompt.casefold()][:last]
    if is_json():
        for one in found:
            print_json({**figures_of(one.info), "first_prompt": one.first_prompt, "fork_of": one.fork_of})
    elif everything and not found:
        click.echo(f"none of {counted(len(everything), 'session')} in {at.location} is named by the options", err=True)
    elif not found:
        click.echo(f"no sessions in {at.location} yet; {at.other_store_hint}", err=True)
    else:
        _print_list(at, found, screen_width())
        if title is None and len(found) > DETAILED:
            click.echo(f"first prompts and forks are shown for the newest {DETAILED} only", err=True)


def _is_between(info: SessionInfo, older: timedelta | None, newer: timedelta | None) -> bool:
    """True if a session was changed at a time that both options name; False if that time is unknown to the store."""
    changed = seconds_of(info.updated)
    if not changed:
        return older is None and newer is None
    seconds = datetime.now(UTC).timestamp() - changed
    return (older is None or seconds > older.total_seconds()) and (newer is None or seconds <= newer.total_seconds())


def figures_of(info: SessionInfo) -> dict[str, Any]:
    """Return what a store knows of a session, for JSON."""
    return {name: getattr(info, name) for name in ("session_id", "length", "updated", "size", "holder")}


async def _listed(store: Store, info: SessionInfo) -> Listed:
    try:
        entries = await store.read(info.session_id, 0, OPENING)
        prompt = next((text_of(entry.message.get("content")) for entry in entries if entry.human), "")
        inherited = bool(entries) and entries[0].session_id != info.session_id
        return Listed(info, prompt, await parent_of(store, info) if inherited else "")
    except ContextError:
        return Listed(info, is_damaged=True)


async def parent_of(store: Store, info: SessionInfo) -> str:
    """Return the session that the last inherited message comes from.

    A session's own messages come last, so a binary search finds the first of them.
    """
    parent, low, high = "", 0, info.length
    while low < high:
        middle = (low + high) // 2
        entry = next(iter(await store.read(info.session_id, middle, middle + 1)), None)
        if entry is None or entry.session_id == info.session_id:
            high = middle
        else:
            parent, low = entry.session_id, middle + 1
    return parent


def _print_list(at: OpenedStore, found: list[Listed], width: int) -> None:
    names = [shell_quoted(one.info.session_id) for one in found]
    column = min(max(8, width - FIGURES), max([len("session"), *map(display_width, names)]))
    click.echo(f"{padded('session', column)}  {'messages':>8}  {'size':>8}  last changed")
    for name, one in zip(names, found, strict=True):
        info = one.info
        if display_width(name) > column:  # it gets its own line: an id must not be truncated
            click.echo(name)
            name = ""
        size = size_text(info.size) if info.size else ""
        click.echo(f"{padded(name, column)}  {info.length:>8,}  {size:>8}  {time_text(info.updated)}".rstrip())
        if one.first_prompt.strip():
            click.echo(" " * INDENT + truncate(printable_text(one.first_prompt), width - INDENT))
        notes = [f"fork of {shell_quoted(one.fork_of)}"] if one.fork_of else []
        notes += [f"in use by {info.holder}"] if info.holder else []
        notes += [f"cannot be read: {at.command('verify', info.session_id)}"] if one.is_damaged else []
        if notes:
            click.echo(" " * INDENT + " · ".join(notes))


@on_session
@click.option(
    "--from", "first", type=mark, metavar="MARK", help="First message to show, such as m12; by default the first."
)
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Show only the newest N messages.")
@click.option("--full", is_flag=True, help="Show whole texts instead of their first line.")
@click.option(
    "--archived",
    is_flag=True,
    help="Show the archive instead: messages that edits and interrupts removed from the history.",
)
async def show(
    at: OpenedStore,
    session_id: str,
    first: int | None,
    last: int | None,
    full: bool,
    archived: bool,
) -> None:
    """Show the messages of a session, also of one that is open in another process.

    Each begins with its mark, its turn, its role and its tokens as counted here; a provider's count may differ.
    """
    length = await at.length(session_id)
    read = shown = newest = 0
    begin = 0 if archived else max(0, length - (last or length))
    batches = read_in_batches(at.store, session_id, begin)
    if archived:
        batches = _once(await at.store.archived(session_id))
    async for entries in batches:
        wanted = [entry for entry in entries if entry.seq >= (first or 0)]
        _print(wanted, full=full)
        shown, read = shown + len(wanted), read + len(entries)
        newest = max([newest, *(entry.seq for entry in entries)])
    if not archived:
        await at.require_all(session_id, length - begin - read)
    if shown:
        return
    what = "archived message" if archived else "message"
    if not read:
        nothing = f"no {what}s in {at.location}"
    elif archived:
        nothing = f"{counted(read, what)} in {at.location}, none from m{first} on"
    else:
        nothing = f"no message from m{first} on in {at.location}; its newest is m{newest}"
    click.echo(f"{shell_quoted(session_id)} has {nothing}", err=True)


async def _once(entries: list[Entry]) -> AsyncIterator[list[Entry]]:
    yield entries


def _print(entries: Iterable[Entry], *, full: bool) -> None:
    is_narrow = screen_width() < NARROW
    for entry in entries:
        if is_json():
            print_json({"mark": entry.mark} | entry.message | {"mark": entry.mark})  # a message may have a `mark`
            continue
        tokens = f"{entry.tokens:,}" if entry.tokens >= 0 else "?"
        if is_narrow:
            head = f"{entry.mark:>5} {entry.turn_id:>4} {entry.role:<9} {tokens:>6}"
        else:
            head = f"{entry.mark:>7} {entry.turn_id:>6} {entry.role:<9} {tokens:>7} counted"
        if full:
            click.echo(f"{head}\n{words(entry.message)}\n")
        else:
            print_row(head, words(entry.message))
