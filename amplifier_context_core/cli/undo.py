"""The command `undo`: take the newest compaction of a kept session back."""

from __future__ import annotations

from typing import Any

import click

from .formatting import shell_quoted
from .session_settings import session_settings
from .store_options import require_session, run_command, store_at, store_option

_SHOWN = {
    "originals": "its originals are shown again",
    "digest": "its originals do not fit; the digest's entries are shown, without the model's words",
    "chapter": "its originals do not fit, and it is the digest's already; nothing is changed",
}


@click.command()
@click.argument("name", metavar="SESSION")
@click.argument("mark", metavar="[MARK]", required=False)
@store_option
def undo(name: str, mark: str | None, url: str | None) -> None:
    """Take the newest compaction of a session back, or the chapter that holds the message MARK.

    The next request shows the originals again where they fit below the trigger. The history is not changed.
    """
    from ..config import load_config
    from ..manager import ContextManager

    async def work() -> dict[str, Any]:
        async with store_at(url) as store:
            await require_session(store, name, url)
            config = load_config(session_settings(await store.load_checkpoint(name)))
            manager = ContextManager(config, session_id=name, store=store)
            try:
                return await manager.undo(mark)
            except ValueError as problem:
                raise click.UsageError(str(problem)) from None
            finally:
                await manager.close()

    report = run_command(work())
    if "shows" not in report:
        raise click.ClickException(f"{shell_quoted(name)}: {report['reason']}")
    for one in report["chapters"]:
        click.echo(f"{shell_quoted(name)}, chapter {one['first']} to {one['last']}: {_SHOWN[one['shows']]}")
