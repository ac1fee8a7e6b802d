"""The group of commands: our own, and commands that other packages register.

A command of ours is a module with a click command, and a line here. Another package registers a click command under
the entry point group `amplifier_context.commands`. Only the commands that are needed are loaded.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from .doctor import doctor
from .forget import forget
from .maintenance import copy, delete, fork, repair, rewind, verify
from .notes import notes
from .prune import prune
from .report.command import report as report_command
from .sessions import sessions, show
from .steering import compact, pin, pins, undo, unpin
from .streams import accept_all_texts, report
from .transfer.command import export, import_
from .views import context, explain, search, view

GROUP = "amplifier_context.commands"
FROM_TESTING = ("run",)  # commands of the package amplifier-context-testing


class Commands(click.Group):
    """A group that finds commands of other packages and prepares the streams for all of them."""

    def main(self, *args: Any, **options: Any) -> Any:
        accept_all_texts()
        try:
            return super().main(*args, **options)
        except OSError as problem:
            report(problem)
            raise SystemExit(1) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands: the ones of other packages first."""
        return [*sorted(_registered().keys() - self.commands), *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name; None if there is none."""
        if own := super().get_command(ctx, cmd_name):
            return own
        if point := _registered().get(cmd_name):
            return _loaded(point)
        if cmd_name in FROM_TESTING:
            raise click.ClickException(
                f"`{cmd_name}` is in the package amplifier-context-testing, which is not installed: "
                "pip install ./testing in a clone of the repository"
            )
        return None


def _registered() -> dict[str, EntryPoint]:
    """Return the entry points of commands by name; of two packages that register one name, the first counts."""
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    return {point.name: point for point in reversed(points)}


def _loaded(point: EntryPoint) -> click.Command:
    """Load a registered command; one that cannot be loaded becomes a command that fails with the reason."""
    try:
        command = point.load()
    except Exception as problem:  # noqa: BLE001 - a broken package must not take the other commands down
        reason = f"{type(problem).__name__}: {problem}"
    else:
        if isinstance(command, click.Command):
            return command
        reason = f"it is a {type(command).__name__}, not a click command"
    text = f"`{point.name}` cannot be loaded from {point.value}: {reason}"

    @click.command(point.name, help=text, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, expose_value=False)
    def failing() -> None:
        raise click.ClickException(text)

    return failing


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="amplifier-context-cli", prog_name="amplifier-context")
def main() -> None:
    """Look after the sessions that a context manager keeps, and watch one at work."""


for command in (
    sessions,
    show,
    search,
    view,
    context,
    explain,
    report_command,
    copy,
    import_,
    export,
    verify,
    repair,
    fork,
    rewind,
    compact,
    undo,
    pin,
    unpin,
    pins,
    delete,
    prune,
    forget,
    notes,
    doctor,
):
    main.add_command(command)
