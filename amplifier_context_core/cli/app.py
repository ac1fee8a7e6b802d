"""The group of commands. A new command is a module with a click command, and a line here."""

from __future__ import annotations

import click

from .replay import replay
from .run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="amplifier-context-core", prog_name="amplifier-context")
def main() -> None:
    """Memory for Amplifier agents: see a context manager at work."""


main.add_command(run)
main.add_command(replay)
