"""The command `prune`: erase sessions that were not changed for long, with the sessions that were forked from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import click

from amplifier_context_core.errors import ContextError
from amplifier_context_core.messages.timestamps import seconds_of
from amplifier_context_core.stores import SessionInfo
from amplifier_context_core.stores.validation import is_notes

from .formatting import counted, shell_quoted, size_text, time_text
from .sessions import parent_of
from .store_options import OpenedStore, on_store

_AGE = re.compile(r"(\d{1,6})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def _age(text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no age such as 12h, 30d or 8w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


@click.command()
@click.option("--older-than", "age", type=_age, metavar="AGE", help="Not changed for an age such as 12h, 30d or 8w.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="All but the N families changed last.")
@click.option("--dry-run", is_flag=True, help="Only list what would be erased.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@on_store
async def prune(at: OpenedStore, age: timedelta | None, keep: int | None, dry_run: bool, yes: bool) -> None:
    """Erase old sessions. With both --older-than and --keep, those that both name.

    A session and its forks are one family, as old as the one that was changed last: none of it is erased alone. A
    session that a process has open, or whose time of change is unknown, keeps its family.
    """
    if age is None and keep is None:
        raise click.UsageError("say which sessions: --older-than AGE, --keep N, or both")
    infos = {info.session_id: info for info in await at.store.sessions() if not is_notes(info.session_id)}
    parents = {name: parent for name, info in infos.items() if (parent := await _parent(at, info)) in infos}
    families = sorted(_families(infos, parents), key=_changed, reverse=True)
    chosen = [family for family in families[keep or 0 :] if _may_go(family, age)]
    doomed = [info for family in chosen for info in family]
    for info in doomed:
        size = f", {size_text(info.size)}" if info.size else ""
        figures = f"{counted(info.length, 'message')}{size}, last changed {time_text(info.updated)}"
        click.echo(f"{shell_quoted(info.session_id)}: {figures}")
    total = f"{counted(len(doomed), 'session')} of {len(infos):,}"
    if dry_run or not doomed:
        click.echo(f"{total} would be erased", err=True)
        return
    if not yes:
        click.confirm(f"Erase {total}, with archive, index and checkpoint?", abort=True)
    failed = 0
    for info in doomed:
        try:
            await at.store.open(info.session_id)  # fails if another process has it open by now
            await at.store.delete(info.session_id)
        except ContextError as problem:
            click.echo(f"{shell_quoted(info.session_id)}: not erased: {problem}", err=True)
            failed += 1
    click.echo(f"{counted(len(doomed) - failed, 'session')} erased", err=True)
    if failed:
        raise click.exceptions.Exit(1)


async def _parent(at: OpenedStore, info: SessionInfo) -> str:
    try:
        return await parent_of(at.store, info)
    except ContextError:
        return ""


def _families(infos: Mapping[str, SessionInfo], parents: Mapping[str, str]) -> list[list[SessionInfo]]:
    """Return sessions together with all that they were forked from or to."""
    roots: dict[str, list[SessionInfo]] = {}
    for name, info in infos.items():
        root, seen = name, {name}
        while (parent := parents.get(root)) is not None and parent not in seen:
            root = parent
            seen.add(root)
        roots.setdefault(root, []).append(info)
    return list(roots.values())


def _changed(family: Iterable[SessionInfo]) -> str:
    return max(info.updated for info in family)


def _may_go(family: list[SessionInfo], age: timedelta | None) -> bool:
    times = [seconds_of(info.updated) for info in family]
    if None in times or any(info.holder for info in family):
        return False
    return age is None or max(filter(None, times)) < (datetime.now(UTC) - age).timestamp()
