"""Checked values of a row: in a damaged file any value may be in any column.

A value that its column cannot hold raises the driver's error for a damaged file, so that both are handled alike.
"""

from __future__ import annotations

import json
import zlib
from itertools import pairwise
from typing import cast

from .errors import damage_error

_MAX_INTEGER = 2**63 - 1


def text_in(value: object) -> str:
    """Return the text of a column that was read as bytes."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    raise damage_error("a column does not hold the text it should")


def number_in(value: object, lowest: int = 0, highest: int = _MAX_INTEGER) -> int:
    """Return the integer of a column."""
    if isinstance(value, int) and lowest <= value <= highest:
        return value
    raise damage_error("a column does not hold the number it should")


def time_in(value: object) -> float:
    """Return the seconds since 1970 of a column."""
    if isinstance(value, float) and 0 <= value < 1e11:
        return value
    raise damage_error("a column does not hold the time it should")


def slots_in(value: object, stop: int) -> list[int]:
    """Return the ascending slots before `stop` that a column lists as JSON; an empty column lists none."""
    text = text_in(value)
    if not text:
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, list):
        listed = cast("list[object]", found)
        if all(isinstance(one, int) for one in listed):
            slots = cast("list[int]", found)
            bounds = [-1, *slots, stop]
            if all(one < other for one, other in pairwise(bounds)):
                return slots
    raise damage_error("a column does not hold the slots it should")


def row_checksum(row: tuple[int | str, ...]) -> int:
    """Return the checksum of a row of `sessions`, which is its last column."""
    return zlib.crc32("\0".join(map(str, row)).encode())
