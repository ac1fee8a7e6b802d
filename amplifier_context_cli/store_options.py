"""Shared by the commands for stored sessions: the opened store, options of several commands, reporting errors."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from amplifier_context_core.amounts import amount_in
from amplifier_context_core.default_paths import in_project, sessions_folder
from amplifier_context_core.errors import ConfigError, ContextError, SessionInUse, SessionLost
from amplifier_context_core.stores import Checkable, Store, open_store
from amplifier_context_core.stores.registry import URLS
from amplifier_context_core.stores.sqlite.journal import journal_in
from amplifier_context_core.transcript.entry import seq_of

from .formatting import command, counted, shell_quoted, without_credentials
from .printing import json_option
from .streams import warnings_to

STORE_VARIABLE = "AMPLIFIER_CONTEXT_STORE"  # also keeps a password out of the arguments, which others can read
_AGE = re.compile(r"(\d{1,6})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """The store of a command.

    Attributes:
        url: its URL as the user gave it; None for the files of the current folder's project.
    """

    store: Store
    url: str | None

    @property
    def location(self) -> str:
        """The URL of the store without credentials."""
        if self.url is not None:
            return without_credentials(in_project(self.url))
        home, folder = str(Path.home()), str(sessions_folder())
        return f"jsonl:~{folder.removeprefix(home)}" if folder.startswith(home + os.sep) else f"jsonl:{folder}"

    @property
    def other_store_hint(self) -> str:
        """A clause that says how to name another store."""
        if self.url is not None:
            return "--store names another store"
        return "each project folder has its own sessions: change to another folder, or name a store with --store"

    def command(self, name: str, *arguments: str, options: Sequence[str] = ()) -> str:
        """Return a command of this program for this store; see `formatting.command`."""
        return command(name, *arguments, options=options, url=self.url)

    def is_at(self, found: str) -> bool:
        """True if the URL of a store of files names this one."""
        scheme, _, place = _full(self.url).partition(":")
        place, _ = journal_in(place)
        found_scheme, _, found_place = found.partition(":")
        return scheme == found_scheme and Path(os.path.expanduser(place)).resolve() == Path(found_place).resolve()

    async def length(self, session_id: str) -> int:
        """Return the number of messages of a session.

        Raises:
            click.ClickException: there is no session of this id; the text names the store and the most similar ids.
        """
        extent = await self.store.extent(session_id)
        if extent.length or extent.last_seq:
            return extent.length
        names = [info.session_id for info in await self.store.sessions()]
        if session_id in names:  # it has no messages yet
            return 0
        missing = f"there is no session {session_id!r} in {self.location}"
        if near := difflib.get_close_matches(session_id, names, n=3, cutoff=0.5):
            raise click.ClickException(f"{missing}; similar: {', '.join(map(shell_quoted, near))}")
        if names:
            others = f"which holds {counted(len(names), 'other')}: {self.command('sessions')}"
            raise click.ClickException(f"{missing}, {others}")
        raise click.ClickException(f"{missing}, which holds none; {self.other_store_hint}")

    async def require_all(self, session_id: str, missing: int) -> None:
        """Raise an error that names `verify` if a read left messages out, or the session is damaged and seems empty."""
        store, name, damage = self.store, shell_quoted(session_id), self.command("verify", session_id)
        if missing:
            raise click.ClickException(f"{counted(missing, 'message')} of {name} cannot be read: {damage}")
        is_empty = not (await store.extent(session_id)).length
        if is_empty and isinstance(store, Checkable) and await store.verify(session_id):
            raise click.ClickException(f"{name} in {self.location} is damaged, and no message can be read: {damage}")


@asynccontextmanager
async def store_at(url: str | None, *, makes: bool = False, what: str = "store") -> AsyncGenerator[OpenedStore]:
    """Open the store at a URL; close it at the end.

    Args:
        url: URL of the store; None for the files of the current folder's project.
        makes: True if the command creates a store that does not exist.
        what: the argument that names the URL, for errors.

    Raises:
        click.ClickException: there is no store at the URL, or the store is not persistent.
    """
    try:
        store = open_store(_full(url))
    except ConfigError as problem:
        raise click.ClickException(str(problem).replace("store:", f"{what}:", 1)) from None
    if url is not None:
        _check_exists(_full(url), makes)
    try:
        yield OpenedStore(store, url)
    finally:
        await store.close()


def _full(url: str | None) -> str:
    return f"jsonl:{sessions_folder()}" if url is None else in_project(url)


def _check_exists(url: str, makes: bool) -> None:
    """Raise an error if a store does not exist: a mistyped URL must not look like an empty store."""
    scheme, _, path = url.partition(":")
    if scheme == "memory":
        raise click.ClickException("memory: ends with this command; name a persistent store, such as sqlite:FILE")
    kind = {"jsonl": "folder", "sqlite": "database"}.get(scheme)
    if kind is None or makes:
        return
    try:
        os.stat(os.path.expanduser(journal_in(path)[0]))
    except (FileNotFoundError, NotADirectoryError):
        raise click.ClickException(f"there is no {kind} {path}; check the URL") from None
    except OSError:
        pass  # the store reports the reason


# -- options and arguments --------------------------------------------------------------------------------------------


def store_option(command: Callable[P, T], **settings: Any) -> Callable[P, T]:
    """Add the option `--store URL` to a command, with more settings of click."""
    return click.option(
        "--store",
        "url",
        metavar="URL",
        envvar=STORE_VARIABLE,
        help=f"Store of the sessions: {URLS}; by default what the variable {STORE_VARIABLE} names, else the "
        "files of the current folder's project, ~/.amplifier/projects/…/sessions.",
        **settings,
    )(command)


def tokens(text: str) -> int:
    """Return the number of tokens that an option names, at least 1; see `amount_in`."""
    number = amount_in(text)
    if not number:
        raise click.BadParameter(f"{text!r} is not a number of tokens such as 32000 or 32k")
    return number


def budget_option(text: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that adds the option `--budget TOKENS` with a help text to a command."""
    return click.option("--budget", type=tokens, metavar="TOKENS", help=text)


def age(text: str) -> timedelta:
    """Return the age that an option names."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no age such as 12h, 30d or 8w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def mark(text: str) -> int:
    """Return the seq of a message that a mark such as m12 names."""
    try:
        return seq_of(text)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


def write_private(path: Path, pieces: Iterable[str]) -> int:
    """Write a file that only its owner can read; return the bytes written. A file that is there is replaced whole.

    A link stays a link; a pipe or a device, such as /dev/stdout, is written to. Raises `OSError`, which names `path`.
    """
    size = 0

    def write(target: Path | int) -> None:
        nonlocal size
        with open(target, "wb") as file:
            for piece in pieces:
                size += file.write(piece.encode("utf-8", "backslashreplace"))

    if path.exists() and not path.is_file():
        write(path)
        return size
    final = path.resolve()
    try:
        descriptor, made = tempfile.mkstemp(dir=final.parent, prefix=f".{final.name[:200]}-")
    except OSError as problem:
        raise type(problem)(problem.errno, problem.strerror, str(path)) from None
    try:
        write(descriptor)
        os.replace(made, final)
    except BaseException:
        os.unlink(made)
        raise
    return size


# -- running ----------------------------------------------------------------------------------------------------------


def on_store(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make an async function a command with `--store URL` and `--json`, and pass the opened store to it first."""

    @json_option
    @store_option
    @wraps(work)
    def run(url: str | None, **arguments: Any) -> None:
        async def opened() -> None:
            async with store_at(url) as at:
                await work(at, **arguments)

        run_command(opened())

    return run


def on_session(work: Callable[..., Coroutine[Any, Any, None]]) -> click.Command:
    """Make an async function a command on a SESSION, its argument `session_id`, and else as `on_store` does."""
    return click.command()(click.argument("session_id", metavar="SESSION")(on_store(work)))


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Run the work of a command; report errors without a traceback, and warnings of the package."""
    printed: set[str] = set()  # a repair that a store made because a command read a damaged session, once

    def warn(text: str) -> None:
        if text not in printed:
            printed.add(text)
            click.echo(f"Warning: {text}", err=True)

    try:
        with warnings_to(warn, "amplifier_context_core", "amplifier_context_cli", "amplifier_context_servers"):
            return asyncio.run(work)
    except (SessionInUse, SessionLost) as problem:
        if not problem.holder:
            raise click.ClickException(str(problem)) from None
        reason, holder, _ = str(problem).partition(problem.holder)  # the rest of the text is for agents
        raise click.ClickException(f"{reason}{holder}; end that process and repeat the command") from None
    except ContextError as problem:
        raise click.ClickException(str(problem)) from None
