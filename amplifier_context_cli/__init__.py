"""The command `amplifier-context`. One module a command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command.

    Raises:
        SystemExit: always; its code is the command's exit code, or 130 for Ctrl-C before a command runs.
    """
    try:
        from .app import main as commands
    except KeyboardInterrupt:
        sys.stderr.write("Aborted!\n")
        sys.exit(130)
    commands()
