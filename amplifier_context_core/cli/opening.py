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

from ..errors import ContextError, SessionInUse, SessionLost
from ..paths import sessions_folder
from ..stores import Repair, Store, open_store

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
    store = open_store(address or f"jsonl:{sessions_folder()}")
    if address:
        _check_place(address, makes)
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


async def known(store: Store, session_id: str) -> int:
    """How many messages a session has.

    Raises:
        click.ClickException: there is no such session; the nearest names are told.
    """
    extent = await store.extent(session_id)
    if extent.length or extent.last_seq:
        return extent.length
    names = [info.session_id for info in await store.sessions()]
    if session_id in names:  # nothing was said in it yet
        return 0
    import difflib

    near = difflib.get_close_matches(session_id, names, n=3, cutoff=0.5)
    hint = f"; near it: {', '.join(near)}" if near else f"; there are {len(names)} (`amplifier-context sessions`)"
    raise click.ClickException(f"there is no session {session_id!r}{hint}")


class Repairs:
    """What a store mended while a command worked, to be shown at its end."""

    def __init__(self) -> None:
        self.made: list[Repair] = []

    def __call__(self, repair: Repair) -> None:
        self.made.append(repair)

    def show(self) -> None:
        """A line each."""
        for repair in self.made:
            kept = f"; the bytes are kept in {Path(repair.kept).name}" if repair.kept else ""
            click.echo(f"  mended: {repair.what}{kept}")
