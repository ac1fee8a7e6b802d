"""Entries and sessions as rows with checksums.

In a damaged file any value may be in any column. A value that its column cannot hold raises the driver's error for a
damaged file, so that both are handled alike.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from ...errors import StoreError
from ...transcript.entry import Entry
from ..codec import decode_entry, decode_extra, encode_extra, message_json
from ..protocol import SessionInfo
from .errors import damage_error
from .schema import SLOT_BITS

ENTRY_COLUMNS = "seq, turn, tokens, origin, extra, message, crc"
ENTRY_VALUES = "?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), ?"  # texts are bound as bytes

MAX_SESSION_NUMBER = (1 << (63 - SLOT_BITS)) - 1  # of a session

EntryRow = tuple[int, int, int, str | None, bytes, bytes, int]
RawRow = tuple[Any, ...]  # those columns in a file that may be damaged
_MAX_INTEGER = 2**63 - 1


def text_in(value: object) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    raise damage_error("a column does not hold the text it should")


def number_in(value: object, lowest: int = 0, highest: int = _MAX_INTEGER) -> int:
    if isinstance(value, int) and lowest <= value <= highest:
        return value
    raise damage_error("a column does not hold the number it should")


def row_checksum(row: tuple[int | str, ...]) -> int:
    return zlib.crc32("\0".join(map(str, row)).encode())


def encode_entry_row(entry: Entry, session_id: str, key: int) -> EntryRow:
    """Return the columns of an entry of a history.

    The session that an entry came from has a column of its own, so that a fork can set it for all rows at once. `key`
    is that of the row; in the archive, that of its session's slot 0. It is added to the checksum, so that an entry in
    another location counts as damaged.
    """
    extra = encode_extra(entry, session_id)
    origin = extra.get("session_id")
    try:
        (origin or "").encode()
        extra.pop("session_id", None)
    except UnicodeError:
        origin = None  # JSON can hold it, a column cannot
    extra_json = message_json(extra) if extra else b""
    message = message_json(entry.message)
    return (
        entry.seq,
        entry.turn,
        entry.tokens,
        origin,
        extra_json,
        message,
        _checksum(entry.seq, entry.turn, entry.tokens, extra_json, message) + key,
    )


def _checksum(seq: int, turn: int, tokens: int, extra: bytes, message: bytes) -> int:
    return zlib.crc32(message, zlib.crc32(b"%d %d %d %b" % (seq, turn, tokens, extra)))


def is_intact_row(row: RawRow) -> bool:
    """True if a row of `entries`, its key first, is as it was written."""
    key, seq, turn, tokens, _, extra, message, crc = row
    try:
        return _checksum(seq, turn, tokens, extra, message) + key == crc
    except TypeError:
        return False


def decode_entry_row(row: RawRow, session_id: str, key: int) -> Entry | None:
    """Return the entry of a row, its own key first; None if the row is damaged. `key` is that of the row; in the
    archive, that of its session's slot 0.
    """
    _, seq, turn, tokens, origin, extra, message, crc = row
    try:
        if _checksum(seq, turn, tokens, extra, message) + key != crc:
            return None
        known = decode_extra(origin and origin.decode(), extra) if origin or extra else None
        return decode_entry(session_id, seq, turn, tokens, message, known)
    except (StoreError, TypeError, ValueError, AttributeError):
        return None


def first_key(number: int) -> int:
    return number << SLOT_BITS


SESSION_COLUMNS = "number, id, length, last_seq, size, updated, indexed, archived, edits, crc"
_INSERT = f"INSERT INTO sessions({SESSION_COLUMNS}) VALUES ({', '.join('?' * 10)})"  # noqa: S608 - a constant


@dataclass(slots=True)
class SessionRow:
    """What is known of a session without reading its entries: its row in `sessions`."""

    number: int  # in this database
    session_id: str
    length: int = 0  # entries; their indexes are their slots
    last_seq: int = 0  # the highest ever given
    size: int = 0  # bytes of the messages
    updated: int = 0  # microseconds since 1970 of the last change
    indexed: int = 0  # the index up to which the search index is filled
    archived: int = 0  # entries in the archive
    edits: int = 0  # not used

    def key_of(self, index: int) -> int:
        return first_key(self.number) + index

    @property
    def values(self) -> tuple[int | str, ...]:
        row = _values(self)
        return (*row, row_checksum(row))

    def info(self, holder: str) -> SessionInfo:
        when = datetime.fromtimestamp(self.updated / 1e6, UTC).isoformat(timespec="milliseconds")
        return SessionInfo(self.session_id, self.length, when, self.size, holder)

    def insert(self, db: sqlite3.Connection) -> None:
        db.execute(_INSERT, self.values)


_values: Callable[[SessionRow], tuple[int | str, ...]] = attrgetter(*(one.name for one in fields(SessionRow)))


def decode_session_row(row: RawRow) -> SessionRow:
    number, name, *numbers, crc = row
    session = SessionRow(number_in(number, 1, MAX_SESSION_NUMBER), text_in(name), *numbers)
    if session.values[-1] != crc:
        raise damage_error(f"the row of session {session.number} is not as it was written")
    return session
