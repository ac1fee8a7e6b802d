"""The command `amplifier-context`. One module a command; each imports heavy modules only when it runs."""

from __future__ import annotations

import sys

__all__ = ["main"]

_INSTALL = "pip install 'amplifier-context-core[cli]'"


def main() -> None:
    """Run the command; without the extra `cli`, print how to install it.

    Raises:
        SystemExit: always; its code is the command's exit code, or 1 without the extra.
    """
    try:
        from .app import main as commands
    except ModuleNotFoundError as problem:
        if problem.name != "click":
            raise
        sys.exit(f"Error: amplifier-context needs the extra `cli`: {_INSTALL}")
    commands()
