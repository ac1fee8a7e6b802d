"""Entries as rows of a database, each under a checksum, and how places are found among them."""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, cast

from ...errors import StoreError
from ...transcript.transcript import Entry
from ..codec import decode_entry, encode_extra, loads, message_json
from .columns import number_in, row_checksum, slots_in, text_in
from .errors import damage_error
from .schema import MAX_SLOTS, SLOT_BITS

ENTRY_COLUMNS = "seq, turn, tokens, origin, extra, message, crc"
ENTRY_VALUES = "?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT), ?"  # texts are bound as the bytes they are

MAX_SESSION_NUMBER = (1 << (63 - SLOT_BITS)) - 1  # of a session
MAX_TIME = 253_402_300_799_000_000  # microseconds since 1970: the year 9999 ends, which is all a date can hold

EntryRow = tuple[int, int, int, str | None, bytes, bytes, int]
RawRow = tuple[Any, ...]  # what stands in those columns of a file that may be damaged


def encode_entry_row(entry: Entry, session_id: str, key: int) -> EntryRow:
    """Return the columns of an entry.

    The session it came from stands apart: a fork says it of all its rows at once.

    Args:
        entry: what to keep.
        session_id: of the history it is kept in.
        key: of its row; in the archive, the key of its session's position 0. It is added to the checksum, so that an
            entry that is found in another place is known for damaged.
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
        entry_checksum(entry, extra_json, message) + key,
    )


def entry_checksum(entry: Entry, extra: bytes, message: bytes) -> int:
    """The checksum of a row, without its key and without the session it came from, which a fork adds."""
    return _checksum(entry.seq, entry.turn, entry.tokens, extra, message)


def _checksum(seq: int, turn: int, tokens: int, extra: bytes, message: bytes) -> int:
    return zlib.crc32(message, zlib.crc32(b"%d %d %d %b" % (seq, turn, tokens, extra)))


def decode_entry_row(row: RawRow, session_id: str, key: int) -> Entry | None:
    """Return the entry of a row with a key (in the archive: that of position 0); None when the row is damaged."""
    seq, turn, tokens, origin, extra, message, crc = row
    try:
        if _checksum(seq, turn, tokens, extra, message) + key != crc:
            return None
        known = cast("dict[str, Any]", loads(extra)) if extra else {}
        if origin is not None:
            known.setdefault("session_id", origin.decode())
        return decode_entry(session_id, seq, turn, tokens, message, known)
    except (StoreError, TypeError, ValueError, AttributeError):
        return None


def first_key(number: int) -> int:
    """The key of a session's entry at position 0."""
    return number << SLOT_BITS


SESSION_COLUMNS = "number, id, stop, holes, last_seq, size, updated, indexed, archived, crc"


@dataclass(slots=True)
class SessionRow:
    """What is known of a session without reading any of its entries: its row in `sessions`.

    Attributes:
        number: of the session in this database.
        session_id: its identity.
        stop: the position after the newest entry.
        holes: positions before it that hold no entry.
        last_seq: highest seq ever given.
        size: bytes of the messages.
        updated: microseconds since 1970 of the last change.
        indexed: the position up to which the search index is filled.
        archived: entries in the archive.
    """

    number: int
    session_id: str
    stop_slot: int = 0
    gaps: list[int] = field(default_factory=list[int])
    last_seq: int = 0
    size: int = 0
    updated: int = 0
    indexed_slots: int = 0
    archived_count: int = 0

    @property
    def length(self) -> int:
        """Entries of the history."""
        return self.stop_slot - len(self.gaps)

    def slot_of(self, index: int) -> int:
        """Where the entry at a place lies; for the place after the last, where the next will."""
        if index >= self.length:
            return self.stop_slot
        for gap in self.gaps:
            if gap > index:
                break
            index += 1
        return index

    def index_of(self, slot: int) -> int:
        """Which place an entry has that lies there."""
        return slot - bisect_left(self.gaps, slot)

    def key_of(self, index: int) -> int:
        """The key of the entry at a place."""
        return first_key(self.number) + self.slot_of(index)

    @property
    def values(self) -> tuple[int | str, ...]:
        """Its row, sealed."""
        gaps = json.dumps(self.gaps, separators=(",", ":")) if self.gaps else ""
        known = (self.last_seq, self.size, self.updated, self.indexed_slots, self.archived_count)
        row = (self.number, self.session_id, self.stop_slot, gaps, *known)
        return (*row, row_checksum(row))


def decode_session_row(row: RawRow) -> SessionRow:
    """Return what a row of `sessions` says; its columns are those of `HEAD`.

    Raises:
        sqlite3.Error: the row is damaged.
    """
    head = decode_unchecked(row[:-1])
    if head.values[-1] != row[-1]:
        raise damage_error(f"the row of session {head.number} is not as it was written")
    return head


def decode_unchecked(row: RawRow) -> SessionRow:
    """Return what a row of `sessions` says without its seal, and check only that it can be so.

    Raises:
        sqlite3.Error: it cannot.
    """
    number, name, stop, gaps, last_seq, size, updated, indexed, archived = row
    stop = number_in(stop, 0, MAX_SLOTS)
    return SessionRow(
        number_in(number, 1, MAX_SESSION_NUMBER),
        text_in(name),
        stop,
        slots_in(gaps, stop),
        number_in(last_seq),
        number_in(size),
        number_in(updated, 0, MAX_TIME),
        number_in(indexed, 0, stop),
        number_in(archived),
    )
