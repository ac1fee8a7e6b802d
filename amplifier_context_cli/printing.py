"""Print messages, sentences and JSON: nothing that is printed can control the terminal.

Each command has the option `--json`. What a command reports is printed by `print_fact`: a sentence, or its data.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from textwrap import fill
from typing import Any, ParamSpec, TypeVar

import click

from amplifier_context_core.messages.parsing import Message, arguments_text, calls_of, result_text, results_of, text_of

from .formatting import printable_text, screen_width, truncate

_JSON = f"{__name__}.json"  # what click keeps of the option, for the commands of a group too
P = ParamSpec("P")
T = TypeVar("T")


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


def json_option(command: Callable[P, T]) -> Callable[P, T]:
    """Add the option `--json` to a command; `is_json` tells whether it was given."""

    def keep(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[_JSON] = value or context.meta.get(_JSON, False)

    text = "Print what there is to report as JSON, one object a line."
    return click.option("--json", is_flag=True, expose_value=False, callback=keep, help=text)(command)


def is_json() -> bool:
    """True if the command was given `--json`."""
    return bool(click.get_current_context().meta.get(_JSON))


def print_fact(text: str, /, **data: Any) -> None:
    """Print a sentence, with `--json` its data instead. A sentence without data goes to standard error then."""
    if data and is_json():
        print_json(data)
    else:
        click.echo(text, err=is_json())


def print_remark(text: str, /, **data: Any) -> None:
    """Print a sentence to standard error, with `--json` its data to standard output instead."""
    if is_json():
        print_json(data)
    else:
        click.echo(text, err=True)


def confirm(question: str) -> None:
    """Ask a question, and end the command unless the answer is yes."""
    click.confirm(question, abort=True, err=is_json())
