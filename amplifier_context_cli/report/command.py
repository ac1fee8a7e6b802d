"""The command `report`: a stored session as a page that a browser shows from disk."""

from __future__ import annotations

import logging
import sys
from io import StringIO
from pathlib import Path

import click

from ..formatting import counted, shell_quoted, size_text
from ..printing import print_fact
from ..store_options import OpenedStore, budget_option, on_session, write_private
from ..views import copy_of
from .page import page
from .replay import replay

_budget = budget_option("Make the requests at a budget such as 16k; by default that of the session.")


@on_session
@_budget
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The file to write."
)
async def report(at: OpenedStore, session_id: str, budget: int | None, output: Path) -> None:
    """Write a page that shows what each request of a session was sent, and what became of each message.

    The page is one file. It loads nothing, and it has the texts of the session: it is readable for its owner only.
    """
    now = await copy_of(at, session_id, budget)
    await now.load()
    entries = now.history.snapshot()
    if not entries:
        raise click.ClickException(f"{shell_quoted(session_id)} has no messages")
    seen = sys.stderr if sys.stderr.isatty() else StringIO()  # to a file click would write the label alone
    with click.progressbar(length=len(entries), label="requests", file=seen) as bar:
        logging.disable(logging.WARNING)  # the session warned when it ran; requests that are made again need not
        try:
            made = await replay(entries, now, bar.update)
        finally:
            logging.disable(logging.NOTSET)
    size = write_private(output, page(session_id, entries, made))
    requests, messages = counted(len(made.requests), "request"), counted(len(entries), "message")
    data = {"requests": len(made.requests), "length": len(entries), "size": size}
    print_fact(f"{output}: {requests}, {messages}, {size_text(size)}", file=str(output), session_id=session_id, **data)
