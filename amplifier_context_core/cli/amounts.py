"""Amounts on the command line: one way to write tokens, for every option that takes them."""

from __future__ import annotations

import re

import click

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([km]?)", re.IGNORECASE)
_TIMES = {"": 1, "k": 1_000, "m": 1_000_000}


def tokens(text: str) -> int:
    """Return the number of tokens that a text names: ``32000``, ``32_000``, ``32,000``, ``32k``, ``0.2m``.

    Raises:
        click.BadParameter: it names none, or less than 1.
    """
    found = _AMOUNT.fullmatch(text.strip().replace("_", "").replace(",", ""))
    number = int(float(found[1]) * _TIMES[found[2].lower()]) if found else 0
    if number < 1:
        raise click.BadParameter(f"{text!r} is not a number of tokens such as 32000 or 32k")
    return number
