"""Standard output with any encoding, and on a full disk; warnings. (click ends a command whose pipe was closed.)"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Generator
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


def report(problem: OSError) -> None:
    """Print an unexpected error of the operating system in one line, and discard the output that is left."""
    with suppress(OSError, ValueError):  # else the interpreter fails to write the rest of the output when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):
        click.echo(f"Error: {_sentence(problem)}", err=True)


@contextmanager
def warnings_to(show: Callable[[str], object], *names: str) -> Generator[None]:
    """Pass the texts of warnings of loggers to a function; without names, those of all loggers."""

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            show(record.getMessage())

    handler = Shown(logging.WARNING)
    loggers = [logging.getLogger(name) for name in names or ("",)]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _sentence(problem: OSError) -> str:
    reason = problem.strerror or type(problem).__name__
    if problem.filename:
        return f"{problem.filename}: {reason}"
    if isinstance(problem, FileNotFoundError):
        return "the current folder was deleted; change to another folder and repeat the command"
    return f"the output cannot be written: {reason}"
