"""The command `amplifier-context`. One module a command; each imports what is heavy only when it runs."""

from .app import main

__all__ = ["main"]
