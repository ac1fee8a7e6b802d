"""Standard output with any encoding, and on a full disk. (click ends a command whose pipe was closed.)"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import cast

import click

_STRICT = ("strict", "surrogateescape")  # error handlers that Python gives standard output by itself


def accept_all_texts() -> None:
    """Replace characters that the encoding of standard output lacks; keep an error handler that the user chose."""
    stream = cast("TextIOWrapper | None", sys.stdout)
    if stream is not None and hasattr(stream, "reconfigure") and stream.errors in _STRICT:
        stream.reconfigure(errors="replace")


def report(problem: OSError) -> None:
    """Print an unexpected error of the operating system in one line, and discard the output that is left."""
    with suppress(OSError, ValueError):  # else the interpreter fails to write the rest of the output when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):
        click.echo(f"Error: {_sentence(problem)}", err=True)


def _sentence(problem: OSError) -> str:
    reason = problem.strerror or type(problem).__name__
    if problem.filename:
        return f"{problem.filename}: {reason}"
    if isinstance(problem, FileNotFoundError):
        return "the current folder was deleted; change to another folder and repeat the command"
    return f"the output cannot be written: {reason}"
