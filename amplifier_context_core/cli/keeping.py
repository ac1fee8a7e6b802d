"""`amplifier-context copy`, `verify`, `repair`, `fork`, `delete`: looking after kept sessions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ..stores.checks import named_after
from ..stores.slices import slices
from .opening import Repairs, carry_out, known, store_at, store_option

if TYPE_CHECKING:
    from ..stores import Store
    from ..transcript import Entry

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
    """

    async def work() -> tuple[int, int]:
        async with store_at(source) as old, store_at(target, makes=True) as new:
            names = list(chosen) or [info.session_id for info in await old.sessions()]
            there = {info.session_id for info in await new.sessions()}
            copied = 0
            for name in names:
                await known(old, name)
                if name in there:
                    click.echo(f"{name}: is there already, left as it is")
                    continue
                count = await _copy(old, new, name)
                click.echo(f"{name}: {count:,} messages")
                copied += 1
            return copied, len(names)

    copied, asked = carry_out(work())
    click.echo(f"{copied} of {asked} sessions copied")
    if chosen and copied < asked:
        raise SystemExit(1)


async def _copy(old: Store, new: Store, name: str) -> int:
    """Bring a session over; what is there when it fails half way is deleted again."""
    from ..errors import ContextError
    from ..saved import load

    length = (await old.extent(name)).length
    try:
        archived = await old.archived(name)
        current = {entry.seq for entry in await old.find(name, [entry.seq for entry in archived])}
        gone = [entry for entry in archived if entry.seq not in current]
        gone += await _highest(old, name, {entry.seq for entry in gone})
        await new.append(name, gone)
        await new.replace(name, 0, ())  # what was archived there is archived here
        async for entries in slices(old, name):
            await new.append(name, entries)
        data = await old.load_checkpoint(name)
        if data:
            saved = load(data)
            await new.save_checkpoint(name, saved.covered if saved else 0, data)  # the compat room's stand for none
    except (ContextError, OSError):
        await new.delete(name)
        raise
    except ValueError:
        pass  # a checkpoint of another version: made anew when somebody resumes
    await new.release(name)
    return length


async def _highest(store: Store, name: str, archived: set[int]) -> list[Entry]:
    """What must be archived for the highest seq ever given not to be given again; mostly nothing."""
    from ..erase import ERASED
    from ..messages import read_message
    from ..transcript import Transcript

    last = (await store.extent(name)).last_seq
    if not last or last in archived or await store.find(name, [last]):
        return []
    message, reading = read_message({"role": "system", "content": ERASED})
    gone = Transcript.resumed(name, (), (), length=0, last_seq=last - 1)
    return [gone.draft(message, reading, 1, created="")]


@click.command()
@click.argument("names", nargs=-1, metavar="[SESSION]...")
@store_option
def verify(names: tuple[str, ...], address: str | None) -> None:
    """Look for damage; change nothing. Exit code 1 says that some was found.

    Without a SESSION all of them are looked at.
    """

    async def work() -> int:
        async with store_at(address) as store:
            found = 0
            for name in names or [info.session_id for info in await store.sessions()]:
                problems = await _problems(store, name)
                found += len(problems)
                click.echo(f"{name}: {'sound' if not problems else f'{len(problems)} problems'}")
                for problem in problems:
                    click.echo(f"  {problem}")
            return found

    if carry_out(work()):
        click.echo("`amplifier-context repair SESSION` mends what can be mended")
        raise SystemExit(1)


async def _problems(store: Store, name: str) -> list[str]:
    from ..stores import Checkable

    length = await known(store, name)
    if isinstance(store, Checkable):
        return await store.verify(name)
    read = sum([len(entries) async for entries in slices(store, name)])
    return [] if read == length else [f"{length - read:,} of {length:,} messages cannot be read"]


@click.command()
@click.argument("name", metavar="SESSION")
@store_option
def repair(name: str, address: str | None) -> None:
    """Mend a damaged session; what cannot be read is put aside, never thrown away."""

    async def work() -> int:
        repairs = Repairs()
        async with store_at(address) as store:
            await known(store, name)
            await store.open(name, repairs)
            async for _ in slices(store, name):
                pass  # what is read is mended
            await store.load_checkpoint(name)
            left = await _problems(store, name)
            length = (await store.extent(name)).length
        repairs.show()
        lost = sum(made.lost for made in repairs.made)
        click.echo(f"{name}: {length:,} messages, {len(repairs.made)} repairs, {lost:,} messages lost")
        for problem in left:
            click.echo(f"  left: {problem}")
        return len(left)

    if carry_out(work()):
        raise SystemExit(1)


@click.command()
@click.argument("name", metavar="SESSION")
@click.argument("new", metavar="NEW", required=False)
@click.option(
    "--at", "mark", metavar="MARK", help="Where the fork ends: with m30, with the user's u12, with all of a12."
)
@store_option
def fork(name: str, new: str | None, mark: str | None, address: str | None) -> None:
    """Make a new session of the beginning of another, to go on differently from there.

    NEW is the id of the fork; without one it is told.
    """

    async def work() -> tuple[str, int]:
        async with store_at(address) as store:
            length = await known(store, name)
            if mark:
                length = await _length_at(store, name, mark)
            made = new or named_after(name, f"-at-{mark or 'end'}")
            await store.fork(name, made, length)
            return made, length

    made, length = carry_out(work())
    click.echo(f"{made}: {length:,} messages of {name}")


async def _length_at(store: Store, name: str, mark: str) -> int:
    """How many messages there are up to a mark, with what it names.

    Raises:
        click.ClickException: the history holds no such place.
    """
    found = _PLACE.fullmatch(mark)
    if not found:
        raise click.ClickException(f"--at: {mark!r} names no place; a place is a message m30, or u12 or a12 of turn 12")
    kind, number = found[1], int(found[2])
    seen = end = 0
    async for entries in slices(store, name):
        for entry in entries:
            seen += 1
            hit = entry.seq == number if kind == "m" else entry.turn == number and (kind == "a" or entry.human)
            end = seen if hit else end
    if not end:
        raise click.ClickException(f"--at: the history of {name} has no {mark} (`amplifier-context show {name}`)")
    return end


@click.command()
@click.argument("name", metavar="SESSION")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def delete(name: str, yes: bool, address: str | None) -> None:
    """Erase a session, with its archive and all that was derived from it."""

    async def work() -> None:
        async with store_at(address) as store:
            length = await known(store, name)
            if not yes:
                click.confirm(f"Erase {name} with its {length:,} messages?", abort=True)
            await store.open(name)  # not while somebody works in it
            await store.delete(name)

    carry_out(work())
    click.echo(f"{name}: erased")
