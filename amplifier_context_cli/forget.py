"""The command `forget`: erase messages everywhere, for example after a secret was pasted."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import click
from click.exceptions import Exit

from amplifier_context_core.config import load_config
from amplifier_context_core.errors import ConfigError, ContextError, NotErased
from amplifier_context_core.manager import ContextManager
from amplifier_context_core.transcript.entry import seqs_of
from amplifier_context_core.transcript.redaction import forms_of, holds, texts_of

from .formatting import command, counted, printable, shell_quoted
from .host_files import forms_in_files, search, store_of
from .printing import confirm, is_json, json_option, print_fact, print_remark
from .relatives import Relatives, all_entries
from .store_options import OpenedStore, mark, run_command, store_at, store_option
from .stored_managers import manager_of

_MOST_MARKS = 20  # that one line names


@dataclass(slots=True)
class Erasure:
    """One call of the command.

    Attributes:
        secret: text whose messages are erased; empty if messages are named by marks only.
        trace: keep hashes of the erased messages, by which `set_messages` recognises them.
    """

    at: OpenedStore
    secret: str
    trace: bool
    has_failed: bool = False


@click.command()
@click.argument("name", metavar="[SESSION]", required=False)
@click.argument("seqs", type=mark, nargs=-1, metavar="[MARK]...")
@click.option(
    "--containing",
    is_flag=True,
    help="Erase every message that contains a text (prompted for, or piped in); without a SESSION in all sessions.",
)
@click.option("--forks", is_flag=True, help="Also erase the same messages in other sessions of the store.")
@click.option("--no-trace", is_flag=True, help="Keep no hash of the erased messages. See docs/stores.md.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_option
@json_option
def forget(
    name: str | None,
    seqs: tuple[int, ...],
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
    if name is None and (forks or not containing):
        raise click.UsageError("name a SESSION, or pass --containing to search all sessions")
    secret = _read_secret(yes) if containing else ""  # outside the event loop, which takes Ctrl-C from a prompt
    if not seqs and not secret:
        raise click.UsageError("name the messages, such as m12, or pass --containing and a text")

    async def work() -> bool:
        async with store_at(url) as at:
            erasure = Erasure(at, secret, not no_trace)
            if name is None:
                erased = await _everywhere(erasure, yes)
            else:
                await at.length(name)
                erased = await _in_session(erasure, name, set(seqs), forks=forks, yes=yes)
            return erased and not erasure.has_failed

    if not run_command(work()):
        raise Exit(1)


def _read_secret(yes: bool) -> str:
    """Return the text to erase: typed without echo, or standard input without its last line end."""
    if sys.stdin.isatty():
        return str(click.prompt("Text", hide_input=True, err=is_json()))
    if not yes:
        raise click.UsageError("the text is piped in, so the command cannot ask for confirmation: pass --yes")
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


async def _in_session(erasure: Erasure, name: str, seqs: set[int], *, forks: bool, yes: bool) -> bool:
    """Erase in one session and, with `forks`, in the sessions that share its messages; return True if it was found."""
    seqs |= await _containing(erasure, name)
    in_checkpoint = not seqs and await _in_checkpoint(erasure, name)
    relatives = Relatives(erasure.at.store, name, seqs)
    entries = await relatives.read()
    sharing = await _sharing(erasure, name, relatives)
    if (seqs or in_checkpoint) and not yes:
        targets = ", ".join(map(shell_quoted, [name, *sharing] if forks else [name]))
        what = f"what {', '.join(_marks(seqs))} of {targets} contain" if seqs else f"the text from {targets}"
        confirm(f"Erase {what}?")
    texts = {text for entry in entries for text in texts_of(entry.message)}
    erased = await _erase(erasure, name, seqs)
    if seqs - erased:
        missing = _marks(seqs - erased)
        print_fact(f"not in {shell_quoted(name)}: {', '.join(missing)}", session_id=name, missing=missing)
    for other, shared in sharing.items():
        if forks:
            await _try(erasure, other, shared)
        else:
            named, options = ([], ["--containing"]) if erasure.secret else (_marks(shared), [])
            there = erasure.at.command("forget", other, *named, options=options)
            sentence = f"{shell_quoted(other)} contains the same; to erase it there: {there}"
            print_fact(sentence, session_id=other, contains=_marks(shared))
    origins = {entry.session_id for entry in entries}
    _name_host_files(erasure, {name, *origins, *(sharing if forks else ())}, texts)
    return bool(erased) or in_checkpoint


async def _everywhere(erasure: Erasure, yes: bool) -> bool:
    """Erase in all sessions of the store; return True if a session contains the text."""
    found: dict[str, set[int]] = {}
    names = [info.session_id for info in await erasure.at.store.sessions()]
    for name in names:
        try:
            seqs = await _containing(erasure, name)
            if seqs or await _in_checkpoint(erasure, name):
                found[name] = seqs
                marks = _marks(seqs)
                sentence = f"{shell_quoted(name)}: {', '.join(marks) or 'its checkpoint'}"
                print_fact(sentence, session_id=name, contains=marks)
        except ContextError as problem:
            erasure.has_failed = True
            _print_failure(name, problem, " cannot be read")
    if not found:
        none = f"none of {counted(len(names), 'session')} in {erasure.at.location} contains the text"
        click.echo(none, err=True)
    elif not yes:
        confirm(f"Erase the content of these messages of {counted(len(found), 'session')}?")
    for name, seqs in found.items():
        await _try(erasure, name, seqs)
    _name_host_files(erasure, names, ())
    return bool(found)


async def _sharing(erasure: Erasure, name: str, relatives: Relatives) -> dict[str, set[int]]:
    sharing: dict[str, set[int]] = {}
    for info in await erasure.at.store.sessions():
        other = info.session_id
        try:
            shared = await relatives.shared_with(other) if other != name else set[int]()
        except ContextError as problem:
            _print_failure(other, problem, " may contain the same, but cannot be read")
            continue
        if shared:
            sharing[other] = shared
    return sharing


async def _try(erasure: Erasure, name: str, seqs: set[int]) -> None:
    try:
        await _erase(erasure, name, seqs | await _containing(erasure, name))
    except (ContextError, click.ClickException) as problem:
        erasure.has_failed = True
        _print_failure(name, problem)


def _print_failure(name: str, problem: Exception, what: str = "") -> None:
    print_remark(f"{shell_quoted(name)}{what}: {problem}", session_id=name, problem=str(problem))


async def _erase(erasure: Erasure, name: str, seqs: set[int]) -> set[int]:
    """Erase messages of a session and return the seqs of the messages that it has."""
    manager = await _manager_of(erasure, name)
    try:
        erased = await manager.forget(_marks(seqs), containing=erasure.secret, trace=erasure.trace)
    except NotErased as problem:  # by their marks: no message contains the text any more
        options = [] if erasure.trace else ["--no-trace"]
        again = erasure.at.command("forget", name, *_marks(seqs), options=options)
        raise click.ClickException(f"{problem}\nTo complete the erasure: {again}") from problem
    if left := await _containing(erasure, name):
        raise click.ClickException(
            f"{shell_quoted(name)} still contains the text in {', '.join(_marks(left))}: erase these by their marks"
        )
    lines = [f"{shell_quoted(name)}: {counted(len(erased), 'message')} erased"]
    if erased.also_in:
        lines.append(_copies(erasure, name, _marks(seqs_of(erased.also_in))))
    print_fact("\n".join(lines), session_id=name, erased=erased, also_in=erased.also_in)
    return set(seqs_of(erased))


def _copies(erasure: Erasure, name: str, marks: list[str]) -> str:
    by_text = erasure.at.command("forget", name, options=["--containing"])
    if len(marks) > _MOST_MARKS:
        return f"{len(marks):,} messages from {marks[0]} to {marks[-1]} contain it as well: {by_text}"
    verb = "contains" if len(marks) == 1 else "contain"
    return f"{', '.join(marks)} {verb} it as well: {erasure.at.command('forget', name, *marks)}, or {by_text}"


async def _manager_of(erasure: Erasure, name: str) -> ContextManager:
    """Return a manager of a session with its own settings, so that what is saved of it afterwards has them too."""
    try:
        return await manager_of(erasure.at.store, name)
    except ConfigError:  # of a plug-in that is not installed here: it erases without
        return ContextManager(load_config({}), session_id=name, store=erasure.at.store)


async def _containing(erasure: Erasure, name: str) -> set[int]:
    """Also return those of archived messages."""
    if not erasure.secret:
        return set()
    forms = forms_of(erasure.secret)
    return {entry.seq async for entry in all_entries(erasure.at.store, name) if holds(entry.message, forms)}


async def _in_checkpoint(erasure: Erasure, name: str) -> bool:
    """True if a session's checkpoint contains the text: in chapters, short forms, or the focus of a summary."""
    data = (await erasure.at.store.load_checkpoint(name) if erasure.secret else None) or b""
    return any(form.encode("utf-8", "surrogatepass") in data for form in forms_of(erasure.secret)) if data else False


def _name_host_files(erasure: Erasure, sessions: Collection[str], texts: Collection[str]) -> None:
    whole = bool(erasure.secret)

    def shown(text: str) -> str:
        return text.replace(erasure.secret, "(erased)") if whole else text

    matches, left_out = search(sessions, forms_in_files([erasure.secret] if whole else texts, whole=whole))
    of_hosts, elsewhere = list[Path](), dict[tuple[str, str], None]()
    for path in matches:
        store = store_of(path)
        if store is None:
            of_hosts.append(path)
        elif not erasure.at.is_at(store[0]):  # of this store, messages are named by their marks
            elsewhere[store] = None
    for url, name in elsewhere:
        there = command("forget", *([name] if name else []), options=["--containing"], url=url)
        sentence = shown(f"Another store contains it as well; to erase it there: {there}")
        print_fact(printable(sentence), store=shown(url), session_id=shown(name) or None)
    if of_hosts:
        print_fact("These files of the host contain it as well; erase it there yourself:")
    for path in of_hosts:
        print_fact(printable(shown(f"  {shell_quoted(str(path))}")), file=shown(str(path)))
    if left_out:
        print_remark(f"{counted(left_out, 'file')} of the host could not be searched", not_searched=left_out)


def _marks(seqs: Iterable[int]) -> list[str]:
    return [f"m{seq}" for seq in sorted(seqs)]
