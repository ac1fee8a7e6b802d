"""The screen: lines that stay, and below them a few that are redrawn.

A `Line` is a list of texts with a style each. On a terminal rich draws it; in a pipe, or with `--plain`, the styles go,
the redrawn lines are never shown, and rich is not even loaded.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

Line = list[tuple[str, str]]
"""Texts and their rich styles; an empty style is the terminal's own."""

PIPE_WIDTH = 110  # columns where there is no terminal to ask, unless COLUMNS says otherwise

_PLAINER = str.maketrans(
    {"█": "#", "▏": ":", "▎": ":", "▍": ":", "▌": "=", "▋": "=", "▊": "=", "▉": "=", "░": ".", "└": "+"}
    | {"→": ">", "·": "-", "…": "~", "’": "'", "»": ">", "«": "<", "×": "x", "−": "-", "─": "-"}
)
"""For terminals whose encoding has no such characters."""


class Terminal(Protocol):
    """Where a run is shown.

    Attributes:
        width: columns of a line.
    """

    width: int

    def say(self, line: Line, indent: int = 0) -> None:
        """A line that stays; longer than the screen it goes on below, indented by so many columns."""

    def show(self, *lines: Line) -> None:
        """The lines at the bottom, in place of those shown before."""

    def rest(self) -> None:
        """Take the lines at the bottom away: somebody else wants to write."""


@contextmanager
def open_terminal(*, plain: bool) -> Generator[Terminal]:
    """The screen of this process, left tidy however the run ends."""
    terminal = PlainTerminal() if plain or os.environ.get("TERM") == "dumb" else RichTerminal()
    try:
        yield terminal
    finally:
        terminal.rest()


class PlainTerminal:
    """Lines of plain text on standard output."""

    def __init__(self) -> None:
        self.width = shutil.get_terminal_size((PIPE_WIDTH, 50)).columns
        encoding = getattr(sys.stdout, "encoding", None) or "ascii"
        try:
            "█▏░└→·…»«×−─".encode(encoding)  # noqa: RUF001 - these very characters
            self._table: dict[int, str] = {}
        except (UnicodeError, LookupError):
            self._table = {ord(key) if isinstance(key, str) else key: text for key, text in _PLAINER.items()}

    def say(self, line: Line, indent: int = 0) -> None:
        text = "".join(printable(part) for part, _ in line).translate(self._table).rstrip()
        if len(text) > self.width:
            text = textwrap.fill(
                text, self.width, subsequent_indent=" " * indent, break_on_hyphens=False, replace_whitespace=False
            )
        click.echo(text)

    def show(self, *lines: Line) -> None:
        """Nothing: what is printed stays printed."""

    def rest(self) -> None:
        """Nothing to take away."""


class RichTerminal:
    """Colours, and lines at the bottom that are redrawn."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._live: Live | None = None
        self.width = self._console.width

    def say(self, line: Line, indent: int = 0) -> None:
        for part in self._text(line).wrap(self._console, self.width - indent if indent else self.width):
            self._console.print(part)

    def show(self, *lines: Line) -> None:
        from rich.console import Group
        from rich.live import Live

        texts = [self._text(line) for line in lines]
        for text in texts:
            text.no_wrap, text.overflow = True, "ellipsis"
        if self._live is None:
            self._live = Live(console=self._console, transient=True, refresh_per_second=12)
            self._live.start()
        self._live.update(Group(*texts))

    def rest(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _text(self, line: Line) -> Text:
        from rich.text import Text

        return Text.assemble(*((printable(part), style) for part, style in line))


def printable(text: str) -> str:
    """Text without control characters: what a tool printed must not steer the reader's terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def cut(text: str, width: int) -> str:
    """At most so many characters, white space run together; an ellipsis stands for the rest."""
    short = " ".join(text[: max(width, 0) * 4].split())
    return (
        short if len(short) <= width and len(text) <= max(width, 0) * 4 else short[: max(width - 1, 0)].rstrip() + "…"
    )
