"""The commands `compact`, `undo`, `pin`, `unpin` and `pins`: decide what the next request of a stored session shows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import click

from amplifier_context_core import ContextManager, PinRefused

from .formatting import counted, printable_text, shell_quoted
from .printing import confirm, is_json, print_fact, print_json, print_row, print_wrapped, words
from .store_options import OpenedStore, budget_option, on_session
from .stored_managers import manager_of
from .views import copy_of

_SHOWN = {
    "originals": "its originals are shown again",
    "digest": "its originals do not fit; the digest's entries are shown, without the model's words",
    "chapter": "its originals do not fit, and it is the digest's already; nothing is changed",
}


@asynccontextmanager
async def _closing(manager: ContextManager) -> AsyncGenerator[ContextManager]:
    """Close a manager at the end; a mark that is none, or cannot be pinned, ends the command with the reason."""
    try:
        yield manager
    except PinRefused as problem:
        raise click.ClickException(str(problem)) from None
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    finally:
        await manager.close()


@on_session
@budget_option("Compact the view of a budget such as 16k; by default that of the session.")
@click.option("--focus", metavar="TEXT", help="What chapters that a model writes should dwell on.")
@click.option("--from", "first", metavar="MARK", help="Rounds before this message, such as m12, stay as they are.")
@click.option("--to", "last", metavar="MARK", help="Rounds after this message stay as they are.")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
async def compact(
    at: OpenedStore,
    session_id: str,
    budget: int | None,
    focus: str | None,
    first: str | None,
    last: str | None,
    dry_run: bool,
) -> None:
    """Compact the view of a session now, whatever its size. `undo` takes it back.

    The history is not changed. The exit code is 1 if there was nothing to free.
    """
    opening = copy_of(at, session_id, budget, makes_request=False) if dry_run else _stored(at, session_id, budget)
    async with _closing(await opening) as manager:
        await manager.explain()  # takes the view of that budget
        report = await manager.preview(first, last)
        if report["would_compact"] and not dry_run:
            report |= await manager.compact(focus, first, last)
        usage = await manager.usage()
    if is_json():
        print_json(report)
    if "reason" in report and "after_tokens" not in report:
        size = f"it has {usage['used']:,} of {usage['size']:,} tokens; --budget names a smaller window"
        raise click.ClickException(f"{shell_quoted(session_id)}: {report['reason']}; {size}")
    if is_json():
        return
    would = "would be " if dry_run else ""
    sizes = f"{report['before_tokens']:,} → {report['after_tokens']:,} tokens"
    prefix = f"{report['prefix_given_up_tokens']:,} tokens of the cached prefix {would or 'are '}written again"
    print_wrapped(f"{shell_quoted(session_id)}: {sizes}; {prefix}")
    for row in report["rounds"]:
        span = row["mark"] if row["mark"] == row["to"] else f"{row['mark']} to {row['to']}"
        print_row(f"{span:>16}", f"{would}{row['state']}: {counted(row['tokens'], 'token')}")


async def _stored(at: OpenedStore, session_id: str, budget: int | None) -> ContextManager:
    await at.length(session_id)
    return await manager_of(at.store, session_id, budget)


@on_session
@click.argument("mark", metavar="[MARK]", required=False)
@budget_option("Take it back for requests of a budget such as 16k; by default the budget of the compaction.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
async def undo(at: OpenedStore, session_id: str, mark: str | None, budget: int | None, yes: bool) -> None:
    """Take the newest compaction of a session back, or the chapter that holds the message MARK.

    The next request shows the originals again where they fit below the trigger. The history is not changed.
    """
    await at.length(session_id)
    if not yes:
        what = f"chapter that holds {mark}" if mark else "newest compaction"
        confirm(f"Take the {what} of {shell_quoted(session_id)} back?")
    async with _closing(await manager_of(at.store, session_id, budget)) as manager:
        if budget:
            await manager.explain()  # takes the view of that budget
        report = await manager.undo(mark)
    if "shows" not in report:
        raise click.ClickException(f"{shell_quoted(session_id)}: {report['reason']}")
    for one in report["chapters"]:
        sentence = f"{shell_quoted(session_id)}, chapter {one['first']} to {one['last']}: {_SHOWN[one['shows']]}"
        print_fact(sentence, session_id=session_id, **one)


@on_session
@click.argument("marks", nargs=-1, required=True, metavar="MARK...")
async def pin(at: OpenedStore, session_id: str, marks: tuple[str, ...]) -> None:
    """Keep messages such as m12, with their rounds, verbatim in every view of a session."""
    await _pin(at, session_id, marks, pinned=True)


@on_session
@click.argument("marks", nargs=-1, required=True, metavar="MARK...")
async def unpin(at: OpenedStore, session_id: str, marks: tuple[str, ...]) -> None:
    """Keep messages no longer than others. What a message itself says of being pinned stays."""
    await _pin(at, session_id, marks, pinned=False)


async def _pin(at: OpenedStore, session_id: str, marks: tuple[str, ...], *, pinned: bool) -> None:
    async with _closing(await _stored(at, session_id, None)) as manager:
        for mark in marks:
            await manager.pin(mark, pinned)
            sentence = f"{shell_quoted(session_id)}: {mark} {'pinned' if pinned else 'not pinned'}"
            print_fact(sentence, session_id=session_id, mark=mark, pinned=pinned)


@on_session
async def pins(at: OpenedStore, session_id: str) -> None:
    """List the messages of a session that `pin` keeps, with their texts."""
    manager = await copy_of(at, session_id, None)
    await manager.ready()
    if not manager.compactor.directions.pins:
        click.echo(f"{shell_quoted(session_id)} has no pins", err=True)
    for seq in sorted(manager.compactor.directions.pins):
        message = await manager.recall(f"m{seq}")
        text = words(message) if message else "(no longer in the history)"
        if is_json():
            print_json({"mark": f"m{seq}", "text": text})
        else:
            print_row(f"{f'm{seq}':>7}", printable_text(text))
