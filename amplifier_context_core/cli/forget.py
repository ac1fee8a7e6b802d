"""The command `forget`: erase messages everywhere, for example after a secret was pasted."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .formatting import command, counted, printable, shell_quoted
from .store_options import is_same_store, require_session, run_command, store_at, store_location, store_option

if TYPE_CHECKING:
    from ..manager import ContextManager
    from ..stores import Store
    from .relatives import Relatives

_MOST_MARKS = 20  # that one line names


@dataclass(slots=True)
class Erasure:
    """One call of the command.

    Attributes:
        store: the store.
        url: URL of the store as the user gave it.
        secret: text whose messages are erased; empty if messages are named by marks only.
        trace: keep hashes of the erased messages, by which `set_messages` recognises them.
        texts: texts of the erased messages, as far as they are known.
        failed: ids of the sessions in which an erasure failed.
    """

    store: Store
    url: str | None
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
    help="Erase every message that contains a text (prompted for, or piped in); without a SESSION in all sessions.",
)
@click.option("--forks", is_flag=True, help="Also erase the same messages in other sessions of the store.")
@click.option("--no-trace", is_flag=True, help="Keep no hash of the erased messages. See docs/forgetting.md.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_option
def forget(
    name: str | None,
    marks: tuple[str, ...],
    containing: bool,
    forks: bool,
    no_trace: bool,
    yes: bool,
    url: str | None,
) -> None:
    """Erase the content of messages everywhere: history, archive, search index, chapters.

    MARK names a message, such as m12. The message stays in the history with the text "(erased)". A host that still has
    the original cannot restore it.

    Forks of the session, its origin, and sessions that were started with its history contain the same messages.
    Without --forks these are not changed, but listed with the command that erases there.

    Files of the host that contain the text (its transcript, its log) are listed.
    """
    from ..transcript.entry import seq_of

    if name is None and (forks or not containing):
        raise click.UsageError("name a SESSION, or pass --containing to search all sessions")
    secret = _read_secret(yes) if containing else ""
    if not marks and not secret:
        raise click.UsageError("name the messages, such as m12, or pass --containing and a text")
    try:
        for mark in marks:
            seq_of(mark)
    except ValueError as problem:
        raise click.ClickException(str(problem)) from None

    async def work() -> bool:
        async with store_at(url) as store:
            erasure = Erasure(store, url, secret, not no_trace)
            if name is None:
                erased = await _everywhere(erasure, yes)
            else:
                await require_session(store, name, url)
                erased = await _in_session(erasure, name, set(marks), forks=forks, yes=yes)
            return erased and not erasure.failed

    if not run_command(work()):
        raise SystemExit(1)


def _read_secret(yes: bool) -> str:
    """Return the text to erase: typed without echo, or standard input without its last line end."""
    if sys.stdin.isatty():
        return str(click.prompt("Text", hide_input=True))
    if not yes:
        raise click.UsageError("the text is piped in, so the command cannot ask for confirmation: pass --yes")
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


async def _in_session(erasure: Erasure, name: str, marks: set[str], *, forks: bool, yes: bool) -> bool:
    """Erase in one session and, with `forks`, in the sessions that share its messages; return True if it was found."""
    from ..transcript.redaction import texts_of
    from .relatives import Relatives

    marks |= await _marks_containing(erasure, name)
    in_checkpoint = not marks and await _in_checkpoint(erasure, name)
    relatives = Relatives(erasure.store, name, marks)
    entries = await relatives.read()
    sharing = await _sharing(erasure, name, relatives)
    if (marks or in_checkpoint) and not yes:
        targets = ", ".join(map(shell_quoted, [name, *sharing] if forks else [name]))
        what = f"what {', '.join(_in_order(marks))} of {targets} contain" if marks else f"the text from {targets}"
        click.confirm(f"Erase {what}?", abort=True)
    erasure.texts |= {text for entry in entries for text in texts_of(entry.message)}
    erased = await _erase(erasure, name, marks)
    if marks - erased:
        click.echo(f"not in {shell_quoted(name)}: {', '.join(_in_order(marks - erased))}")
    for other, shared in sharing.items():
        if forks:
            await _try(erasure, other, shared)
        else:
            named, options = ([], ["--containing"]) if erasure.secret else (_in_order(shared), [])
            there = command("forget", other, *named, options=options, url=erasure.url)
            click.echo(f"{shell_quoted(other)} contains the same; to erase it there: {there}")
    origins = {entry.session_id for entry in entries}
    _name_host_files(erasure, {name, *origins, *(sharing if forks else ())})
    return bool(erased) or in_checkpoint


async def _everywhere(erasure: Erasure, yes: bool) -> bool:
    """Erase in all sessions of the store; return True if a session contains the text."""
    from ..errors import ContextError

    found: dict[str, set[str]] = {}
    names = [info.session_id for info in await erasure.store.sessions()]
    for name in names:
        try:
            marks = await _marks_containing(erasure, name)
            in_checkpoint = not marks and await _in_checkpoint(erasure, name)
        except ContextError as problem:
            erasure.failed.append(name)
            click.echo(f"{shell_quoted(name)} cannot be read: {problem}", err=True)
            continue
        if marks or in_checkpoint:
            found[name] = marks
            click.echo(f"{shell_quoted(name)}: {', '.join(_in_order(marks)) or 'its checkpoint'}")
    if not found:
        click.echo(
            f"none of {counted(len(names), 'session')} in {store_location(erasure.url)} contains the text", err=True
        )
    elif not yes:
        click.confirm(f"Erase the content of these messages of {counted(len(found), 'session')}?", abort=True)
    for name, marks in found.items():
        await _try(erasure, name, marks)
    _name_host_files(erasure, names)
    return bool(found)


async def _sharing(erasure: Erasure, name: str, relatives: Relatives) -> dict[str, set[str]]:
    """Return by session the marks of the messages that other sessions share."""
    from ..errors import ContextError

    sharing: dict[str, set[str]] = {}
    for info in await erasure.store.sessions():
        other = info.session_id
        if other == name:
            continue
        try:
            shared = await relatives.shared_with(other)
        except ContextError as problem:
            click.echo(f"{shell_quoted(other)} may contain the same, but cannot be read: {problem}", err=True)
            continue
        if shared:
            sharing[other] = shared
    return sharing


async def _try(erasure: Erasure, name: str, marks: set[str]) -> None:
    """Erase in one of several sessions; print a failure and continue."""
    from ..errors import ContextError

    try:
        await _erase(erasure, name, marks | await _marks_containing(erasure, name))
    except (ContextError, click.ClickException) as problem:
        erasure.failed.append(name)
        click.echo(f"{shell_quoted(name)}: {problem}", err=True)


async def _erase(erasure: Erasure, name: str, marks: set[str]) -> set[str]:
    """Erase messages of a session and return the marks of the messages that it has."""
    from ..errors import NotErased

    manager = await _manager_of(erasure.store, name)
    try:
        erased = await manager.forget(_in_order(marks), containing=erasure.secret, trace=erasure.trace)
    except NotErased as problem:  # by their marks: no message contains the text any more
        options = [] if erasure.trace else ["--no-trace"]
        again = command("forget", name, *_in_order(marks), options=options, url=erasure.url)
        raise click.ClickException(f"{problem}\nTo complete the erasure: {again}") from problem
    left = await _marks_containing(erasure, name)
    if left:
        raise click.ClickException(
            f"{shell_quoted(name)} still contains the text in {', '.join(_in_order(left))}: erase these by their marks"
        )
    click.echo(f"{shell_quoted(name)}: {counted(len(erased), 'message')} erased")
    if erased.also_in:
        click.echo(_copies(erasure, name, _in_order(erased.also_in)))
    return set(erased)


def _copies(erasure: Erasure, name: str, marks: list[str]) -> str:
    """Return a line that names messages with the same words, and the commands that erase them."""
    by_text = command("forget", name, options=["--containing"], url=erasure.url)
    if len(marks) > _MOST_MARKS:
        return f"{len(marks):,} messages from {marks[0]} to {marks[-1]} contain it as well: {by_text}"
    verb = "contains" if len(marks) == 1 else "contain"
    return f"{', '.join(marks)} {verb} it as well: {command('forget', name, *marks, url=erasure.url)}, or {by_text}"


async def _manager_of(store: Store, name: str) -> ContextManager:
    """Return a manager of a session with its own settings, so that what is saved of it afterwards has them too."""
    from ..config import load_config
    from ..errors import ConfigError
    from ..manager import ContextManager
    from .stored_managers import manager_of

    try:
        return manager_of(await store.load_checkpoint(name), name, store, None)
    except ConfigError:  # of a plug-in that is not installed here: it erases without
        return ContextManager(load_config({}), session_id=name, store=store)


async def _marks_containing(erasure: Erasure, name: str) -> set[str]:
    """Return the marks of the messages that contain the text, including archived ones."""
    from ..transcript.redaction import forms_of, holds
    from .relatives import all_entries

    forms = forms_of(erasure.secret) if erasure.secret else frozenset[str]()
    if not forms:
        return set()
    return {entry.mark async for entry in all_entries(erasure.store, name) if holds(entry.message, forms)}


async def _in_checkpoint(erasure: Erasure, name: str) -> bool:
    """True if a session's checkpoint contains the text: in chapters, short forms, or the focus of a summary."""
    from ..transcript.redaction import forms_of

    data = await erasure.store.load_checkpoint(name) or b"" if erasure.secret else b""
    return bool(data) and any(form.encode("utf-8", "surrogatepass") in data for form in forms_of(erasure.secret))


def _name_host_files(erasure: Erasure, sessions: Collection[str]) -> None:
    """List files of the host, and other stores, that contain the erased texts, without their content."""
    from .host_files import forms_in_files, search, store_of

    whole = bool(erasure.secret)
    found = search(sessions, forms_in_files({erasure.secret} if whole else erasure.texts, whole=whole))
    of_hosts, elsewhere = list[Path](), dict[str, None]()
    for path in found.matches:
        store = store_of(path)
        if store is None:
            of_hosts.append(path)
        elif not is_same_store(url := store[0], erasure.url):  # of this store, messages are named by their marks
            session = [store[1]] if store[1] else []
            elsewhere[command("forget", *session, options=["--containing"], url=url)] = None
    lines = [f"Another store contains it as well; to erase it there: {there}" for there in elsewhere]
    if of_hosts:
        lines.append("These files of the host contain it as well; erase it there yourself:")
        lines += [f"  {shell_quoted(str(path))}" for path in of_hosts]
    for line in lines:
        click.echo(printable(line.replace(erasure.secret, "(erased)") if whole else line))
    if found.left_out:
        click.echo(f"{counted(found.left_out, 'file')} of the host could not be searched", err=True)


def _in_order(marks: Iterable[str]) -> list[str]:
    return sorted(marks, key=lambda mark: (len(mark), mark))
