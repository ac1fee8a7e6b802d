"""The command `prune`: erase sessions that were not changed for long, with the sessions that were forked from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import click

from amplifier_context_core.errors import ContextError
from amplifier_context_core.messages.timestamps import seconds_of
from amplifier_context_core.stores import SessionInfo
from amplifier_context_core.stores.validation import is_notes

from .formatting import counted, shell_quoted, size_text, time_text
from .printing import confirm, print_fact, print_remark
from .sessions import figures_of, parent_of
from .store_options import OpenedStore, age, on_store


@click.command()
@click.option("--older-than", "older", type=age, metavar="AGE", help="Not changed for an age such as 12h, 30d or 8w.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="All but the N families changed last.")
@click.option("--dry-run", is_flag=True, help="Only list what would be erased.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@on_store
async def prune(at: OpenedStore, older: timedelta | None, keep: int | None, dry_run: bool, yes: bool) -> None:
    """Erase old sessions. With both --older-than and --keep, those that both name.

    A session and its forks are one family, as old as the one that was changed last: none of it is erased alone. A
    session that a process has open, or whose time of change is unknown, keeps its family.
    """
    if older is None and keep is None:
        raise click.UsageError("say which sessions: --older-than AGE, --keep N, or both")
    chosen = await _chosen(at, older, keep)
    doomed = [info for family in chosen for info in family]
    for info in doomed:
        size = f", {size_text(info.size)}" if info.size else ""
        figures = f"{counted(info.length, 'message')}{size}, last changed {time_text(info.updated)}"
        print_fact(f"{shell_quoted(info.session_id)}: {figures}", **figures_of(info))
    count = len(await _infos(at))
    total = f"{counted(len(doomed), 'session')} of {count:,}"
    if dry_run or not doomed:
        print_remark(f"{total} would be erased", sessions=count, named=len(doomed), erased=0)
        return
    if not yes:
        confirm(f"Erase {total}, with archive, index and checkpoint?")
        agreed, chosen = chosen, [family for family in await _chosen(at, older, keep) if family in chosen]
        for family in (family for family in agreed if family not in chosen):
            _print_kept(family, "changed meanwhile")
    erased = [len(family) for family in chosen if await _erased(at, family)]
    sentence = f"{counted(sum(erased), 'session')} erased"
    print_remark(sentence, sessions=count, named=len(doomed), erased=sum(erased))
    if sum(erased) < len(doomed):
        raise click.exceptions.Exit(1)


async def _infos(at: OpenedStore) -> dict[str, SessionInfo]:
    return {info.session_id: info for info in await at.store.sessions() if not is_notes(info.session_id)}


async def _chosen(at: OpenedStore, older: timedelta | None, keep: int | None) -> list[list[SessionInfo]]:
    """Return the families to erase, the last changed first."""
    infos = await _infos(at)
    parents = {name: parent for name, info in infos.items() if (parent := await _parent(at, info)) in infos}
    families = sorted(_families(infos, parents), key=_changed, reverse=True)
    return [family for family in families[keep or 0 :] if _may_go(family, older)]


async def _erased(at: OpenedStore, family: Sequence[SessionInfo]) -> bool:
    """Erase a family, unless another process has a session of it open by now; return True if it is erased."""
    names = [info.session_id for info in family]
    try:
        for name in names:
            await at.store.open(name)
        for name in names:
            await at.store.delete(name)
    except ContextError as problem:
        _print_kept(family, str(problem))
        return False
    return True


def _print_kept(family: Sequence[SessionInfo], why: str) -> None:
    name = family[0].session_id
    print_remark(f"{shell_quoted(name)} and its family: not erased: {why}", session_id=name, problem=why)


async def _parent(at: OpenedStore, info: SessionInfo) -> str:
    try:
        return await parent_of(at.store, info)
    except ContextError:
        return ""


def _families(infos: Mapping[str, SessionInfo], parents: Mapping[str, str]) -> list[list[SessionInfo]]:
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


def _may_go(family: list[SessionInfo], older: timedelta | None) -> bool:
    times = [seconds_of(info.updated) for info in family]
    known = [time for time in times if time]  # 0 is what a store has of a session whose time it does not know
    if len(known) < len(family) or any(info.holder for info in family):
        return False
    return older is None or datetime.now(UTC).timestamp() - max(known) > older.total_seconds()
