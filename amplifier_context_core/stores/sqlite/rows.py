"""Entries and sessions as rows with checksums, and the mapping between indexes and slots."""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, cast

from ...errors import StoreError
from ...transcript.entry import Entry
from ..codec import decode_entry, encode_extra, loads, message_json
from .columns import number_in, row_checksum, slots_in, text_in
from .errors import damage_error
from .schema import MAX_SLOTS, SLOT_BITS

ENTRY_COLUMNS = "seq, turn, tokens, origin, extra, message, crc"
ENTRY_VALUES = "?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT), ?"  # texts are bound as bytes

MAX_SESSION_NUMBER = (1 << (63 - SLOT_BITS)) - 1  # of a session
MAX_TIME = 253_402_300_799_000_000  # microseconds since 1970, the end of the year 9999; dates end there

EntryRow = tuple[int, int, int, str | None, bytes, bytes, int]
RawRow = tuple[Any, ...]  # those columns in a file that may be damaged


def encode_entry_row(entry: Entry, session_id: str, key: int) -> EntryRow:
    """Return the columns of an entry.

    The session that an entry came from has a column of its own, so that a fork can set it for all rows at once.

    Args:
        entry: The entry.
        session_id: Id of the history that holds it.
        key: Key of its row; in the archive, the key of its session's slot 0. It is added to the checksum, so that an
            entry in another location counts as damaged.
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
    """Return the checksum of a row, without its key and without the session that it came from, which a fork adds."""
    return _checksum(entry.seq, entry.turn, entry.tokens, extra, message)


def _checksum(seq: int, turn: int, tokens: int, extra: bytes, message: bytes) -> int:
    return zlib.crc32(message, zlib.crc32(b"%d %d %d %b" % (seq, turn, tokens, extra)))


def decode_entry_row(row: RawRow, session_id: str, key: int) -> Entry | None:
    """Return the entry of a row with a key (in the archive: that of slot 0); None if the row is damaged."""
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
    """Return the key of a session's entry at slot 0."""
    return number << SLOT_BITS


SESSION_COLUMNS = "number, id, stop, holes, last_seq, size, updated, indexed, archived, crc"


@dataclass(slots=True)
class SessionRow:
    """What is known of a session without reading its entries: its row in `sessions`.

    Attributes:
        number: Its number in this database.
        session_id: Its id.
        stop_slot: The slot after the newest entry.
        gaps: Slots before it without an entry.
        last_seq: Highest seq ever assigned.
        size: Bytes of the messages.
        updated: Microseconds since 1970 of the last change.
        indexed_slots: The slot up to which the search index is filled.
        archived_count: Entries in the archive.
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
        """Number of entries."""
        return self.stop_slot - len(self.gaps)

    def slot_of(self, index: int) -> int:
        """Return the slot of the entry at an index; for the index after the last, the next free slot."""
        if index >= self.length:
            return self.stop_slot
        for gap in self.gaps:
            if gap > index:
                break
            index += 1
        return index

    def index_of(self, slot: int) -> int:
        """Return the index of the entry in a slot."""
        return slot - bisect_left(self.gaps, slot)

    def key_of(self, index: int) -> int:
        """Return the key of the entry at an index."""
        return first_key(self.number) + self.slot_of(index)

    @property
    def values(self) -> tuple[int | str, ...]:
        """The row, with its checksum."""
        gaps = json.dumps(self.gaps, separators=(",", ":")) if self.gaps else ""
        known = (self.last_seq, self.size, self.updated, self.indexed_slots, self.archived_count)
        row = (self.number, self.session_id, self.stop_slot, gaps, *known)
        return (*row, row_checksum(row))


def decode_session_row(row: RawRow) -> SessionRow:
    """Return the session of a row with the columns `SESSION_COLUMNS`.

    Raises:
        sqlite3.Error: The row is damaged.
    """
    session = decode_unchecked(row[:-1])
    if session.values[-1] != row[-1]:
        raise damage_error(f"the row of session {session.number} is not as it was written")
    return session


def decode_unchecked(row: RawRow) -> SessionRow:
    """Return the session of a row without its checksum. Only the possible range of each value is checked.

    Raises:
        sqlite3.Error: A value is impossible.
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
