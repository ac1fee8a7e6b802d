"""The group of commands. A new command is a module with a click command, and a line here."""

from __future__ import annotations

from typing import Any

import click

from .forget import forget
from .keeping import copy, delete, fork, repair, verify
from .replay import replay
from .run import run
from .sessions import sessions, show
from .streams import failures_told, prepare_streams


class Commands(click.Group):
    """A group whose commands end in order, whatever standard output is."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command that the arguments name."""
        prepare_streams()
        with failures_told():
            return super().main(*args, **options)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="amplifier-context-core", prog_name="amplifier-context")
def main() -> None:
    """Memory for Amplifier agents: see a context manager at work, and look after the sessions it keeps."""


for command in (run, replay, sessions, show, copy, verify, repair, fork, delete, forget):
    main.add_command(command)
