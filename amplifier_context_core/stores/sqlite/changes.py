"""Histories in a database: what each call of a store changes in its rows.

All are functions of a connection, and run inside a transaction of their caller, which has locked the session. After an
error the caller rolls the transaction back.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Sequence

from ...errors import StoreError
from ...transcript.entry import Entry
from ..validation import check_index, no_session, session_exists
from .driver import required_row
from .errors import is_index_damage
from .queries import check_archive, find_session, session_rows
from .rows import (
    ENTRY_COLUMNS,
    ENTRY_VALUES,
    MAX_SESSION_NUMBER,
    SESSION_COLUMNS,
    SessionRow,
    encode_entry_row,
    first_key,
)
from .schema import SEARCH_TABLES, can_index, has_table

_last_update = 0
_INSERT = f"INSERT INTO entries(id, session, {ENTRY_COLUMNS}) VALUES (?, ?, {ENTRY_VALUES})"  # noqa: S608
_ARCHIVE = f"INSERT INTO archive(session, {ENTRY_COLUMNS}) SELECT ?1, {ENTRY_COLUMNS} - id + ?2 FROM entries \
WHERE id >= ?3 AND id < ?4 AND seq NOT IN (SELECT value FROM json_each(?5)) ORDER BY id"  # noqa: S608
_UPDATE = "SET seq = ?, turn = ?, tokens = ?, origin = ?, extra = CAST(? AS TEXT), message = CAST(? AS TEXT), crc = ? \
WHERE id = ?"
_SELECT_TO_FORK = (
    "SELECT id + ?1, ?2, seq, turn, tokens, coalesce(origin, CAST(?3 AS TEXT)), extra, message, crc + ?1 FROM entries "
    "WHERE id >= ?4 AND id < ?5 ORDER BY id"
)
_INSERT_ARCHIVED = f"INSERT INTO archive(session, {ENTRY_COLUMNS}) VALUES (?, {ENTRY_VALUES})"  # noqa: S608
_UPDATE_SESSION = f"UPDATE sessions SET {' = ?, '.join(SESSION_COLUMNS.split(', '))} = ? WHERE number = ?"  # noqa: S608


def append(db: sqlite3.Connection, session_id: str, entries: Sequence[Entry]) -> list[bytes]:
    """Return the new messages as they are stored."""
    session = find_session(db, session_id) or _create(db, session_id)
    added = _add(db, session, session_id, entries, session.length)
    _touch(db, session)
    return added


def load(
    db: sqlite3.Connection,
    session_id: str,
    entries: Sequence[Entry],
    archived: Sequence[Entry] = (),
    *,
    last_seq: int = 0,
    updated: int = 0,
) -> None:
    """Create a session from what another store kept of it."""
    session = _create(db, session_id)
    _add(db, session, session_id, entries, 0)
    start = first_key(session.number)
    rows = ((session.number, *encode_entry_row(entry, session_id, start)) for entry in archived)
    db.executemany(_INSERT_ARCHIVED, rows)
    session.archived = len(archived)
    session.last_seq = max(session.last_seq, last_seq)
    session.updated = updated
    save_session_row(db, session)


def replace(
    db: sqlite3.Connection, session_id: str, keep: int, entries: Sequence[Entry], *, archive: bool
) -> list[bytes]:
    """Keep the first entries of a history, archive the others, and continue with new ones. Return the messages of these
    as they are stored.
    """
    session = find_session(db, session_id)
    check_index(session_id, keep, session.length if session else 0)
    if session is None:
        return append(db, session_id, entries) if entries else []
    if keep == session.length and not entries:
        return []
    start_key, stop_key = session.key_of(keep), session.key_of(session.length)
    if stop_key > start_key:
        if archive:
            staying = json.dumps([entry.seq for entry in entries])
            values = (session.number, first_key(session.number), start_key, stop_key, staying)
            session.archived += db.execute(_ARCHIVE, values).rowcount
        session.size = max(0, session.size - _size(db, start_key, stop_key))
        db.execute("DELETE FROM entries WHERE id >= ? AND id < ?", (start_key, stop_key))
        # What the index holds of later entries is not found, and the next search replaces it. What is kept nowhere else
        # goes now.
        session.indexed = min(session.indexed, keep)
        if not archive and not _removed_from_index(db, start_key, stop_key):
            session.indexed = 0
    db.execute("DELETE FROM checkpoints WHERE session = ? AND covered > ?", (session.number, keep))
    added = _add(db, session, session_id, entries, keep)
    _touch(db, session)
    return added


def rewrite(db: sqlite3.Connection, session_id: str, entries: Sequence[Entry]) -> tuple[bool, bool]:
    """Replace entries by new ones with the same seqs, in history and archive.

    Return whether a message changes, so that the former one must be erased; and whether one may be among quarantined
    bytes: a seq is kept nowhere, or none is given.
    """
    session = find_session(db, session_id)
    if session is None:
        return False, False
    erased = False
    seqs = {entry.seq for entry in entries}
    start = first_key(session.number)
    archived = db.execute("SELECT id, seq FROM archive WHERE session = ?", (session.number,)).fetchall()
    check_archive(session, len(archived))
    # By key: the index of seqs may miss one.
    history = db.execute("SELECT id, seq FROM entries WHERE id >= ? AND id < ?", (start, start + session.length))
    keys_by_table = {"entries": _by_seq(history, seqs), "archive": _by_seq(archived, seqs)}
    for entry in entries:
        for table, keys in keys_by_table.items():
            for key in keys.get(entry.seq, ()):
                row = encode_entry_row(entry, session_id, key if table == "entries" else start)
                (message,) = required_row(db.execute(f"SELECT message FROM {table} WHERE id = ?", (key,)))  # noqa: S608
                db.execute(f"UPDATE {table} {_UPDATE}", (*row, key))
                session.size += len(row[5]) - len(message) if table == "entries" else 0
                erased = erased or message != row[5]
    if erased:
        db.execute("DELETE FROM checkpoints WHERE session = ?", (session.number,))
    _touch(db, session)
    return erased, not seqs or bool(seqs.difference(*keys_by_table.values()))


def save_checkpoint(db: sqlite3.Connection, session_id: str, covered: int, data: bytes) -> None:
    session = find_session(db, session_id)
    check_index(session_id, covered, session.length if session else 0)
    session = session or _create(db, session_id)
    db.execute(
        "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)", (session.number, covered, zlib.crc32(data), data)
    )
    _touch(db, session)


def fork(
    db: sqlite3.Connection,
    session_id: str,
    new_id: str,
    length: int | None,
    source: sqlite3.Connection | None = None,
) -> None:
    """Create a session that begins as another, of this database or of `source`."""
    source = source or db
    session = find_session(source, session_id)
    if session is None:
        raise no_session(session_id)
    if find_session(db, new_id) is not None:
        raise session_exists(new_id)
    count = session.length if length is None else length
    check_index(session_id, count, session.length)
    child = _create(db, new_id)
    child.length = count
    child.last_seq = session.last_seq
    start, to = first_key(session.number), first_key(child.number)
    values = (to - start, child.number, session_id.encode(), start, start + child.length)
    if source is db:  # twice as fast
        db.execute(f"INSERT INTO entries(id, session, {ENTRY_COLUMNS}) {_SELECT_TO_FORK}", values)
    else:
        db.executemany(_INSERT, source.execute(_SELECT_TO_FORK, values))
    child.size = session.size if count == session.length else _size(db, to, to + child.length)
    checkpoint = source.execute(
        "SELECT ?, covered, crc, data FROM checkpoints WHERE session = ? AND covered <= ?",
        (child.number, session.number, count),
    ).fetchone()
    if checkpoint is not None:
        db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?)", checkpoint)
    _touch(db, child)


def delete(db: sqlite3.Connection, session_id: str) -> bool:
    """Delete the rows of a session. Return False if there is none."""
    session = find_session(db, session_id)
    if session is None:
        return False
    start, stop_key = first_key(session.number), first_key(session.number + 1)
    if has_indexed(db, start, stop_key):
        drop_index(db)  # rows that are removed from it leave their words
    db.execute("DELETE FROM entries WHERE id >= ? AND id < ?", (start, stop_key))
    check_archive(session, db.execute("DELETE FROM archive WHERE session = ?", (session.number,)).rowcount)
    db.execute("DELETE FROM checkpoints WHERE session = ?", (session.number,))
    db.execute("DELETE FROM sessions WHERE number = ?", (session.number,))
    return True


def has_indexed(db: sqlite3.Connection, start: int, stop_key: int) -> bool:
    """True if the search index holds texts of some of these keys, perhaps of entries that are gone."""
    select = "SELECT 1 FROM words_content WHERE id >= ? AND id < ? LIMIT 1"
    return has_table(db, "words") and db.execute(select, (start, stop_key)).fetchone() is not None


def _removed_from_index(db: sqlite3.Connection, start: int, stop_key: int) -> bool:
    """Remove the texts of these keys from the search index. False if that was damaged, and is dropped."""
    if not can_index(db) or not has_indexed(db, start, stop_key):
        return True
    try:
        for table in SEARCH_TABLES:
            db.execute(f"DELETE FROM {table} WHERE rowid >= ? AND rowid < ?", (start, stop_key))  # noqa: S608 - constant
    except sqlite3.DatabaseError as problem:
        if not is_index_damage(problem):
            raise
        drop_index(db)
        return False
    return True


def drop_index(db: sqlite3.Connection) -> None:
    """Drop the index, also that of a former version; the next search fills it again. Raise `StoreError` if this build
    of SQLite cannot remove it.
    """
    tables = [table for table in (*SEARCH_TABLES, "search") if has_table(db, table)]
    if tables and not can_index(db):
        raise StoreError("this build of SQLite has no FTS5: it cannot erase from the search index; use one that has")
    for table in tables:
        db.execute(f"DROP TABLE {table}")
    for session in [session for session in session_rows(db) if session.indexed]:
        session.indexed = 0
        save_session_row(db, session)


def _create(db: sqlite3.Connection, session_id: str) -> SessionRow:
    (last,) = db.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'sessions'").fetchone()
    if (last or 0) >= MAX_SESSION_NUMBER:
        raise StoreError("the database has no session numbers left; use a new database file")
    session = SessionRow((last or 0) + 1, session_id)
    session.insert(db)
    return session


def _add(
    db: sqlite3.Connection, session: SessionRow, session_id: str, entries: Sequence[Entry], stop: int
) -> list[bytes]:
    added: list[bytes] = []
    key = session.key_of(stop)
    for entry in entries:
        row = encode_entry_row(entry, session_id, key)
        db.execute(_INSERT, (key, session.number, *row))
        key += 1
        session.last_seq = max(session.last_seq, entry.seq)
        session.size += len(row[5])
        added.append(row[5])
    session.length = stop + len(entries)
    return added


def _size(db: sqlite3.Connection, first: int, stop_key: int) -> int:
    sizes = "SELECT total(length(CAST(message AS BLOB))) FROM entries WHERE id >= ? AND id < ?"
    return int(db.execute(sizes, (first, stop_key)).fetchone()[0])


def _by_seq(rows: Iterable[tuple[int, int]], seqs: set[int]) -> dict[int, list[int]]:
    keys: dict[int, list[int]] = {}
    for key, seq in rows:
        if seq in seqs:
            keys.setdefault(seq, []).append(key)
    return keys


def _touch(db: sqlite3.Connection, session: SessionRow) -> None:
    """Save a session row with the current time; it is later than that of any change before."""
    global _last_update
    session.updated = _last_update = max(time.time_ns() // 1000, _last_update + 1)
    save_session_row(db, session)


def save_session_row(db: sqlite3.Connection, session: SessionRow) -> None:
    db.execute(_UPDATE_SESSION, (*session.values, session.number))
