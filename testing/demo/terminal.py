"""The terminal of a run: printed lines, and below them a few live lines that are redrawn.

A `StyledText` is a list of texts, each with a style. On a terminal rich renders it. In a pipe or with `--plain`
there are no styles and no live lines, and rich is not loaded.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from amplifier_context_cli.formatting import fitting_end, printable, screen_width

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

StyledText = list[tuple[str, str]]
"""Texts with their rich styles; an empty style is the terminal's default."""


class Terminal(Protocol):
    """The output of a run.

    Attributes:
        width: columns of a line.
    """

    width: int

    def print(self, line: StyledText, indent: int = 0) -> None:
        """Print a line; wrap a long one and indent its further lines by `indent` columns."""

    def update(self, *lines: StyledText) -> None:
        """Replace the live lines at the bottom."""

    def stop_live(self) -> None:
        """Remove the live lines, so that other code can write to the terminal."""


@contextmanager
def open_terminal(*, plain: bool) -> Generator[Terminal]:
    """Open the terminal of this process; remove the live lines however the run ends."""
    terminal = PlainTerminal() if plain or os.environ.get("TERM") == "dumb" else RichTerminal()
    try:
        yield terminal
    finally:
        terminal.stop_live()


class PlainTerminal:
    """Prints plain lines to standard output."""

    def __init__(self) -> None:
        self.width = screen_width()

    def print(self, line: StyledText, indent: int = 0) -> None:
        for piece in wrapped(line, self.width, indent):
            click.echo("".join(text for text, _ in piece).rstrip())

    def update(self, *lines: StyledText) -> None:
        """Do nothing: there are no live lines."""

    def stop_live(self) -> None:
        """Do nothing: there are no live lines."""


class RichTerminal:
    """Prints colours, and redraws live lines at the bottom."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._live: Live | None = None
        self.width = self._console.width

    def print(self, line: StyledText, indent: int = 0) -> None:
        for piece in wrapped(line, self.width, indent):
            self._console.print(self._text(piece), soft_wrap=True)

    def update(self, *lines: StyledText) -> None:
        from rich.console import Group
        from rich.live import Live

        texts = [self._text(wrapped(line, self.width)[0]) for line in lines]
        for text in texts:
            text.no_wrap, text.overflow = True, "ellipsis"
        if self._live is None:
            self._live = Live(console=self._console, transient=True, refresh_per_second=12)
            self._live.start()
        self._live.update(
            Group(*texts), refresh=True
        )  # otherwise the next printed line would redraw the former live lines

    def stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _text(self, line: StyledText) -> Text:
        from rich.text import Text

        return Text.assemble(*line)


def wrapped(line: StyledText, width: int, indent: int = 0) -> list[StyledText]:
    """Wrap a line to lines of `width` columns, the further ones indented; every word keeps its style."""
    parts = [(printable(text), style) for text, style in line]
    whole = "".join(text for text, _ in parts)
    lines: list[StyledText] = []
    start = 0
    while True:
        pad = indent if lines else 0
        end = max(fitting_end(whole, width - pad, start), start + 1)
        if end < len(whole):
            space = whole.rfind(" ", start, end + 1)
            end = space if space > start and whole[start:space].strip() else end
        lines.append([(" " * pad, "")] * bool(pad) + _between(parts, start, end))
        start = end
        while start < len(whole) and whole[start] == " ":
            start += 1
        if start >= len(whole):
            return lines


def _between(parts: StyledText, start: int, end: int) -> StyledText:
    """Return the characters from start to end with their styles."""
    found: StyledText = []
    at = 0
    for text, style in parts:
        piece = text[max(start - at, 0) : max(end - at, 0)]
        if piece:
            found.append((piece, style))
        at += len(text)
    return found
