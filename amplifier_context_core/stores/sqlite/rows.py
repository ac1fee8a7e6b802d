"""Entries as rows of a database, each under a checksum, and how places are found among them."""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ...errors import StoreError
from ...transcript import Entry
from ..rows import entry_of, extra_of, loads, message_json
from .schema import POSITION_BITS, POSITIONS

COLUMNS = "seq, turn, tokens, origin, extra, message, crc"
VALUES = "?, ?, ?, ?, CAST(? AS TEXT), CAST(? AS TEXT), ?"  # texts are bound as the bytes they are

Row = tuple[int, int, int, str | None, bytes, bytes, int]
Found = tuple[Any, ...]  # what stands in those columns of a file that may be damaged


def row_of(entry: Entry, session_id: str, position: int = 0) -> Row:
    """The columns of an entry that lies at a position (in the archive: at none).

    The session it came from stands apart: a fork says it of all its rows at once.
    """
    extra = extra_of(entry, session_id)
    origin = extra.get("session_id")
    try:
        (origin or "").encode()
        extra.pop("session_id", None)
    except UnicodeError:
        origin = None  # JSON can hold it, a column cannot
    known = message_json(extra) if extra else b""
    message = message_json(entry.message)
    return entry.seq, entry.turn, entry.tokens, origin, known, message, seal(entry, known, message) + position


def seal(entry: Entry, extra: bytes, message: bytes) -> int:
    """The checksum of a row, without the session it came from, which a fork adds.

    To what is kept the position is added, so that an entry that is found in another's place is known for damaged.
    """
    return _seal(entry.seq, entry.turn, entry.tokens, extra, message)


def _seal(seq: int, turn: int, tokens: int, extra: bytes, message: bytes) -> int:
    return zlib.crc32(message, zlib.crc32(b"%d %d %d %b" % (seq, turn, tokens, extra)))


def position_of(key: int) -> int:
    """Where in its history the entry with a key lies."""
    return key & POSITIONS


def entry_in(row: Found, session_id: str, position: int = 0) -> Entry | None:
    """The entry of a row that lies at a position (in the archive: at none); None when the row is damaged."""
    seq, turn, tokens, origin, extra, message, crc = row
    try:
        if _seal(seq, turn, tokens, extra, message) + position != crc:
            return None
        known = cast("dict[str, Any]", loads(extra)) if extra else {}
        if origin is not None:
            known.setdefault("session_id", origin.decode())
        return entry_of(session_id, seq, turn, tokens, message, known)
    except (StoreError, TypeError, ValueError, AttributeError):
        return None


def first_key(number: int) -> int:
    """The key of a session's entry at position 0."""
    return number << POSITION_BITS


@dataclass(slots=True)
class Head:
    """What is known of a session without reading any of its entries."""

    number: int
    stop: int
    holes: list[int]
    last_seq: int
    size: int
    indexed: int

    @property
    def length(self) -> int:
        """Entries of the history."""
        return self.stop - len(self.holes)

    def position(self, place: int) -> int:
        """Where the entry at a place lies; for the place after the last, where the next will."""
        if place >= self.length:
            return self.stop
        for hole in self.holes:
            if hole > place:
                break
            place += 1
        return place

    def place(self, position: int) -> int:
        """Which place an entry has that lies there."""
        return position - bisect_left(self.holes, position)

    def key(self, place: int) -> int:
        """The key of the entry at a place."""
        return first_key(self.number) + self.position(place)


def holes_text(holes: Sequence[int]) -> str:
    """Holes as they are kept."""
    return json.dumps(holes, separators=(",", ":")) if holes else ""


def holes_of(text: bytes) -> list[int]:
    """Holes as they were kept."""
    return cast("list[int]", json.loads(text)) if text else []
