"""The commands `copy`, `verify`, `repair`, `fork` and `delete`: maintenance of stored sessions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..stores.iteration import read_in_batches
from ..stores.validation import check_conversation_id, derived_session_id, is_recovered
from .formatting import command, counted, shell_quoted
from .store_options import (
    Repairs,
    other_store_hint,
    require_all,
    require_session,
    run_command,
    store_at,
    store_location,
    store_option,
)

if TYPE_CHECKING:
    from ..stores import Store
    from ..transcript.entry import Entry

_ANY = "any"  # a session id; the session need not exist
_FORK_POINT = re.compile(r"([mua])(\d{1,18})")


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--session", "chosen", multiple=True, metavar="SESSION", help="Copy only this session; may be given several times."
)
def copy(source: str, target: str, chosen: tuple[str, ...]) -> None:
    """Copy sessions with their archives from one store to another.

    FROM and TO are URLs, such as jsonl:FOLDER or sqlite:FILE. A session that exists in TO is not changed. Sessions
    are copied in the order of their last change, so that `sessions` lists them in the same order.
    """

    async def work() -> tuple[int, int]:
        async with store_at(source) as old, store_at(target, makes=True) as new:
            listed = [info.session_id for info in reversed(await old.sessions())]
            for name in chosen:
                await require_session(old, name, source)
            names = [name for name in listed if name in chosen] if chosen else listed
            existing = {info.session_id for info in await new.sessions()}
            copied = 0
            for name in names:
                if name in existing:
                    click.echo(f"{shell_quoted(name)}: exists there, not changed")
                    continue
                count = await _copy(old, new, name, source)
                click.echo(f"{shell_quoted(name)}: {counted(count, 'message')}")
                copied += 1
            return copied, len(names)

    copied, requested = run_command(work())
    stores = f"from {store_location(source)} to {store_location(target)}"
    click.echo(f"{copied:,} of {counted(requested, 'session')} copied {stores}")
    if chosen and copied < requested:
        raise SystemExit(1)


async def _copy(old: Store, new: Store, name: str, source: str) -> int:
    """Copy a session and return its number of messages; delete the incomplete copy after a failure.

    Raises:
        click.ClickException: not all of its messages can be read.
    """
    from ..errors import ContextError
    from ..view.session_state import load

    length = (await old.extent(name)).length
    try:
        archived = await old.archived(name)
        current = {entry.seq for entry in await old.find(name, [entry.seq for entry in archived])}
        gone = [entry for entry in archived if entry.seq not in current]
        gone += await _highest(old, name, {entry.seq for entry in gone})
        await new.append(name, gone)
        await new.replace(name, 0, ())  # moves the archived entries to the archive
        async for entries in read_in_batches(old, name):
            await new.append(name, entries)
        await require_all(old, name, length - (await new.extent(name)).length, source)
        data = await old.load_checkpoint(name)
        if data:
            saved = load(data)
            await new.save_checkpoint(
                name, saved.covered_count if saved else 0, data
            )  # a checkpoint of `compat` covers no entry
    except (ContextError, OSError, click.ClickException):
        await new.delete(name)
        raise
    except ValueError:
        pass  # a checkpoint of another version: a resume builds a new one
    await new.release(name)
    return length


async def _highest(store: Store, name: str, archived: set[int]) -> list[Entry]:
    """Return an entry to archive if the store holds none of the highest seq: that seq must not be assigned again."""
    from ..messages.parsing import parse_message
    from ..transcript.redaction import REDACTED_TEXT
    from ..transcript.transcript import Transcript

    last = (await store.extent(name)).last_seq
    if not last or last in archived or await store.find(name, [last]):
        return []
    message, info = parse_message({"role": "system", "content": REDACTED_TEXT})
    gone = Transcript.resumed(name, (), (), length=0, last_seq=last - 1)
    return [gone.draft(message, info, 1, created="")]


@click.command()
@click.argument("names", nargs=-1, metavar="[SESSION]...")
@store_option
def verify(names: tuple[str, ...], url: str | None) -> None:
    """Look for damage without changing anything. The exit code is 1 if there is damage.

    Without a SESSION all sessions are checked.
    """

    from ..stores import Checkable

    async def work() -> list[tuple[str, ...]]:
        damaged: list[tuple[str, ...]] = []
        async with store_at(url) as store:
            # A store that is damaged as a whole reports that for any id; listing its sessions would repair it.
            if not names and isinstance(store, Checkable) and (problems := await store.verify(_ANY)):
                _report(store_location(url), problems)
                return [()]
            chosen = names or [info.session_id for info in await store.sessions()]
            for name in chosen:
                problems = await _problems(store, name, url)
                _report(shell_quoted(name), problems)
                damaged += [(name,)] * bool(problems)
        if not chosen:
            click.echo(f"no sessions in {store_location(url)}, nothing to verify; {other_store_hint(url)}")
        return damaged

    damaged = run_command(work())
    for chosen in damaged:
        click.echo(f"{command('repair', *chosen, url=url)} repairs what can be repaired")
    if damaged:
        raise SystemExit(1)


def _report(what: str, problems: Sequence[str]) -> None:
    click.echo(f"{what}: {counted(len(problems), 'problem') if problems else 'sound'}")
    for problem in problems:
        click.echo(f"  {problem}")


async def _problems(store: Store, name: str, url: str | None) -> list[str]:
    from ..stores import Checkable

    if isinstance(store, Checkable):
        problems = await store.verify(name)  # before any other call: other calls repair
        if not problems:
            await require_session(store, name, url)
        return problems
    length = await require_session(store, name, url)
    read = sum([len(entries) async for entries in read_in_batches(store, name)])
    return [] if read == length else [f"{length - read:,} of {length:,} messages cannot be read"]


@click.command()
@click.argument("names", nargs=-1, metavar="[SESSION]...")
@store_option
def repair(names: tuple[str, ...], url: str | None) -> None:
    """Repair damaged sessions; without a SESSION all of them. Unreadable bytes are kept in a quarantine.

    What sessions share, such as a database file, is always repaired. The exit code is 1 if damage remains.
    """
    from ..errors import ContextError
    from ..stores import Repairable

    async def work() -> bool:
        left = False
        async with store_at(url) as store:
            if isinstance(store, Repairable):
                shared = Repairs()
                await store.repair(None, shared)
                shared.show(store_location(url))
            chosen = names or [info.session_id for info in await store.sessions()]
            for name in chosen:
                try:
                    left |= await _repair(store, name, url)
                except ContextError as problem:
                    if names:
                        raise
                    left = True
                    click.echo(f"{shell_quoted(name)}: {problem}", err=True)
        if not chosen:
            click.echo(f"no sessions in {store_location(url)}, nothing to repair; {other_store_hint(url)}")
        for name in filter(is_recovered, chosen):
            again = command("fork", name, "ID", url=url)
            click.echo(f"the id of {shell_quoted(name)} cannot be read; if you know it, restore it with {again}")
        return left

    if run_command(work(), warns=False):
        raise SystemExit(1)


async def _repair(store: Store, name: str, url: str | None) -> bool:
    """Repair a session and print the repairs; return True if damage remains."""
    from ..stores import Repairable

    repairs = Repairs()
    left = await _problems(
        store, name, url
    )  # not `require_session`, which repairs what it meets, and reports it nowhere
    if left and isinstance(store, Repairable):
        await store.repair(name, repairs)
    await store.open(name, repairs)
    async for _ in read_in_batches(store, name):
        pass  # reading repairs
    await store.load_checkpoint(name)
    if left or repairs.made:
        left = await _problems(store, name, url)
    length = (await store.extent(name)).length
    repairs.show()
    lost = sum(made.lost for made in repairs.made)
    done = (
        f"{counted(len(repairs.made), 'repair')}, {counted(lost, 'message')} lost" if repairs.made or left else "sound"
    )
    click.echo(f"{shell_quoted(name)}: {counted(length, 'message')}, {done}")
    for problem in left:
        click.echo(f"  not repaired: {problem}")
    if left:
        click.echo(
            "the rest cannot be repaired; restore a backup, or copy the readable messages with `amplifier-context copy`"
        )
    await store.release(name)
    return bool(left)


@click.command()
@click.argument("name", metavar="SESSION")
@click.argument("new", metavar="[NEW]", required=False)
@click.option(
    "--at",
    "mark",
    metavar="MARK",
    help="The last message of the fork: m30, the user's message of turn 12 (u12), the end of turn 12 (a12).",
)
@store_option
def fork(name: str, new: str | None, mark: str | None, url: str | None) -> None:
    """Create a session from the beginning of another, to continue differently from there.

    NEW is the id of the fork; by default it is derived from SESSION and MARK, and printed.
    """

    async def work() -> tuple[str, int]:
        async with store_at(url) as store:
            length = await require_session(store, name, url)
            if mark:
                length = await _length_at(store, name, mark, url)
            made = new or derived_session_id(name, f"-at-{mark or 'end'}")
            if not is_recovered(name):  # notes whose id could not be read get it back
                check_conversation_id(made)
            await store.fork(name, made, length)
            return made, length

    made, length = run_command(work())
    click.echo(f"{shell_quoted(made)}: {counted(length, 'message')} of {shell_quoted(name)}")


async def _length_at(store: Store, name: str, mark: str, url: str | None) -> int:
    """Return the number of messages up to and including a mark.

    Raises:
        click.ClickException: the history has no such mark.
    """
    found = _FORK_POINT.fullmatch(mark)
    if not found:
        raise click.ClickException(f"--at: {mark!r} is not a mark; a mark is m30 (a message), u12 or a12 (of turn 12)")
    kind, number = found[1], int(found[2])
    seen = end = 0
    async for entries in read_in_batches(store, name):
        for entry in entries:
            seen += 1
            hit = entry.seq == number if kind == "m" else entry.turn == number and (kind == "a" or entry.human)
            end = seen if hit else end
    if not end:
        marks = command("show", name, url=url)
        raise click.ClickException(
            f"--at: the history of {shell_quoted(name)} has no {mark}; list its marks with {marks}"
        )
    return end


@click.command()
@click.argument("name", metavar="SESSION")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_option
def delete(name: str, yes: bool, url: str | None) -> None:
    """Erase a session with its archive, its index and its checkpoint."""

    async def work() -> None:
        async with store_at(url) as store:
            length = await require_session(store, name, url)
            if not yes:
                click.confirm(f"Erase {shell_quoted(name)} with its {counted(length, 'message')}?", abort=True)
            await store.open(name)  # fails if another process has the session open
            await store.delete(name)

    run_command(work())
    click.echo(f"{shell_quoted(name)}: erased")
