"""Amounts on the command line: one way to write tokens, for every option that takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..amounts import amount_in


def tokens(text: str) -> int:
    """Return the number of tokens that a text names, see `amount_in`.

    Raises:
        click.BadParameter: it names none, or less than 1.
    """
    number = amount_in(text)
    if not number:
        raise click.BadParameter(f"{text!r} is not a number of tokens such as 32000 or 32k")
    return number


def budget_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the option `--budget TOKENS` with a help text to a command."""
    return click.option("--budget", type=tokens, metavar="TOKENS", help=text)
