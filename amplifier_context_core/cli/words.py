"""Texts for people: amounts, times, commands as they must be typed, and texts cut or wrapped to the screen.

Widths are columns of a terminal: East Asian wide characters and emoji take two, combining marks none.
"""

from __future__ import annotations

import shlex
import shutil
import unicodedata
from collections.abc import Sequence
from datetime import datetime

PIPE_WIDTH = 110  # columns where there is no terminal to ask, unless COLUMNS says otherwise
_WORDS = 0.7  # of what fits: at least so much is left where a text is cut between words
_UNITS = ("kB", "MB", "GB", "TB")
_COMMAND = "amplifier-context"
_FILES = ("jsonl", "sqlite", "memory")  # schemes of addresses that cannot hold a password


def counted(number: int, noun: str) -> str:
    """Return a number and its noun: ``1 message``, ``1,200 messages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size_text(size: int) -> str:
    """Return a size in bytes as people read it: ``812 B``, ``67.4 MB``."""
    if size < 1_000:
        return f"{size} B"
    amount, unit = size / 1_000, 0
    while amount >= 999.95 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1_000, unit + 1
    return f"{amount:.1f} {_UNITS[unit]}"


def time_text(moment: str) -> str:
    """Return an ISO 8601 time as local time with its offset, ``2025-06-01 14:03 +0200``; other texts as they are."""
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    return parsed.astimezone().strftime("%Y-%m-%d %H:%M %z") if parsed.tzinfo else moment


def typed(text: str) -> str:
    """Return a text as it must be typed in a shell to mean itself."""
    return shlex.quote(text)


def command(name: str, *arguments: str, options: Sequence[str] = (), address: str | None = None) -> str:
    """Return a command of this program as it must be typed, in backquotes.

    Args:
        name: of the command.
        arguments: what it works on, such as ids of sessions.
        options: that it is given.
        address: of the store, as the user gave it. One that may hold a password is not repeated.
    """
    words = [_COMMAND, name, *options]
    repeated = address is not None and address == shown_address(address)
    if address is not None and repeated:
        words += ["--store", address]
    if any(argument.startswith("-") for argument in arguments):
        words.append("--")
    return f"`{shlex.join([*words, *arguments])}`{' with the same --store' if address and not repeated else ''}"


def shown_address(address: str) -> str:
    """Return an address without what may be a password: of a server's, user and options are left out."""
    scheme, _, rest = address.partition(":")
    if scheme in _FILES:
        return address
    return f"{scheme}:{'//' * rest.startswith('//')}{rest.removeprefix('//').rpartition('@')[2].partition('?')[0]}"


def screen_width() -> int:
    """Return the columns of the screen; where there is no terminal, what COLUMNS says, else `PIPE_WIDTH`."""
    return shutil.get_terminal_size((PIPE_WIDTH, 50)).columns


def columns_of(text: str) -> int:
    """Return how many columns a text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):  # combining marks, joiners
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fitting(text: str, width: int, start: int = 0) -> int:
    """Return where the longest piece of a text that begins at `start` and fits `width` columns ends."""
    if text.isascii():
        return min(len(text), start + max(width, 0))
    for end in range(start, len(text)):
        width -= _columns(text[end])
        if width < 0:
            return end
    return len(text)


def printable(text: str) -> str:
    """Return a text without control characters: what a tool printed must not steer the reader's terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def cut(text: str, width: int) -> str:
    """Return at most so many columns of a text on one line, white space run together; an ellipsis stands for the rest.

    The text is cut between words, if that leaves most of what fits.
    """
    reach = max(width, 0) * 4  # characters; more cannot be shown, but for white space
    line = " ".join(text[:reach].split())
    if len(text) <= reach and columns_of(line) <= width:
        return line
    end = fitting(line, width - 1)
    space = line.rfind(" ", 0, end + 1)
    return line[: space if space > end * _WORDS else end].rstrip() + "…"


def padded(text: str, width: int) -> str:
    """Return a text with blanks behind it, so many columns wide at least."""
    return text + " " * max(0, width - columns_of(text))
