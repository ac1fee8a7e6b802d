"""The command `amplifier-context`. One module a command."""

from __future__ import annotations

import sys

from ..errors import install_command

__all__ = ["main"]


def main() -> None:
    """Run the command; without the extra `cli`, print how to install it.

    Raises:
        SystemExit: always; its code is the command's exit code, 1 without the extra, or 130 for Ctrl-C before a
            command runs.
    """
    try:
        from .app import main as commands
    except KeyboardInterrupt:
        sys.stderr.write("Aborted!\n")
        sys.exit(130)
    except ModuleNotFoundError as problem:
        if problem.name != "click":
            raise
        sys.exit(f"Error: amplifier-context needs the extra `cli`: {install_command('cli')}")
    commands()
