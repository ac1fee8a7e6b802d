"""Amounts as people write them: ``32000``, ``32_000``, ``32,000``, ``32k``, ``0.2m``. Pure: no I/O, no clock."""

from __future__ import annotations

import re
from decimal import Decimal

_AMOUNT = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]{1,9})?)([km]?)", re.IGNORECASE)
_TIMES = {"": 1, "k": 1_000, "m": 1_000_000}
_LONGEST = 30  # characters: Python takes long to read very long numbers


def amount_in(text: str) -> int | None:
    """Return the whole number that a text states; None if it states none."""
    found = _AMOUNT.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if found is None:
        return None
    number = Decimal(found[1].replace("_", "").replace(",", "")) * _TIMES[found[2].lower()]
    return int(number) if number == int(number) else None
