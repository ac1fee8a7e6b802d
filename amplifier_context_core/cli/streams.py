"""Standard output and error with any encoding, on a full disk, or with a closed pipe.

The streams are prepared once, before a command runs, so that no command has to handle these cases.
"""

from __future__ import annotations

import codecs
import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TextIO

import click

_REPLACEMENTS = (
    {"█": "#", "▏": ":", "▎": ":", "▍": ":", "▌": "=", "▋": "=", "▊": "=", "▉": "=", "░": ".", "└": "+"}
    | {"→": ">", "·": "-", "…": "~", "’": "'", "‘": "'", "“": '"', "”": '"', "»": ">", "«": "<", "×": "x", "−": "-"}
    | {"─": "-", "━": "-", "–": "-", "—": "-"}
)
"""Replacements for characters that an encoding lacks; all others become a question mark."""

_HANDLER = "amplifier_context.replace"
_ASCII = "amplifier_context_ascii"
_REPLACED = ("strict", "surrogateescape")  # Python's default error handlers of standard output; of standard error:
_REPLACED_OF_ERRORS = ("strict", "backslashreplace")


def _replace(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    text = problem.object[problem.start : problem.end]
    return "".join(_REPLACEMENTS.get(char, "?") for char in text), problem.end


def _ascii(name: str) -> codecs.CodecInfo | None:
    """Return ASCII under a name that click does not know: click treats ASCII as a mistake and would write UTF-8."""
    if name != _ASCII:
        return None
    known = codecs.lookup("ascii")
    return codecs.CodecInfo(
        known.encode,
        known.decode,
        known.streamreader,
        known.streamwriter,
        known.incrementalencoder,
        known.incrementaldecoder,
        name=_ASCII,
    )


codecs.register_error(_HANDLER, _replace)
codecs.register(_ascii)


def prepare_streams() -> None:
    """Make standard output and error accept every text; keep an error handler that the user chose."""
    if sys.stdout is None:  # closed by the shell, as in `>&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    for stream, replaced in ((sys.stdout, _REPLACED), (sys.stderr, _REPLACED_OF_ERRORS)):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and stream.errors in replaced:
            reconfigure(encoding=_ASCII if _is_ascii(stream) else None, errors=_HANDLER)


@contextmanager
def os_errors_reported() -> Generator[None]:
    """Turn an unexpected error of the operating system into one line and exit code 1.

    A closed pipe ends the command silently: the reader, such as `head`, needs no more.

    Raises:
        SystemExit: with code 1, for an error of the operating system.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as problem:
        _discard(sys.stdout)
        if problem.errno != errno.EPIPE:
            with suppress(OSError):
                click.echo(f"Error: {_sentence(problem)}", err=True)
        raise SystemExit(1) from None


def takes_unicode() -> bool:
    """True if standard output can encode every character."""
    return _encoding(sys.stdout).startswith("utf")


def _is_ascii(stream: TextIO) -> bool:
    return _encoding(stream) == "ascii"


def _encoding(stream: TextIO) -> str:
    """Return the canonical name of a stream's encoding."""
    try:
        return codecs.lookup(getattr(stream, "encoding", None) or "ascii").name
    except LookupError:
        return "ascii"


def _sentence(problem: OSError) -> str:
    try:
        os.getcwd()
    except OSError:
        return "the current folder was deleted; change to another folder and repeat the command"
    reason = problem.strerror or type(problem).__name__
    return f"{problem.filename}: {reason}" if problem.filename else f"the output cannot be written: {reason}"


def _discard(stream: TextIO) -> None:
    """Discard the buffered output; otherwise the interpreter would fail to write it when it exits."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
