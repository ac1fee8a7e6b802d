"""Shared by the commands for stored sessions: the option `--store`, opening the store, and reporting errors."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from ..default_paths import in_project, sessions_folder
from ..errors import ContextError, SessionInUse, SessionLost
from ..stores import Checkable, Repair, Store, open_store
from ..stores.registry import URLS
from ..stores.sqlite.journal import journal_in
from .formatting import command, counted, shell_quoted, without_credentials

T = TypeVar("T")


def store_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--store URL` to a command."""
    return click.option(
        "--store",
        "url",
        metavar="URL",
        help=f"Store of the sessions: {URLS}; by default the files of the current folder's project, "
        "~/.amplifier/projects/…/sessions.",
    )(command)


@asynccontextmanager
async def store_at(url: str | None, *, makes: bool = False) -> AsyncGenerator[Store]:
    """Open the store at a URL; close it at the end.

    Args:
        url: URL of the store; None for the files of the current folder's project.
        makes: True if the command creates a store that does not exist.

    Raises:
        click.ClickException: there is no store at the URL, or the store is not persistent.
    """
    store = open_store(in_project(url) if url is not None else _default())  # checks the URL first
    if url is not None:
        _check_exists(in_project(url), makes)
    try:
        yield store
    finally:
        await store.close()


def _check_exists(url: str, makes: bool) -> None:
    """Raise an error if a store does not exist: a mistyped URL must not look like an empty store."""
    scheme, _, path = url.partition(":")
    if scheme == "memory":
        raise click.ClickException("memory: ends with this command; name a persistent store, such as sqlite:FILE")
    kind = {"jsonl": "folder", "sqlite": "database"}.get(scheme)
    if kind is None or makes:
        return
    try:
        os.stat(os.path.expanduser(path))
    except (FileNotFoundError, NotADirectoryError):
        raise click.ClickException(f"there is no {kind} {path}; check the URL") from None
    except OSError:
        pass  # the store reports the reason


def _default() -> str:
    return f"jsonl:{sessions_folder()}"


def is_same_store(found: str, url: str | None) -> bool:
    """True if the URL of a store of files names the same one as a URL that the user gave; None is the default."""
    scheme, _, place = (in_project(url) if url is not None else _default()).partition(":")
    place, _ = journal_in(place)
    found_scheme, _, found_place = found.partition(":")
    return scheme == found_scheme and Path(os.path.expanduser(place)).resolve() == Path(found_place).resolve()


def store_location(url: str | None) -> str:
    """Return the URL of the store without credentials."""
    if url is not None:
        return without_credentials(in_project(url))
    home = str(Path.home())
    folder = str(sessions_folder())
    return f"jsonl:~{folder.removeprefix(home)}" if folder.startswith(home + os.sep) else f"jsonl:{folder}"


def other_store_hint(url: str | None) -> str:
    """Return a clause that says how to name another store."""
    if url is not None:
        return "--store names another store"
    return "each project folder has its own sessions: change to another folder, or name a store with --store"


class _Warnings(logging.Handler):
    """Prints warnings, such as a repair that a store made because a command read a damaged session; each once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the warning."""
        text = record.getMessage()
        if text not in self._printed:
            self._printed.add(text)
            click.echo(f"Warning: {text}", err=True)


def run_command(work: Coroutine[Any, Any, T], *, warns: bool = True) -> T:
    """Run the work of a command; report errors without a traceback, and warnings of the package.

    Args:
        work: the work.
        warns: False if the command itself prints what the package repairs.
    """
    loggers = [logging.getLogger(name) for name in ("amplifier_context_core", "amplifier_context_servers")]
    warnings = _Warnings() if warns else logging.NullHandler()
    for logger in loggers:
        logger.addHandler(warnings)
    try:
        return asyncio.run(work)
    except (SessionInUse, SessionLost) as problem:
        if not problem.holder:
            raise click.ClickException(str(problem)) from None
        reason, holder, _ = str(problem).partition(problem.holder)  # the rest of the text is for agents
        raise click.ClickException(f"{reason}{holder}; end that process and repeat the command") from None
    except ContextError as problem:
        raise click.ClickException(str(problem)) from None
    finally:
        for logger in loggers:
            logger.removeHandler(warnings)


async def require_session(store: Store, session_id: str, url: str | None) -> int:
    """Return the number of messages of a session.

    Args:
        store: the store.
        session_id: id of the session.
        url: URL of the store as the user gave it.

    Raises:
        click.ClickException: there is no session of this id; the text names the store and the most similar ids.
    """
    extent = await store.extent(session_id)
    if extent.length or extent.last_seq:
        return extent.length
    names = [info.session_id for info in await store.sessions()]
    if session_id in names:  # it has no messages yet
        return 0
    import difflib

    missing = f"there is no session {session_id!r} in {store_location(url)}"
    if near := difflib.get_close_matches(session_id, names, n=3, cutoff=0.5):
        raise click.ClickException(f"{missing}; similar: {', '.join(map(shell_quoted, near))}")
    if names:
        listing = command("sessions", url=url)
        raise click.ClickException(f"{missing}, which holds {counted(len(names), 'other')}: {listing}")
    raise click.ClickException(f"{missing}, which holds none; {other_store_hint(url)}")


async def require_all(store: Store, session_id: str, missing: int, url: str | None) -> None:
    """Raise an error if messages of a session could not be read.

    Args:
        store: the store.
        session_id: id of the session.
        missing: messages that a read did not bring.
        url: URL of the store as the user gave it.

    Raises:
        click.ClickException: some are missing, or the session is damaged and seems empty; the text names `verify`.
    """
    name, damage = shell_quoted(session_id), command("verify", session_id, url=url)
    if missing:
        raise click.ClickException(f"{counted(missing, 'message')} of {name} cannot be read: {damage}")
    if isinstance(store, Checkable) and not (await store.extent(session_id)).length and await store.verify(session_id):
        raise click.ClickException(f"{name} in {store_location(url)} is damaged, and no message can be read: {damage}")


class Repairs:
    """Collects the repairs that a store reports during a command."""

    def __init__(self) -> None:
        self.made: list[Repair] = []

    def __call__(self, repair: Repair) -> None:
        self.made.append(repair)

    def show(self, where: str = "") -> None:
        """Print one line for each repair.

        Args:
            where: what was repaired; by default the session that the next line names.
        """
        for repair in self.made:
            kept = (
                f"; the damaged bytes are kept in {Path(repair.quarantined_at).name}" if repair.quarantined_at else ""
            )
            lost = f", {counted(repair.lost, 'message')} lost" if where else ""
            click.echo(f"{where or '  repaired'}: {repair.description}{lost}{kept}")
