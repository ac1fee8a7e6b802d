"""The command `undo`: take the newest compaction of a stored session back."""

from __future__ import annotations

import click

from .formatting import shell_quoted
from .printing import confirm, print_fact
from .store_options import OpenedStore, budget_option, on_store
from .stored_managers import manager_of

_SHOWN = {
    "originals": "its originals are shown again",
    "digest": "its originals do not fit; the digest's entries are shown, without the model's words",
    "chapter": "its originals do not fit, and it is the digest's already; nothing is changed",
}


@click.command()
@click.argument("name", metavar="SESSION")
@click.argument("mark", metavar="[MARK]", required=False)
@on_store
@budget_option("Take it back for requests of a budget such as 16k; by default the budget of the compaction.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
async def undo(at: OpenedStore, name: str, mark: str | None, budget: int | None, yes: bool) -> None:
    """Take the newest compaction of a session back, or the chapter that holds the message MARK.

    The next request shows the originals again where they fit below the trigger. The history is not changed.
    """
    await at.length(name)
    if not yes:
        what = f"chapter that holds {mark}" if mark else "newest compaction"
        confirm(f"Take the {what} of {shell_quoted(name)} back?")
    manager = await manager_of(at.store, name, budget)
    try:
        if budget:
            await manager.explain()  # takes the view of that budget
        report = await manager.undo(mark)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    finally:
        await manager.close()
    if "shows" not in report:
        raise click.ClickException(f"{shell_quoted(name)}: {report['reason']}")
    for one in report["chapters"]:
        sentence = f"{shell_quoted(name)}, chapter {one['first']} to {one['last']}: {_SHOWN[one['shows']]}"
        print_fact(sentence, session_id=name, **one)
