"""Checked values of a row: in a damaged file any value may be in any column.

A value that its column cannot hold raises the driver's error for a damaged file, so that both are handled alike.
"""

from __future__ import annotations

import zlib

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


def row_checksum(row: tuple[int | str, ...]) -> int:
    """Return the checksum of a row of `sessions`, which is its last column."""
    return zlib.crc32("\0".join(map(str, row)).encode())
