"""The screen: lines that stay, and below them a few that are redrawn.

A `Line` is a list of texts with a style each. On a terminal rich draws it; in a pipe, or with `--plain`, the styles go,
the redrawn lines are never shown, and rich is not even loaded.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from amplifier_context_core.cli.words import fitting, printable, screen_width

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

Line = list[tuple[str, str]]
"""Texts and their rich styles; an empty style is the terminal's own."""


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
        self.width = screen_width()

    def say(self, line: Line, indent: int = 0) -> None:
        for piece in wrapped(line, self.width, indent):
            click.echo("".join(text for text, _ in piece).rstrip())

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
        for piece in wrapped(line, self.width, indent):
            self._console.print(self._text(piece), soft_wrap=True)

    def show(self, *lines: Line) -> None:
        from rich.console import Group
        from rich.live import Live

        texts = [self._text(wrapped(line, self.width)[0]) for line in lines]
        for text in texts:
            text.no_wrap, text.overflow = True, "ellipsis"
        if self._live is None:
            self._live = Live(console=self._console, transient=True, refresh_per_second=12)
            self._live.start()
        self._live.update(Group(*texts), refresh=True)  # else a line that is printed next redraws those of before

    def rest(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _text(self, line: Line) -> Text:
        from rich.text import Text

        return Text.assemble(*line)


def wrapped(line: Line, width: int, indent: int = 0) -> list[Line]:
    """A line as lines that fit the width, those after the first indented; styles stay with their words."""
    parts = [(printable(text), style) for text, style in line]
    whole = "".join(text for text, _ in parts)
    lines: list[Line] = []
    start = 0
    while True:
        pad = indent if lines else 0
        end = max(fitting(whole, width - pad, start), start + 1)
        if end < len(whole):
            space = whole.rfind(" ", start, end + 1)
            end = space if space > start and whole[start:space].strip() else end
        lines.append([(" " * pad, "")] * bool(pad) + _between(parts, start, end))
        start = end
        while start < len(whole) and whole[start] == " ":
            start += 1
        if start >= len(whole):
            return lines


def _between(parts: Line, start: int, end: int) -> Line:
    """The characters from start to end, with their styles."""
    found: Line = []
    at = 0
    for text, style in parts:
        piece = text[max(start - at, 0) : max(end - at, 0)]
        if piece:
            found.append((piece, style))
        at += len(text)
    return found
