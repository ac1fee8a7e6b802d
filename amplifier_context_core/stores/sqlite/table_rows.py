"""Check the rows of the tables that hold neither sessions nor entries, when they are verified or recovered.

Each function returns the values of an intact row, and raises the driver's error for damage otherwise.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

from .columns import number_in, text_in, time_in
from .errors import damage_error
from .leases import decode_lease_row
from .rows import MAX_SESSION_NUMBER, RawRow


def _decode_lease(row: RawRow) -> tuple[Any, ...]:
    session, holder = decode_lease_row(row)
    return (session, *astuple(holder))


def _decode_fact(row: RawRow) -> tuple[Any, ...]:
    name, value = row
    return text_in(name), number_in(value)


def _decode_repair(row: RawRow) -> tuple[Any, ...]:
    key, session, what, lost, kept = row
    return number_in(key), text_in(session), text_in(what), number_in(lost), text_in(kept)


def _decode_damaged(row: RawRow) -> tuple[Any, ...]:
    _, session, found, table, *_ = row
    number_in(session)
    time_in(found)
    if table not in (b"entries", b"archive"):
        raise damage_error("a row is in a table it does not belong to")
    return (*row[:3], text_in(table), *row[4:])


def _decode_count(row: RawRow) -> tuple[Any, ...]:
    name, count = row
    return text_in(name), number_in(count, 0, MAX_SESSION_NUMBER)


def decode_checkpoint_row(row: RawRow) -> tuple[Any, ...]:
    """Return the values of a row of `checkpoints`; raise the driver's error for damage if it is not intact."""
    session, covered, crc, data = row
    if not isinstance(data, bytes) or zlib.crc32(data) != crc:
        raise damage_error("a checkpoint is not as it was written")
    return number_in(session, 1, MAX_SESSION_NUMBER), number_in(covered), crc, data


RowReader = Callable[[RawRow], tuple[Any, ...]]
ROW_READERS: dict[str, RowReader] = {
    "leases": _decode_lease,
    "facts": _decode_fact,
    "repairs": _decode_repair,
    "damaged": _decode_damaged,
    "sqlite_sequence": _decode_count,
}
"""For each table that holds no session data, the function that checks a row and returns the values to write.

These functions raise the driver's error for damage.
"""
