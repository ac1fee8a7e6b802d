"""`amplifier-context forget`: a secret was pasted, and must be nowhere any more."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

import click

from ..stores.slices import slices
from .opening import carry_out, known, store_at, store_option

if TYPE_CHECKING:
    from ..stores import Store
    from ..transcript import Entry


@click.command()
@click.argument("name", metavar="SESSION")
@click.argument("marks", nargs=-1, metavar="[MARK]...")
@click.option("--containing", is_flag=True, help="Every message that holds a text, which is asked for (or piped in).")
@click.option("--forks", is_flag=True, help="Erase the same messages in other sessions of the store, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def forget(name: str, marks: tuple[str, ...], containing: bool, forks: bool, yes: bool, address: str | None) -> None:
    """Erase what messages say, everywhere: history, archive, search index, chapters. For a pasted secret.

    MARK names a message, such as m12. Its place in the history stays, with the text "(erased)".

    Forks of the session, and the one it was forked from, hold the same messages under the same marks. Without --forks
    they are left as they are, and named with the command that erases there.
    """
    from ..transcript import seq_of

    secret = _asked(yes) if containing else ""
    if not marks and not secret:
        raise click.UsageError("name the messages, such as m12, or pass --containing and a text")
    try:
        for mark in marks:
            seq_of(mark)
    except ValueError as problem:
        raise click.ClickException(str(problem)) from None

    async def work() -> set[str]:
        async with store_at(address) as store:
            await known(store, name)
            wanted = {*marks, *(await _holding(store, name, secret) if secret else ())}
            sharing = await _sharing(store, name, wanted)
            if wanted and not yes:
                those = ", ".join([name, *sharing] if forks else [name])
                click.confirm(f"Erase what {', '.join(_in_order(wanted))} of {those} say?", abort=True)
            if forks:  # first: what fails half way can be called again as long as the messages can be compared
                for other, shared in sharing.items():
                    await _erase(store, other, shared, secret)
            erased = await _erase(store, name, wanted, secret)
            if wanted - erased:
                click.echo(f"not in {name}: {', '.join(_in_order(wanted - erased))}")
            if not forks:
                for other, shared in sharing.items():
                    what = "--containing" if secret else " ".join(_in_order(shared))
                    there = f"`amplifier-context forget {other} {what}`{' with the same --store' if address else ''}"
                    click.echo(f"{other} holds the same; to erase it there: {there}")
            return erased

    if not carry_out(work()):
        raise SystemExit(1)


def _asked(yes: bool) -> str:
    """The text to forget: typed unseen, or what is piped in, but for its last line end."""
    if sys.stdin.isatty():
        return str(click.prompt("Text", hide_input=True))
    if not yes:
        raise click.UsageError("the text is piped in, so nothing can be asked: pass --yes")
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


def _in_order(marks: Iterable[str]) -> list[str]:
    return sorted(marks, key=lambda mark: (len(mark), mark))


async def _erase(store: Store, name: str, marks: set[str], secret: str) -> set[str]:
    """Erase messages of a session, also all that hold a text; what was erased, which is told."""
    from ..config import load_config
    from ..manager import ContextManager

    wanted = marks | (await _holding(store, name, secret) if secret else set[str]())
    erased = await ContextManager(load_config({}), session_id=name, store=store).forget(_in_order(wanted))
    left = await _holding(store, name, secret) if secret else set[str]()
    if left:
        raise click.ClickException(
            f"the text is still in {', '.join(_in_order(left))} of {name}: erase these by their marks"
        )
    click.echo(f"{name}: {len(erased)} messages erased")
    return set(erased)


async def _sharing(store: Store, name: str, marks: set[str]) -> dict[str, set[str]]:
    """Which other sessions hold which of these messages: of the same origin, under the same mark, with the same text.

    What was erased before says nothing any more, so it is nowhere to be looked for.
    """
    from ..erase import erased
    from ..errors import ContextError
    from ..tokens import HeuristicTokenCounter
    from ..transcript import seq_of

    seqs, counter = {seq_of(mark) for mark in marks}, HeuristicTokenCounter()
    kept = await _kept(store, name, seqs)
    messages = {
        (entry.session_id, entry.seq): entry.message
        for entry in kept
        if erased(entry, counter).message != entry.message
    }
    sharing: dict[str, set[str]] = {}
    for other in [info.session_id for info in await store.sessions() if messages and info.session_id != name]:
        try:
            held = await _kept(store, other, seqs)
        except ContextError as problem:
            click.echo(f"{other} may hold the same, and cannot be read: {problem}", err=True)
            continue
        same = {entry.mark for entry in held if messages.get((entry.session_id, entry.seq)) == entry.message}
        if same:
            sharing[other] = same
    return sharing


async def _kept(store: Store, name: str, seqs: set[int]) -> list[Entry]:
    """The entries with these seqs, those in the archive included."""
    archived = [entry for entry in await store.archived(name) if entry.seq in seqs]
    return [*await store.find(name, sorted(seqs)), *archived]


async def _holding(store: Store, name: str, text: str) -> set[str]:
    """Marks of the messages that hold a text, those in the archive included."""
    forms = _forms(text)
    found = {entry.mark for entry in await store.archived(name) if _holds(entry.message, forms)}
    async for entries in slices(store, name):
        found |= {entry.mark for entry in entries if _holds(entry.message, forms)}
    return found


def _forms(text: str) -> frozenset[str]:
    """A text, and how it stands in JSON that was written into a text: once, or in JSON once more."""
    forms = {text}
    for _ in range(2):
        forms |= {json.dumps(form, ensure_ascii=ascii_only)[1:-1] for form in forms for ascii_only in (True, False)}
    return frozenset(forms)


def _holds(value: object, forms: frozenset[str]) -> bool:
    """Does any string in JSON data hold one of these?"""
    if isinstance(value, str):
        return any(form in value for form in forms)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return any(_holds(key, forms) or _holds(item, forms) for key, item in items)
    return isinstance(value, list) and any(_holds(item, forms) for item in cast("list[object]", value))
