"""What the commands about kept sessions share: the store they work on, and errors in a sentence."""

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
from ..stores import Repair, Store, open_store
from .words import command, counted, shown_address, typed

T = TypeVar("T")


def store_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--store ADDRESS`: where the sessions are."""
    return click.option(
        "--store",
        "address",
        metavar="ADDRESS",
        help="Where the sessions are: jsonl:FOLDER, sqlite:FILE, postgresql://…, redis://…; by default the files of "
        "this folder's project, ~/.amplifier/projects/…/sessions.",
    )(command)


@asynccontextmanager
async def store_at(address: str | None, *, makes: bool = False) -> AsyncGenerator[Store]:
    """The store at an address, closed in the end.

    Args:
        address: by default the files of this folder's project.
        makes: the command begins a store that is not there yet.

    Raises:
        click.ClickException: nothing is at that address, or nothing will stay there.
    """
    store = open_store(in_project(address) if address is not None else _default())  # checks the address first
    if address is not None:
        _check_place(in_project(address), makes)
    try:
        yield store
    finally:
        await store.close()


def _check_place(address: str, makes: bool) -> None:
    """A mistyped address must not look like a store without sessions."""
    scheme, _, path = address.partition(":")
    if scheme == "memory":
        raise click.ClickException(
            "memory: is empty, and gone with this command; name a store that lasts, such as sqlite:FILE"
        )
    kind = {"jsonl": "folder", "sqlite": "database"}.get(scheme)
    if kind is None or makes:
        return
    try:
        os.stat(os.path.expanduser(path))
    except (FileNotFoundError, NotADirectoryError):
        raise click.ClickException(f"there is no {kind} {path}; check the address") from None
    except OSError:
        pass  # the store says better what is wrong with it


def _default() -> str:
    return f"jsonl:{sessions_folder()}"


def place(address: str | None) -> str:
    """Return where sessions were looked for, as an address without a password."""
    if address is not None:
        return shown_address(in_project(address))
    home = str(Path.home())
    folder = str(sessions_folder())
    return f"jsonl:~{folder.removeprefix(home)}" if folder.startswith(home + os.sep) else f"jsonl:{folder}"


def elsewhere(address: str | None) -> str:
    """Return how to look in another place, in a clause."""
    if address is not None:
        return "--store names another store"
    return "each project folder has sessions of its own: change to another one, or name a store with --store"


def carry_out(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work; what fails is told without a traceback."""
    logging.getLogger("amplifier_context_core").addHandler(logging.NullHandler())  # repairs are told by the command
    try:
        return asyncio.run(work)
    except (SessionInUse, SessionLost) as problem:
        said, holder, _ = str(problem).partition(problem.holder)  # what comes after it is for agents
        raise click.ClickException(f"{said}{holder}; end that process, then try again") from None
    except ContextError as problem:
        raise click.ClickException(str(problem)) from None


async def known(store: Store, session_id: str, address: str | None) -> int:
    """Return how many messages a session has.

    Args:
        store: to look in.
        session_id: of the session.
        address: of the store, as the user gave it.

    Raises:
        click.ClickException: there is no such session; the nearest names are given, and where it was looked for.
    """
    extent = await store.extent(session_id)
    if extent.length or extent.last_seq:
        return extent.length
    names = [info.session_id for info in await store.sessions()]
    if session_id in names:  # it has no messages yet
        return 0
    import difflib

    missing = f"there is no session {session_id!r} in {place(address)}"
    if near := difflib.get_close_matches(session_id, names, n=3, cutoff=0.5):
        raise click.ClickException(f"{missing}; near it: {', '.join(map(typed, near))}")
    if names:
        listing = command("sessions", address=address)
        raise click.ClickException(f"{missing}, which holds {counted(len(names), 'other')}: {listing}")
    raise click.ClickException(f"{missing}, which holds none; {elsewhere(address)}")


class Repairs:
    """What a store repaired while a command worked, to be shown at its end."""

    def __init__(self) -> None:
        self.made: list[Repair] = []

    def __call__(self, repair: Repair) -> None:
        self.made.append(repair)

    def show(self, where: str = "") -> None:
        """Print a line for each.

        Args:
            where: what they are of; by default the session that is named in the next line.
        """
        for repair in self.made:
            kept = (
                f"; the damaged bytes are kept in {Path(repair.quarantined_at).name}" if repair.quarantined_at else ""
            )
            lost = f", {counted(repair.lost, 'message')} lost" if where else ""
            click.echo(f"{where or '  repaired'}: {repair.description}{lost}{kept}")
