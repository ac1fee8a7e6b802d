"""Format amounts, times and commands for people, and fit texts to the screen.

Widths are columns of a terminal: East Asian wide characters and emoji take two, combining marks none.
"""

from __future__ import annotations

import shlex
import shutil
import unicodedata
from collections.abc import Sequence
from datetime import datetime

from amplifier_context_core.rendering.quoting import without_controls, without_surrogates

PIPE_WIDTH = 110  # columns without a terminal, unless COLUMNS is set
_WORDS = 0.7  # minimal share of the width that remains when a text is truncated between words
_UNITS = ("kB", "MB", "GB", "TB")
_COMMAND = "amplifier-context"
shell_quoted = shlex.quote
_FILES = ("jsonl", "sqlite", "memory")  # schemes of URLs that cannot contain a password


def counted(number: int, noun: str) -> str:
    """Return a number and its noun: ``1 message``, ``1,200 messages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size_text(size: int) -> str:
    """Return a size in bytes with a unit: ``812 B``, ``67.4 MB``."""
    if size < 1_000:
        return f"{size} B"
    amount, unit = size / 1_000, 0
    while amount >= 999.95 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1_000, unit + 1
    return f"{amount:.1f} {_UNITS[unit]}"


def time_text(moment: str) -> str:
    """Return an ISO 8601 time as local time with its offset, ``2025-06-01 14:03 +0200``; other texts unchanged."""
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    return parsed.astimezone().strftime("%Y-%m-%d %H:%M %z") if parsed.tzinfo else moment


def command(name: str, *arguments: str, options: Sequence[str] = (), url: str | None = None) -> str:
    """Return a command of this program, quoted for a shell, in backquotes.

    Args:
        url: URL of the store as the user gave it; one that may contain a password is not repeated.
    """
    words = [_COMMAND, name, *options]
    repeated = url is not None and url == without_credentials(url)
    if url is not None and repeated:
        words += ["--store", url]
    if any(argument.startswith("-") for argument in arguments):
        words.append("--")
    return f"`{shlex.join([*words, *arguments])}`{' with the same --store' if url and not repeated else ''}"


def without_credentials(url: str) -> str:
    """Return a URL without credentials: a server's without user, password and options."""
    scheme, _, rest = url.partition(":")
    if scheme in _FILES:
        return url
    return f"{scheme}:{'//' * rest.startswith('//')}{rest.removeprefix('//').rpartition('@')[2].partition('?')[0]}"


def screen_width() -> int:
    """Return the columns of the screen; without a terminal, the value of COLUMNS or `PIPE_WIDTH`."""
    return shutil.get_terminal_size((PIPE_WIDTH, 50)).columns


def display_width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):  # combining marks, joiners
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fitting_end(text: str, width: int) -> int:
    """Return the end of the longest beginning of a text that fits `width` columns."""
    if text.isascii():
        return min(len(text), max(width, 0))
    for end in range(len(text)):
        width -= _columns(text[end])
        if width < 0:
            return end
    return len(text)


def printable(text: str) -> str:
    """Return a text on one line that cannot control the terminal, whatever a tool or a model wrote."""
    return printable_text(text, " ").replace("\n", " ").replace("\t", " ")


def printable_text(text: str, instead: str = "�") -> str:
    """Return a text that cannot control the terminal, with its line ends and tabs."""
    return without_controls(without_surrogates(text), instead)


def truncate(text: str, width: int) -> str:
    """Return a text on one line of at most `width` columns; collapse white space and mark a truncation by an ellipsis.

    The text is truncated between words if that keeps most of the width.
    """
    reach = max(width, 0) * 4  # characters; more cannot be visible, except white space
    line = " ".join(text[:reach].split())
    if len(text) <= reach and display_width(line) <= width:
        return line
    end = fitting_end(line, width - 1)
    space = line.rfind(" ", 0, end + 1)
    return line[: space if space > end * _WORDS else end].rstrip() + "…"


def padded(text: str, width: int) -> str:
    """Return a text padded with blanks to at least `width` columns."""
    return text + " " * max(0, width - display_width(text))
