"""Print messages, sentences and JSON: nothing that is printed can control the terminal."""

from __future__ import annotations

import json
from textwrap import fill
from typing import Any

import click

from amplifier_context_core.messages.parsing import Message, arguments_text, calls_of, result_text, results_of, text_of

from .formatting import printable_text, screen_width, truncate


def words(message: Message) -> str:
    """Return the text of a message, its calls and the results in it, printable."""
    parts = [text_of(message.get("content"))]
    parts.extend(f"→ {call.name} {arguments_text(call)}" for call in calls_of(message))
    parts.extend(result_text(result.content) for result in results_of(message) if result.content.__class__ is dict)
    return printable_text("\n".join(part for part in parts if part))


def print_row(head: str, text: str) -> None:
    """Print a text in one row of the screen, after a head of ASCII characters."""
    click.echo(f"{head}  {truncate(text, max(8, screen_width() - len(head) - 2))}")


def print_wrapped(text: str, indent: int = 0) -> None:
    """Print a text in as many rows as the screen needs, the later ones indented. Words, such as paths, stay whole."""
    width = max(screen_width(), 2 * indent)
    shown = printable_text(text)
    click.echo(fill(shown, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False))


def json_line(data: Any) -> str:
    """Return a value as JSON in one line of printable ASCII, which every terminal and every encoding takes."""
    return json.dumps(data).replace("\x7f", "\\u007f") + "\n"


def print_json(data: Any) -> None:
    """Print a value as JSON in one line."""
    click.echo(json_line(data), nl=False)
