"""What the commands about kept sessions share: the store they work on, and errors in a sentence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from ..errors import ContextError
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
async def store_at(address: str | None) -> AsyncGenerator[Store]:
    """The store at an address, closed in the end."""
    store = open_store(address or f"jsonl:{sessions_folder()}")
    try:
        yield store
    finally:
        await store.close()


def carry_out(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work; what fails is told without a traceback."""
    logging.getLogger("amplifier_context_core").addHandler(logging.NullHandler())  # repairs are told by the command
    try:
        return asyncio.run(work)
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
    import difflib

    names = [info.session_id for info in await store.sessions()]
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
