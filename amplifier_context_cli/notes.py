"""The command `notes`: list, add, edit and delete the notes of a project."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amplifier_context_core.default_paths import in_project, sessions_folder
from amplifier_context_core.stores import open_store

from .formatting import counted, printable_text, time_text
from .printing import is_json, json_option, print_fact, print_json
from .store_options import run_command, store_at, store_option

if TYPE_CHECKING:
    from amplifier_context_recall.notes import Notes

Work = Callable[..., Coroutine[Any, Any, None]]


def _keep(context: click.Context, option: click.Parameter, value: object) -> None:
    """Note the value of an option for the group and its commands: the option may be given to either."""
    if value is not None:
        context.meta[f"{__name__}.{option.name}"] = value  # click shares it between their contexts


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    project = click.option(
        "--project",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="FOLDER",
        help="Folder of the project; by default the current one.",
        callback=_keep,
        expose_value=False,
    )
    return json_option(store_option(project(command), callback=_keep, expose_value=False))


def _on_notes(work: Work, *, makes: bool = False) -> Callable[..., None]:

    @_options
    @wraps(work)
    def run(**arguments: Any) -> None:
        _run(partial(work, **arguments), makes=makes)

    return run


def _run(work: Callable[[Notes], Coroutine[Any, Any, None]], *, makes: bool = False) -> None:
    from amplifier_context_recall.notes import Notes, notes_id  # here: a plan may mount another copy of the package

    meta = click.get_current_context().meta
    url, project = meta.get(f"{__name__}.url"), meta.get(f"{__name__}.project")
    where = in_project(url, project) if url is not None else f"jsonl:{sessions_folder(project)}"

    async def done() -> None:
        async with store_at(url and where, makes=makes):  # checks the URL
            try:
                await work(Notes(lambda: open_store(where), notes_id(project)))
            except ValueError as problem:
                raise click.UsageError(str(problem)) from None

    run_command(done())


@click.group(invoke_without_command=True)
@_options
@click.pass_context
def notes(context: click.Context) -> None:
    """List the notes of a project, or add, edit and delete them.

    Agents keep them with the tool `context_recall`, if its config allows `notes`. Fresh sessions of the project begin
    with them, if the config of context-persistent has `notes: true`.
    """
    if context.invoked_subcommand is None:
        _run(_list)


async def _list(kept: Notes) -> None:
    found = await kept.all()
    for note in found:
        if is_json():
            print_json(note.as_json())
            continue
        click.echo(printable_text(f"{note.mark:>5}  {time_text(note.changed)}  {note.author}"))
        for line in note.text.splitlines():
            click.echo(printable_text(f"       {line}"))
    if not found and not is_json():
        click.echo("no notes of this project; --project and --store name others", err=True)


@notes.command()
@click.argument("text", required=False)
@partial(_on_notes, makes=True)
async def add(kept: Notes, text: str | None) -> None:
    """Keep a note; without TEXT it is read from standard input."""
    note = await kept.add(_given(text), _author())
    print_fact(f"{note.mark} is kept", **note.as_json())


@notes.command()
@click.argument("mark")
@click.argument("text", required=False)
@_on_notes
async def edit(kept: Notes, mark: str, text: str | None) -> None:
    """Replace the text of the note MARK, such as n3; the former text is erased."""
    note = await kept.edit(mark, _given(text), _author())
    if note is None:
        raise click.ClickException(f"there is no note {mark}")
    print_fact(f"{mark} is changed", **note.as_json())


@notes.command()
@click.argument("marks", nargs=-1, required=True, metavar="MARK...")
@_on_notes
async def delete(kept: Notes, marks: tuple[str, ...]) -> None:
    """Erase notes. Sessions that began with them still have copies: `forget --containing` erases these too."""
    from amplifier_context_recall.notes import note_seq  # see `_run`

    once = {note_seq(mark): mark for mark in marks}.values()  # raises before anything is erased
    done = {mark: await kept.delete(mark) for mark in once}
    if erased := [mark for mark, became in done.items() if became == "erased"]:
        print_fact(f"{counted(len(erased), 'note')} erased", erased=erased)
    if before := [mark for mark, became in done.items() if became == "erased before"]:
        print_fact(f"erased before: {', '.join(before)}", erased_before=before)
    if missing := [mark for mark, became in done.items() if not became]:
        raise click.ClickException(f"there is no note {', '.join(missing)}")


def _given(text: str | None) -> str:
    return sys.stdin.read() if text is None else text


def _author() -> str:
    try:
        return f"person, {getpass.getuser()}"
    except (KeyError, OSError):  # no such user in this container
        return "person"
