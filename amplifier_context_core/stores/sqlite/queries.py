"""Histories in a database: what each call of a store that changes nothing reads of its rows.

All are functions of a connection.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...transcript.entry import Entry
from ..protocol import index_range
from .errors import damage_error
from .rows import ENTRY_COLUMNS, SESSION_COLUMNS, RawRow, SessionRow, decode_entry_row, decode_session_row, first_key
from .schema import NOT_AT_SEQ

# Constants only: names of columns.
_SELECT_RANGE = f"SELECT id, {ENTRY_COLUMNS} FROM entries WHERE id >= ? AND id < ? ORDER BY id"  # noqa: S608
_SELECT_ARCHIVED = f"SELECT id, {ENTRY_COLUMNS} FROM archive WHERE session = ? ORDER BY id"  # noqa: S608
_SELECT_BY_SEQ = f"""SELECT id, {ENTRY_COLUMNS} FROM entries
WHERE session = ?1 AND seq IN (SELECT value FROM json_each(?3)) AND {NOT_AT_SEQ}
UNION ALL SELECT id, {ENTRY_COLUMNS} FROM entries
WHERE id IN (SELECT ?2 + value - 1 FROM json_each(?3)) AND NOT ({NOT_AT_SEQ}) ORDER BY id"""  # noqa: S608


@dataclass(slots=True)
class ReadResult:
    entries: list[Entry] = field(default_factory=list[Entry])  # the intact ones
    damaged: list[int] = field(default_factory=list[int])  # keys of damaged or missing ones


def find_session(db: sqlite3.Connection, session_id: str) -> SessionRow | None:
    """Return the row of a session; None without one. The index of session ids is not trusted if it finds none: the
    session would begin again.
    """
    if getattr(db, "holds_one", False):
        row = db.execute(f"SELECT {SESSION_COLUMNS} FROM sessions LIMIT 1").fetchone()  # noqa: S608 - constants
        session = decode_session_row(row) if row is not None else None
        if session is not None:
            session.session_id = session_id
        return session
    select = f"SELECT {SESSION_COLUMNS} FROM sessions {{}} WHERE id = ?"  # noqa: S608 - constants
    row = db.execute(select.format(""), (session_id,)).fetchone()
    if row is not None:
        session = decode_session_row(row)
        if session.session_id == session_id:
            return session
    elif db.execute(select.format("NOT INDEXED"), (session_id,)).fetchone() is None:
        return None
    raise damage_error("the index of session ids is damaged")


def check_end(db: sqlite3.Connection, session: SessionRow) -> None:
    """Raise the driver's error for a damaged file if a history does not end where its session row says."""
    start, stop_key = first_key(session.number), first_key(session.number + 1)
    newest = db.execute("SELECT max(id) FROM entries WHERE id >= ? AND id < ?", (start, stop_key)).fetchone()[0]
    if (start - 1 if newest is None else newest) != start + session.length - 1:
        raise damage_error(f"session {session.number} ends elsewhere than it should")


def read(db: sqlite3.Connection, session_id: str, start: int = 0, stop: int | None = None) -> ReadResult:
    """Return the entries of a range of indexes, as for a list."""
    found, session = ReadResult(), find_session(db, session_id)
    if session is not None:
        indexes = index_range(session.length, start, stop)
        first, stop_key = session.key_of(indexes.start), session.key_of(indexes.stop)
        for row in iterate_rows(db, first, stop_key):
            if row[0] != first:
                found.damaged.extend(range(first, row[0]))
            first = row[0] + 1
            _add_row(found, row, session_id, row[0])
        found.damaged.extend(range(first, stop_key))
    return found


def archived(db: sqlite3.Connection, session_id: str) -> ReadResult:
    found, session = ReadResult(), find_session(db, session_id)
    if session is not None:
        for row in db.execute(_SELECT_ARCHIVED, (session.number,)):
            _add_row(found, row, session_id, first_key(session.number))
        check_archive(session, len(found.entries) + len(found.damaged))
    return found


def find(db: sqlite3.Connection, session_id: str, seqs: Sequence[int]) -> ReadResult:
    found, session = ReadResult(), find_session(db, session_id)
    if session is not None:
        wanted = [*{seq for seq in seqs if 0 < seq <= session.last_seq}]
        for row in rows_by_seq(db, session, wanted):
            _add_row(found, row, session_id, row[0])
    return found


def rows_by_seq(db: sqlite3.Connection, session: SessionRow, seqs: Sequence[int]) -> sqlite3.Cursor:
    """Return keys and columns of the history's entries with these seqs, in its order."""
    return db.execute(_SELECT_BY_SEQ, (session.number, first_key(session.number), json.dumps(seqs)))


def check_archive(session: SessionRow, count: int) -> None:
    """Raise the driver's error for a damaged file if a session's archive does not hold this many entries."""
    if count != session.archived:
        raise damage_error(f"the archive of session {session.number} does not hold what it should")


def load_checkpoint(db: sqlite3.Connection, session_id: str) -> tuple[bytes | None, bool]:
    """Return the last checkpoint, and whether it is damaged."""
    session = find_session(db, session_id)
    if session is None:
        return None, False
    row = db.execute("SELECT data, crc FROM checkpoints WHERE session = ?", (session.number,)).fetchone()
    if row is None:
        return None, False
    return (row[0], False) if is_intact(*row) else (None, True)


def is_intact(data: object, crc: object) -> bool:
    return isinstance(data, bytes) and zlib.crc32(data) == crc


def session_rows(db: sqlite3.Connection) -> Iterator[SessionRow]:
    """Yield the row of every session, the last changed first."""
    for row in db.execute(f"SELECT {SESSION_COLUMNS} FROM sessions ORDER BY updated DESC, number DESC"):  # noqa: S608 - constant
        yield decode_session_row(row)


def iterate_rows(db: sqlite3.Connection, first: int, stop_key: int) -> Iterator[RawRow]:
    """Yield keys and columns of the entries in a range of keys, row by row, so that other threads run in between."""
    for row in db.execute(_SELECT_RANGE, (first, stop_key)):
        if not first <= row[0] < stop_key:
            raise damage_error("rows do not come in the order of their keys")
        first = row[0] + 1
        yield row


def _add_row(found: ReadResult, row: RawRow, session_id: str, key: int) -> None:
    entry = decode_entry_row(row, session_id, key)
    if entry is None:
        found.damaged.append(row[0])
    else:
        found.entries.append(entry)
