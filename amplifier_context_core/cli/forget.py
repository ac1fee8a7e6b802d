"""`amplifier-context forget`: a secret was pasted, and must be nowhere any more."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from .opening import carry_out, known, place, store_at, store_option
from .words import command, counted, printable, typed

if TYPE_CHECKING:
    from ..stores import Store
    from ..transcript.transcript import Entry
    from .relatives import Relatives


@dataclass(slots=True)
class Request:
    """What is to be forgotten.

    Attributes:
        store: where.
        address: of the store, as the user gave it.
        secret: every message that holds this text; empty for none.
        trace: keep hashes of what the messages said, by which their echoes are recognised.
        texts: what was said in what is erased, as far as it is known.
        failed: sessions in which something could not be done.
    """

    store: Store
    address: str | None
    secret: str
    trace: bool
    texts: set[str] = field(default_factory=set[str])
    failed: list[str] = field(default_factory=list[str])


@click.command()
@click.argument("name", metavar="[SESSION]", required=False)
@click.argument("marks", nargs=-1, metavar="[MARK]...")
@click.option(
    "--containing",
    is_flag=True,
    help="Every message that holds a text, which is asked for (or piped in); without a SESSION in all of them.",
)
@click.option("--forks", is_flag=True, help="Erase the same messages in other sessions of the store, too.")
@click.option("--no-trace", is_flag=True, help="Keep no hash of what the messages said. See docs/forgetting.md.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def forget(
    name: str | None,
    marks: tuple[str, ...],
    containing: bool,
    forks: bool,
    no_trace: bool,
    yes: bool,
    address: str | None,
) -> None:
    """Erase what messages say, everywhere: history, archive, search index, chapters. For a pasted secret.

    MARK names a message, such as m12. Its place in the history stays, with the text "(erased)", and a host that still
    has the message cannot bring it back.

    Forks of the session, the one it was forked from, and sessions that were handed its history hold the same messages.
    Without --forks they are left as they are, and named with the command that erases there.

    Files of the host that hold the text as well (its transcript, its log) are named.
    """
    from ..transcript.transcript import seq_of

    if name is None and (forks or not containing):
        raise click.UsageError("name a SESSION, or pass --containing to look through all of them")
    secret = _asked(yes) if containing else ""
    if not marks and not secret:
        raise click.UsageError("name the messages, such as m12, or pass --containing and a text")
    try:
        for mark in marks:
            seq_of(mark)
    except ValueError as problem:
        raise click.ClickException(str(problem)) from None

    async def work() -> bool:
        async with store_at(address) as store:
            request = Request(store, address, secret, not no_trace)
            if name is None:
                erased = await _everywhere(request, yes)
            else:
                await known(store, name, address)
                erased = await _in_session(request, name, set(marks), forks=forks, yes=yes)
            return erased and not request.failed

    if not carry_out(work()):
        raise SystemExit(1)


def _asked(yes: bool) -> str:
    """The text to forget: typed unseen, or what is piped in, but for its last line end."""
    if sys.stdin.isatty():
        return str(click.prompt("Text", hide_input=True))
    if not yes:
        raise click.UsageError("the text is piped in, so nothing can be asked: pass --yes")
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


async def _in_session(request: Request, name: str, marks: set[str], *, forks: bool, yes: bool) -> bool:
    """Forget in one session and, if asked for, in those that hold the same; True if anything is erased there."""
    from .relatives import Relatives

    marks |= await _holding(request, name)
    beside = not marks and await _is_beside(request, name)
    relatives = Relatives(request.store, name, marks)
    said = await relatives.read()
    sharing = await _sharing(request, name, relatives)
    if (marks or beside) and not yes:
        those = ", ".join(map(typed, [name, *sharing] if forks else [name]))
        what = f"what {', '.join(_in_order(marks))} of {those} say" if marks else f"the text from {those}"
        click.confirm(f"Erase {what}?", abort=True)
    request.texts |= _texts_of(said)
    erased = await _erase(request, name, marks)
    if marks - erased:
        click.echo(f"not in {typed(name)}: {', '.join(_in_order(marks - erased))}")
    for other, shared in sharing.items():
        if forks:
            await _try(request, other, shared)
        else:
            named, options = ([], ["--containing"]) if request.secret else (_in_order(shared), [])
            there = command("forget", other, *named, options=options, address=request.address)
            click.echo(f"{typed(other)} holds the same; to erase it there: {there}")
    origins = {entry.session_id for entry in said}
    _name_host_files(request, {name, *origins, *(sharing if forks else ())})
    return bool(erased) or beside


async def _everywhere(request: Request, yes: bool) -> bool:
    """Forget in all sessions of the store; True if any holds the text."""
    from ..errors import ContextError

    found: dict[str, set[str]] = {}
    names = [info.session_id for info in await request.store.sessions()]
    for name in names:
        try:
            marks = await _holding(request, name)
            beside = not marks and await _is_beside(request, name)
        except ContextError as problem:
            request.failed.append(name)
            click.echo(f"{typed(name)} cannot be read: {problem}", err=True)
            continue
        if marks or beside:
            found[name] = marks
            click.echo(f"{typed(name)}: {', '.join(_in_order(marks)) or 'what is kept beside its messages'}")
    if not found:
        click.echo(f"none of {counted(len(names), 'session')} in {place(request.address)} holds the text", err=True)
    elif not yes:
        click.confirm(f"Erase what these messages of {counted(len(found), 'session')} say?", abort=True)
    for name, marks in found.items():
        await _try(request, name, marks)
    _name_host_files(request, names)
    return bool(found)


async def _sharing(request: Request, name: str, relatives: Relatives) -> dict[str, set[str]]:
    """Return the marks, by session, of what other sessions hold of the messages."""
    from ..errors import ContextError

    sharing: dict[str, set[str]] = {}
    for info in await request.store.sessions():
        other = info.session_id
        if other == name:
            continue
        try:
            shared = await relatives.held_by(other)
        except ContextError as problem:
            click.echo(f"{typed(other)} may hold the same, and cannot be read: {problem}", err=True)
            continue
        if shared:
            sharing[other] = shared
    return sharing


async def _try(request: Request, name: str, marks: set[str]) -> None:
    """Erase in one of several sessions; a failure is printed, and the others are still gone through."""
    from ..errors import ContextError

    try:
        await _erase(request, name, marks | await _holding(request, name))
    except (ContextError, click.ClickException) as problem:
        request.failed.append(name)
        click.echo(f"{typed(name)}: {problem}", err=True)


async def _erase(request: Request, name: str, marks: set[str]) -> set[str]:
    """Erase messages of a session; returns the marks of those it has."""
    from ..config import load_config
    from ..errors import NotErased
    from ..manager import ContextManager

    manager = ContextManager(load_config({}), session_id=name, store=request.store)
    try:
        erased = await manager.forget(_in_order(marks), containing=request.secret, trace=request.trace)
    except NotErased as problem:  # by their marks: no message holds the text any more
        options = [] if request.trace else ["--no-trace"]
        again = command("forget", name, *_in_order(marks), options=options, address=request.address)
        raise click.ClickException(f"{problem}\nTo finish it: {again}") from problem
    left = await _holding(request, name)
    if left:
        raise click.ClickException(
            f"the text is still in {', '.join(_in_order(left))} of {typed(name)}: erase these by their marks"
        )
    click.echo(f"{typed(name)}: {counted(len(erased), 'message')} erased")
    return set(erased)


async def _holding(request: Request, name: str) -> set[str]:
    """Return the marks of the messages that hold the text, those in the archive included."""
    from ..transcript.redaction import forms_of, holds
    from .relatives import everything_in

    forms = forms_of(request.secret) if request.secret else frozenset[str]()
    if not forms:
        return set()
    return {entry.mark async for entry in everything_in(request.store, name) if holds(entry.message, forms)}


async def _is_beside(request: Request, name: str) -> bool:
    """True if a session's checkpoint holds the text: chapters, short forms, what a summary should dwell on."""
    from ..transcript.redaction import forms_of

    data = await request.store.load_checkpoint(name) or b"" if request.secret else b""
    return bool(data) and any(form.encode("utf-8", "surrogatepass") in data for form in forms_of(request.secret))


def _texts_of(entries: Iterable[Entry]) -> set[str]:
    """Return what entries say: their text and the arguments of their calls."""
    from ..messages.parsing import arguments_text, calls_of, text_of

    texts: set[str] = set()
    for entry in entries:
        if not entry.is_redacted:
            texts.add(text_of(entry.message.get("content")))
            texts.update(arguments_text(call) for call in calls_of(entry.message))
    return texts - {""}


def _name_host_files(request: Request, sessions: Collection[str]) -> None:
    """Name files of the host that hold what was erased. Their content is not printed."""
    from .host_files import forms_in_files, search

    whole = bool(request.secret)
    found = search(sessions, forms_in_files({request.secret} if whole else request.texts, whole=whole))
    if found.holding:
        click.echo("These files are the host's, and hold it as well; erase it there yourself:")
        for path in found.holding:
            shown = typed(str(path))
            click.echo(f"  {printable(shown.replace(request.secret, '(erased)') if request.secret else shown)}")
    if found.left_out:
        click.echo(f"{counted(found.left_out, 'file')} of the host could not be looked through", err=True)


def _in_order(marks: Iterable[str]) -> list[str]:
    return sorted(marks, key=lambda mark: (len(mark), mark))
