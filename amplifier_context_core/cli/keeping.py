"""`amplifier-context copy`, `verify`, `repair`, `fork`, `delete`: looking after kept sessions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..stores.iteration import read_in_batches
from ..stores.validation import derived_session_id, is_recovered
from .opening import Repairs, carry_out, elsewhere, known, place, store_at, store_option
from .words import command, counted, typed

if TYPE_CHECKING:
    from ..stores import Store
    from ..transcript.transcript import Entry

_ANY = "any"  # a session id, whether there is such a session or not
_PLACE = re.compile(r"([mua])(\d{1,18})")


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--session", "chosen", multiple=True, metavar="SESSION", help="Only this one; may be given several times."
)
def copy(source: str, target: str, chosen: tuple[str, ...]) -> None:
    """Copy sessions from one store to another, archive included.

    FROM and TO are addresses, such as jsonl:FOLDER or sqlite:FILE. A session that is in TO already is left as it is.
    They are copied in the order in which they were last changed, so that `sessions` lists them in the same order.
    """

    async def work() -> tuple[int, int]:
        async with store_at(source) as old, store_at(target, makes=True) as new:
            listed = [info.session_id for info in reversed(await old.sessions())]
            for name in chosen:
                await known(old, name, source)
            names = [name for name in listed if name in chosen] if chosen else listed
            there = {info.session_id for info in await new.sessions()}
            copied = 0
            for name in names:
                if name in there:
                    click.echo(f"{typed(name)}: is there already, left as it is")
                    continue
                count = await _copy(old, new, name)
                click.echo(f"{typed(name)}: {counted(count, 'message')}")
                copied += 1
            return copied, len(names)

    copied, asked = carry_out(work())
    click.echo(f"{copied:,} of {counted(asked, 'session')} copied from {place(source)} to {place(target)}")
    if chosen and copied < asked:
        raise SystemExit(1)


async def _copy(old: Store, new: Store, name: str) -> int:
    """Bring a session over; what is there when it fails half way is deleted again."""
    from ..errors import ContextError
    from ..view.session_state import load

    length = (await old.extent(name)).length
    try:
        archived = await old.archived(name)
        current = {entry.seq for entry in await old.find(name, [entry.seq for entry in archived])}
        gone = [entry for entry in archived if entry.seq not in current]
        gone += await _highest(old, name, {entry.seq for entry in gone})
        await new.append(name, gone)
        await new.replace(name, 0, ())  # what was archived there is archived here
        async for entries in read_in_batches(old, name):
            await new.append(name, entries)
        data = await old.load_checkpoint(name)
        if data:
            saved = load(data)
            await new.save_checkpoint(
                name, saved.covered_count if saved else 0, data
            )  # the compat room's stand for none
    except (ContextError, OSError):
        await new.delete(name)
        raise
    except ValueError:
        pass  # a checkpoint of another version: made anew when somebody resumes
    await new.release(name)
    return length


async def _highest(store: Store, name: str, archived: set[int]) -> list[Entry]:
    """What must be archived for the highest seq ever given not to be given again; mostly nothing."""
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
def verify(names: tuple[str, ...], address: str | None) -> None:
    """Look for damage; change nothing. Exit code 1 says that some was found.

    Without a SESSION all of them are looked at.
    """

    from ..stores import Checkable

    async def work() -> list[tuple[str, ...]]:
        damaged: list[tuple[str, ...]] = []
        async with store_at(address) as store:
            # A store that is damaged as a whole says so of any id; to list its sessions would repair it.
            if not names and isinstance(store, Checkable) and (problems := await store.verify(_ANY)):
                _report(place(address), problems)
                return [()]
            chosen = names or [info.session_id for info in await store.sessions()]
            for name in chosen:
                problems = await _problems(store, name, address)
                _report(typed(name), problems)
                damaged += [(name,)] * bool(problems)
        if not chosen:
            click.echo(f"no sessions in {place(address)}, nothing to verify; {elsewhere(address)}")
        return damaged

    damaged = carry_out(work())
    for chosen in damaged:
        click.echo(f"{command('repair', *chosen, address=address)} repairs what can be repaired")
    if damaged:
        raise SystemExit(1)


def _report(what: str, problems: Sequence[str]) -> None:
    click.echo(f"{what}: {counted(len(problems), 'problem') if problems else 'sound'}")
    for problem in problems:
        click.echo(f"  {problem}")


async def _problems(store: Store, name: str, address: str | None) -> list[str]:
    from ..stores import Checkable

    if isinstance(store, Checkable):
        problems = await store.verify(name)  # before any other call: this one changes nothing
        if not problems:
            await known(store, name, address)
        return problems
    length = await known(store, name, address)
    read = sum([len(entries) async for entries in read_in_batches(store, name)])
    return [] if read == length else [f"{length - read:,} of {length:,} messages cannot be read"]


@click.command()
@click.argument("names", nargs=-1, metavar="[SESSION]...")
@store_option
def repair(names: tuple[str, ...], address: str | None) -> None:
    """Repair damaged sessions, without a SESSION all of them. What cannot be read is kept, never thrown away.

    What sessions share, such as the file of a database, is repaired in any case. Exit code 1 says that damage is left.
    """
    from ..errors import ContextError
    from ..stores import Repairable

    async def work() -> bool:
        left = False
        async with store_at(address) as store:
            if isinstance(store, Repairable):
                shared = Repairs()
                await store.repair(None, shared)
                shared.show(place(address))
            chosen = names or [info.session_id for info in await store.sessions()]
            for name in chosen:
                try:
                    left |= await _repair(store, name, address)
                except ContextError as problem:
                    if names:
                        raise
                    left = True
                    click.echo(f"{typed(name)}: {problem}", err=True)
        if not chosen:
            click.echo(f"no sessions in {place(address)}, nothing to repair; {elsewhere(address)}")
        for name in filter(is_recovered, chosen):
            again = command("fork", name, "ID", address=address)
            click.echo(f"the id of {typed(name)} could not be read; where you know it, {again} gives it back")
        return left

    if carry_out(work()):
        raise SystemExit(1)


async def _repair(store: Store, name: str, address: str | None) -> bool:
    """Repair a session, and print what was done. True if damage is left."""
    from ..stores import Repairable

    repairs = Repairs()
    left = await _problems(store, name, address)  # not `known`, which repairs what it meets, and reports it nowhere
    await store.open(name, repairs)
    async for _ in read_in_batches(store, name):
        pass  # what is read is repaired
    await store.load_checkpoint(name)
    if left or repairs.made:
        left = await _problems(store, name, address)
    if left and isinstance(store, Repairable):
        await store.repair(name, repairs)
        left = await _problems(store, name, address)
    length = (await store.extent(name)).length
    repairs.show()
    lost = sum(made.lost for made in repairs.made)
    done = (
        f"{counted(len(repairs.made), 'repair')}, {counted(lost, 'message')} lost" if repairs.made or left else "sound"
    )
    click.echo(f"{typed(name)}: {counted(length, 'message')}, {done}")
    for problem in left:
        click.echo(f"  left: {problem}")
    if left:
        click.echo("what is left cannot be repaired; restore a backup, or `amplifier-context copy` what can be read")
    await store.release(name)
    return bool(left)


@click.command()
@click.argument("name", metavar="SESSION")
@click.argument("new", metavar="[NEW]", required=False)
@click.option(
    "--at", "mark", metavar="MARK", help="Where the fork ends: with m30, with the user's u12, with all of a12."
)
@store_option
def fork(name: str, new: str | None, mark: str | None, address: str | None) -> None:
    """Make a new session of the beginning of another, to go on differently from there.

    NEW is the id of the fork; without one it is made from the ids of SESSION and MARK, and printed.
    """

    async def work() -> tuple[str, int]:
        async with store_at(address) as store:
            length = await known(store, name, address)
            if mark:
                length = await _length_at(store, name, mark, address)
            made = new or derived_session_id(name, f"-at-{mark or 'end'}")
            await store.fork(name, made, length)
            return made, length

    made, length = carry_out(work())
    click.echo(f"{typed(made)}: {counted(length, 'message')} of {typed(name)}")


async def _length_at(store: Store, name: str, mark: str, address: str | None) -> int:
    """How many messages there are up to a mark, with what it names.

    Raises:
        click.ClickException: the history holds no such place.
    """
    found = _PLACE.fullmatch(mark)
    if not found:
        raise click.ClickException(f"--at: {mark!r} names no place; a place is a message m30, or u12 or a12 of turn 12")
    kind, number = found[1], int(found[2])
    seen = end = 0
    async for entries in read_in_batches(store, name):
        for entry in entries:
            seen += 1
            hit = entry.seq == number if kind == "m" else entry.turn == number and (kind == "a" or entry.human)
            end = seen if hit else end
    if not end:
        marks = command("show", name, address=address)
        raise click.ClickException(f"--at: the history of {typed(name)} has no {mark}; its marks: {marks}")
    return end


@click.command()
@click.argument("name", metavar="SESSION")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def delete(name: str, yes: bool, address: str | None) -> None:
    """Erase a session, with its archive and all that was derived from it."""

    async def work() -> None:
        async with store_at(address) as store:
            length = await known(store, name, address)
            if not yes:
                click.confirm(f"Erase {typed(name)} with its {counted(length, 'message')}?", abort=True)
            await store.open(name)  # not while somebody works in it
            await store.delete(name)

    carry_out(work())
    click.echo(f"{typed(name)}: erased")
