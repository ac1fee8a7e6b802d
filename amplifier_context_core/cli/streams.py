"""Standard output with any encoding, and on a full disk. (click ends a command whose pipe was closed.)"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import cast

import click

_STRICT = ("strict", "surrogateescape")  # error handlers that Python gives standard output by itself


def accept_all_texts() -> None:
    """Replace characters that the encoding of standard output lacks; keep an error handler that the user chose."""
    stream = cast("TextIOWrapper | None", sys.stdout)
    if stream is not None and hasattr(stream, "reconfigure") and stream.errors in _STRICT:
        stream.reconfigure(errors="replace")


@contextmanager
def os_errors_reported() -> Generator[None]:
    """Turn an unexpected error of the operating system into one line and exit code 1."""
    try:
        yield
    except OSError as problem:
        with suppress(OSError, ValueError):  # else the interpreter fails to write the rest of the output when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        with suppress(OSError):
            click.echo(f"Error: {_sentence(problem)}", err=True)
        raise SystemExit(1) from None


def _sentence(problem: OSError) -> str:
    reason = problem.strerror or type(problem).__name__
    if problem.filename:
        return f"{problem.filename}: {reason}"
    if isinstance(problem, FileNotFoundError):
        return "the current folder was deleted; change to another folder and repeat the command"
    return f"the output cannot be written: {reason}"
