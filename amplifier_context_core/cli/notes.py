"""The command `notes`: list, add, edit and delete the notes of a project."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..default_paths import in_project, sessions_folder
from .formatting import counted, printable_text, time_text
from .sessions import print_json
from .store_options import run_command, store_at, store_option

if TYPE_CHECKING:
    from ..session.notes import Notes

_Of = tuple[str | None, Path | None]
"""URL of the store as the user gave it, and folder of the project."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name the notes: a store, and a project in it."""
    project = click.option(
        "--project",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="FOLDER",
        help="Folder of the project; by default the current one.",
    )
    return store_option(project(command))


def _of_project(command: Callable[..., None]) -> Callable[..., None]:
    """Add the same options to a command of the group, and call it with their values, or else those of the group."""

    @_options
    @click.pass_obj
    @wraps(command)
    def run(of: _Of, /, url: str | None, project: Path | None, **arguments: Any) -> None:
        command((url or of[0], project or of[1]), **arguments)

    return run


@click.group(invoke_without_command=True)
@_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.pass_context
def notes(context: click.Context, url: str | None, project: Path | None, as_json: bool) -> None:
    """List the notes of a project, or add, edit and delete them.

    Agents keep them with the tool `context_recall`, if its config allows `notes`. Fresh sessions of the project begin
    with them, if the config of context-persistent has `notes: true`.
    """
    context.obj = (url, project)
    if context.invoked_subcommand is not None:
        return
    found = _run(context.obj, lambda of: of.all())
    if as_json:
        for note in found:
            print_json(note.as_json())
        return
    for note in found:
        click.echo(printable_text(f"{note.mark:>5}  {time_text(note.changed)}  {note.author}"))
        for line in note.text.splitlines():
            click.echo(printable_text(f"       {line}"))
    if not found:
        click.echo("no notes of this project; --project and --store name others", err=True)


@notes.command()
@click.argument("text", required=False)
@_of_project
def add(of: _Of, text: str | None) -> None:
    """Keep a note; without TEXT it is read from standard input."""
    note = _run(of, lambda kept: kept.add(_given(text), _author()), makes=True)
    click.echo(f"{note.mark} is kept")


@notes.command()
@click.argument("mark")
@click.argument("text", required=False)
@_of_project
def edit(of: _Of, mark: str, text: str | None) -> None:
    """Replace the text of the note MARK, such as n3; the former text is erased."""
    if _run(of, lambda kept: kept.edit(mark, _given(text), _author())) is None:
        raise click.ClickException(f"there is no note {mark}")
    click.echo(f"{mark} is changed")


def _each_once(context: click.Context, parameter: click.Parameter, marks: tuple[str, ...]) -> tuple[str, ...]:
    """Return the marks, each note once; refuse all of them if one is no mark: nothing is erased then."""
    from ..session.notes import note_seq

    try:
        return tuple({note_seq(mark): mark for mark in marks}.values())
    except ValueError as problem:
        raise click.BadParameter(str(problem), context, parameter) from None


@notes.command()
@click.argument("marks", nargs=-1, required=True, metavar="MARK...", callback=_each_once)
@_of_project
def delete(of: _Of, marks: tuple[str, ...]) -> None:
    """Erase notes. Sessions that began with them still have copies: `forget --containing` erases these too."""
    done = {mark: _run(of, lambda kept, mark=mark: kept.delete(mark)) for mark in marks}
    if erased := list(done.values()).count("erased"):
        click.echo(f"{counted(erased, 'note')} erased")
    if before := [mark for mark, became in done.items() if became == "erased before"]:
        click.echo(f"erased before: {', '.join(before)}")
    if missing := [mark for mark, became in done.items() if not became]:
        raise click.ClickException(f"there is no note {', '.join(missing)}")


def _run(of: _Of, work: Callable[[Notes], Any], *, makes: bool = False) -> Any:
    from ..session.notes import Notes, notes_id
    from ..stores import open_store

    url, project = of
    where = in_project(url, project) if url is not None else f"jsonl:{sessions_folder(project)}"

    async def done() -> Any:
        async with store_at(url and where, makes=makes):  # checks the URL
            try:
                return await work(Notes(lambda: open_store(where), notes_id(project)))
            except ValueError as problem:
                raise click.UsageError(str(problem)) from None

    return run_command(done())


def _given(text: str | None) -> str:
    return sys.stdin.read() if text is None else text


def _author() -> str:
    try:
        return f"person, {getpass.getuser()}"
    except (KeyError, OSError):  # no such user in this container
        return "person"
