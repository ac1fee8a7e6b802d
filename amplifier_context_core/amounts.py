"""Amounts as people write them: ``32000``, ``32_000``, ``32,000``, ``32k``, ``0.2m``; times: ``90s``, ``5m``, ``1h``.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from decimal import Decimal

_AMOUNT = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]{1,9})?)([km]?)", re.IGNORECASE)
_TIMES = {"": 1, "k": 1_000, "m": 1_000_000}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600}
_LONGEST = 30  # characters: Python takes long to read very long numbers


def amount_in(text: str) -> int | None:
    """Return the whole number that a text states; None if it states none."""
    found = _AMOUNT.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if found is None:
        return None
    number = Decimal(found[1].replace("_", "").replace(",", "")) * _TIMES[found[2].lower()]
    return int(number) if number == int(number) else None


def seconds_in(text: str) -> int | None:
    """Return the seconds that a text such as 90s, 5m or 1h states; None if it states none."""
    text = text.strip().lower() if len(text) <= _LONGEST else ""
    number = text.rstrip("smh")
    unit = text[len(number) :]
    return int(number) * _SECONDS[unit] if number.isascii() and number.isdigit() and unit in _SECONDS else None
