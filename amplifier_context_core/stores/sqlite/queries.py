"""Histories in a database: what each call of a store does to its rows.

All are functions of a connection. Those that write run inside a transaction of their caller, which has locked the
session. After an error the caller rolls the transaction back.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ...errors import StoreError
from ...transcript.entry import Entry
from ..codec import loads
from ..protocol import SessionInfo, index_range
from ..validation import check_index, no_session, session_exists
from ..word_index import has_fts5
from .driver import required_row
from .errors import damage_error, is_index_damage
from .rows import (
    ENTRY_COLUMNS,
    ENTRY_VALUES,
    MAX_SESSION_NUMBER,
    SESSION_COLUMNS,
    EntryRow,
    RawRow,
    SessionRow,
    decode_entry_row,
    decode_session_row,
    encode_entry_row,
    first_key,
)
from .schema import NOT_AT_SEQ, has_search_table

SLICE = 1_000  # entries of a long read between other tasks: some milliseconds
_MAX_VALUES = 400  # values in one statement; older SQLite takes 999 parameters
_last_update = 0

# Constants only: names of columns.
_INSERT = f"INSERT INTO entries(id, session, {ENTRY_COLUMNS}) VALUES (?, ?, {ENTRY_VALUES})"  # noqa: S608
_ARCHIVE = f"INSERT INTO archive(session, {ENTRY_COLUMNS}) SELECT ?1, {ENTRY_COLUMNS} - id + ?2 FROM entries \
WHERE id >= ?3 AND id < ?4 AND seq NOT IN (SELECT seq FROM temp.staying) ORDER BY id"  # noqa: S608
_SELECT_RANGE = f"SELECT id, {ENTRY_COLUMNS} FROM entries WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"  # noqa: S608
_SELECT_ARCHIVED = f"SELECT id, {ENTRY_COLUMNS} FROM archive WHERE session = ? AND id BETWEEN ? AND ? ORDER BY id"  # noqa: S608
_MARKS = ",".join("?" * _MAX_VALUES)
_SELECT_BY_SEQ = f"SELECT id, {ENTRY_COLUMNS} FROM entries WHERE session = ? AND seq IN ({_MARKS}) AND {NOT_AT_SEQ}"  # noqa: S608
_SELECT_BY_KEY = f"SELECT id, {ENTRY_COLUMNS} FROM entries WHERE id IN ({_MARKS}) AND NOT ({NOT_AT_SEQ})"  # noqa: S608
_UPDATE = "SET seq = ?, turn = ?, tokens = ?, origin = ?, extra = CAST(? AS TEXT), message = CAST(? AS TEXT), crc = ? \
WHERE id = ?"
_FORK = (
    "INSERT INTO entries(id, session, seq, turn, tokens, origin, extra, message, crc) SELECT id + ?1, ?2, seq, turn, \
tokens, CASE WHEN origin IS NULL THEN CAST(?3 AS TEXT) ELSE origin END, extra, message, crc + ?1 FROM entries \
WHERE id >= ?4 AND id < ?5 ORDER BY id"
)
_UPDATE_SESSION = f"UPDATE sessions SET {' = ?, '.join(SESSION_COLUMNS.split(', '))} = ? WHERE number = ?"  # noqa: S608


@dataclass(slots=True)
class ReadResult:
    """A slice of what was asked for.

    Attributes:
        entries: The intact entries.
        damaged: Keys of damaged or missing ones.
        left: Keys to read next.
        version: Number and edits of the session, which must be the same for the next slice.
    """

    entries: list[Entry] = field(default_factory=list[Entry])
    damaged: list[int] = field(default_factory=list[int])
    left: Sequence[int] = ()
    version: tuple[int, int] = (0, 0)


def find_session(db: sqlite3.Connection, session_id: str) -> SessionRow | None:
    """Return the row of a session; None without one.

    The index of session ids is not trusted if it finds none: the session would begin again.

    Raises:
        sqlite3.Error: The database is damaged, or cannot be read.
    """
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


def append(db: sqlite3.Connection, session_id: str, entries: Sequence[Entry]) -> None:
    """Append entries to a history, or begin one with them."""
    session = find_session(db, session_id) or _create(db, session_id)
    _add(db, session, session_id, entries, session.length)
    _touch(db, session)


def read(
    db: sqlite3.Connection,
    *,
    session_id: str,
    start: int = 0,
    stop: int | None = None,
    last: ReadResult | None = None,
    size: int | None = None,
) -> ReadResult | None:
    """Return the entries of a range of indexes, a slice of them.

    Args:
        db: The database.
        session_id: The session.
        start, stop: The indexes, as for a list.
        last: The slice before; None for the first one.
        size: Number of entries in the slice; None for all.

    Returns:
        None if the session was edited since the slice before.
    """
    session = find_session(db, session_id)
    if session is None:
        return ReadResult() if last is None else None
    wanted: Sequence[int] = ()
    if last is None:
        indexes = index_range(session.length, start, stop)
        wanted = range(session.key_of(indexes.start), session.key_of(indexes.stop)) if indexes else ()
    elif last.version == (session.number, session.edits):
        wanted = last.left
    else:
        return None
    part = wanted[:size]
    found = ReadResult(left=wanted[len(part) :], version=(session.number, session.edits))
    if part:
        _read_keys(db, session_id, part[0], part[-1] + 1, found)
    return found


def _read_keys(db: sqlite3.Connection, session_id: str, first: int, stop: int, found: ReadResult) -> None:
    for row in iterate_rows(db, first, stop):
        found.damaged.extend(range(first, row[0]))
        first = row[0] + 1
        _add_row(found, row, session_id, row[0])
    found.damaged.extend(range(first, stop))


def find(db: sqlite3.Connection, session_id: str, seqs: Sequence[int]) -> ReadResult:
    """Return the entries with these seqs, in the order of the history."""
    found, session = ReadResult(), find_session(db, session_id)
    if session is not None:
        wanted = sorted({seq for seq in seqs if 0 <= seq <= session.last_seq})
        for row in sorted(rows_by_seq(db, session, wanted), key=lambda row: row[0]):
            _add_row(found, row, session_id, row[0])
    return found


def rows_by_seq(db: sqlite3.Connection, session: SessionRow, seqs: Sequence[int]) -> list[RawRow]:
    """Return keys and columns of the history's entries with these seqs, in no order."""
    rows: list[RawRow] = []
    for start in range(0, len(seqs), _MAX_VALUES):
        part = list(seqs[start : start + _MAX_VALUES])
        part += [-1] * (_MAX_VALUES - len(part))  # padding, so that one statement serves all numbers of seqs
        rows += db.execute(_SELECT_BY_SEQ, (session.number, *part))
        rows += db.execute(_SELECT_BY_KEY, [first_key(session.number) + seq - 1 for seq in part])
    return rows


def archived(
    db: sqlite3.Connection, *, session_id: str, last: ReadResult | None = None, size: int | None = None
) -> ReadResult | None:
    """Return the archived entries, oldest replacement first, a slice of them. See `read`.

    Raises:
        sqlite3.Error: There are more or fewer than the session row says, or the database cannot be read.
    """
    session = find_session(db, session_id)
    if session is None:
        return ReadResult() if last is None else None
    if last is None:
        select = "SELECT id FROM archive WHERE session = ? ORDER BY id"
        wanted: Sequence[int] = [key for (key,) in db.execute(select, (session.number,))]
        _check_archive(session, len(wanted))
    elif last.version == (session.number, session.edits):
        wanted = last.left
    else:
        return None
    part = wanted[:size]
    found = ReadResult(left=wanted[len(part) :], version=(session.number, session.edits))
    if part:
        for row in db.execute(_SELECT_ARCHIVED, (session.number, part[0], part[-1])):
            _add_row(found, row, session_id, first_key(session.number))
    return found


def _check_archive(session: SessionRow, count: int) -> None:
    """Raise the driver's error for a damaged file if a session's archive does not hold this many entries."""
    if count != session.archived:
        raise damage_error(f"the archive of session {session.number} does not hold what it should")


def replace(db: sqlite3.Connection, session_id: str, keep: int, entries: Sequence[Entry], *, archive: bool) -> None:
    """Keep the first entries of a history, archive the others, and continue with new ones."""
    session = find_session(db, session_id)
    check_index(session_id, keep, session.length if session else 0)
    if session is None:
        if entries:
            append(db, session_id, entries)
        return
    if keep == session.length and not entries:
        return
    start_key, stop_key = session.key_of(keep), session.key_of(session.length)
    if stop_key > start_key:
        _mark_retained(db, [entry.seq for entry in entries])
        if archive:
            session.archived += db.execute(
                _ARCHIVE, (session.number, first_key(session.number), start_key, stop_key)
            ).rowcount
        session.size = max(0, session.size - _size(db, start_key, stop_key))
        db.execute("DELETE FROM entries WHERE id >= ? AND id < ?", (start_key, stop_key))
        if session.indexed > keep:
            remove_from_index(db, session, keep)
        session.edits += 1
    db.execute("DELETE FROM checkpoints WHERE session = ? AND covered > ?", (session.number, keep))
    _add(db, session, session_id, entries, keep)
    _touch(db, session)


def rewrite(db: sqlite3.Connection, session_id: str, entries: Sequence[Entry]) -> bool:
    """Replace entries by new ones with the same seqs, in history and archive. Return True if anything must be erased.

    That is so if a message changes, or may be among rows that a former version moved to the table `damaged`.
    """
    session = find_session(db, session_id)
    if session is None:
        return False
    erased = False
    seqs = {entry.seq for entry in entries}
    start = first_key(session.number)
    keys_by_table = {"entries": _keys(db, session, seqs), "archive": _archive_keys(db, session, seqs)}
    for entry in entries:
        for table, keys in keys_by_table.items():
            for key in keys.get(entry.seq, ()):
                row = encode_entry_row(entry, session_id, key if table == "entries" else start)
                (message,) = required_row(db.execute(f"SELECT message FROM {table} WHERE id = ?", (key,)))  # noqa: S608
                db.execute(f"UPDATE {table} {_UPDATE}", (*row, key))
                session.size += len(row[5]) - len(message) if table == "entries" else 0
                erased = erased or not _is_same_message(message, row, entry)
    if not seqs or seqs.difference(*keys_by_table.values()):
        erased = _delete_damaged(db, session) or erased
    if erased:
        db.execute("DELETE FROM checkpoints WHERE session = ?", (session.number,))
        _delete_damaged(db, session)
    session.edits += 1
    _touch(db, session)
    return erased


def _delete_damaged(db: sqlite3.Connection, session: SessionRow) -> bool:
    """Delete the damaged rows that a former version moved to a table: not even their seqs can be trusted."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'damaged'").fetchone() is None:
        return False
    return db.execute("DELETE FROM damaged WHERE session = ?", (session.number,)).rowcount > 0


def save_checkpoint(db: sqlite3.Connection, session_id: str, covered: int, data: bytes) -> None:
    """Save bytes that cover the beginning of a history."""
    session = find_session(db, session_id)
    check_index(session_id, covered, session.length if session else 0)
    session = session or _create(db, session_id)
    db.execute(
        "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)", (session.number, covered, zlib.crc32(data), data)
    )
    _touch(db, session)


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
    """True if the bytes of a checkpoint are as they were written."""
    return isinstance(data, bytes) and zlib.crc32(data) == crc


def fork(db: sqlite3.Connection, session_id: str, new_id: str, length: int | None) -> None:
    """Create a session that begins as another."""
    session = find_session(db, session_id)
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
    db.execute(_FORK, (to - start, child.number, session_id, start, start + child.length))
    child.size = session.size if count == session.length else _size(db, to, to + child.length)
    db.execute(
        "INSERT INTO checkpoints SELECT ?, covered, crc, data FROM checkpoints WHERE session = ? AND covered <= ?",
        (child.number, session.number, count),
    )
    _touch(db, child)


def delete(db: sqlite3.Connection, session_id: str) -> None:
    """Erase a session."""
    session = find_session(db, session_id)
    if session is None:
        return
    if session.indexed:
        remove_from_index(db, session, 0)
    start, stop_key = first_key(session.number), first_key(session.number + 1)
    db.execute("DELETE FROM entries WHERE id >= ? AND id < ?", (start, stop_key))
    _check_archive(session, db.execute("DELETE FROM archive WHERE session = ?", (session.number,)).rowcount)
    _delete_damaged(db, session)
    db.execute("DELETE FROM checkpoints WHERE session = ?", (session.number,))
    db.execute("DELETE FROM sessions WHERE number = ?", (session.number,))


def session_rows(db: sqlite3.Connection) -> Iterator[SessionRow]:
    """Yield the row of every session, the last changed first."""
    for row in db.execute(f"SELECT {SESSION_COLUMNS} FROM sessions ORDER BY updated DESC, number DESC"):  # noqa: S608 - constant
        yield decode_session_row(row)


def sessions(db: sqlite3.Connection) -> list[SessionInfo]:
    """Return all sessions, the last changed first, without their holders."""
    found: list[SessionInfo] = []
    for session in session_rows(db):
        when = datetime.fromtimestamp(session.updated / 1e6, UTC).isoformat(timespec="milliseconds")
        found.append(SessionInfo(session.session_id, session.length, when, session.size))
    return found


def remove_from_index(db: sqlite3.Connection, session: SessionRow, index: int) -> None:
    """Remove all entries from an index on from the search index."""
    start = first_key(session.number)
    if has_fts5(db):  # without FTS5 there is no search; a build with FTS5 fills the index again over stale entries
        try:
            db.execute("DELETE FROM search WHERE rowid >= ? AND rowid < ?", (start + index, start + session.indexed))
        except sqlite3.DatabaseError as problem:
            if not is_index_damage(problem):
                raise
            drop_index(db)
            index = 0
    session.indexed = index
    save_session_row(db, session)


def drop_index(db: sqlite3.Connection) -> None:
    """Drop the index; the next search fills it again.

    Raises:
        StoreError: This build of SQLite cannot remove the index.
    """
    if not has_search_table(db):
        return
    if not has_fts5(db):
        raise StoreError("this build of SQLite has no FTS5: it cannot erase from the search index; use one that has")
    db.execute("DROP TABLE search")
    for session in [session for session in session_rows(db) if session.indexed]:
        session.indexed = 0
        save_session_row(db, session)


def iterate_rows(db: sqlite3.Connection, first: int, stop_key: int, limit: int = -1) -> Iterator[RawRow]:
    """Yield keys and columns of the entries in a range of keys, row by row, so that other threads run in between.

    Args:
        db: The database.
        first: First key of the range.
        stop_key: The key after its last.
        limit: Maximum number of rows; -1 for all.

    Raises:
        sqlite3.Error: The table of entries is damaged, or cannot be read.
    """
    for row in db.execute(_SELECT_RANGE, (first, stop_key, limit)):
        if not first <= row[0] < stop_key:
            raise damage_error("rows do not come in the order of their keys")
        first = row[0] + 1
        yield row


def _create(db: sqlite3.Connection, session_id: str) -> SessionRow:
    (last,) = db.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'sessions'").fetchone()
    if (last or 0) >= MAX_SESSION_NUMBER:
        raise StoreError("the database has no session numbers left; use a new database file")
    session = SessionRow((last or 0) + 1, session_id)
    session.insert(db)
    return session


def _add(db: sqlite3.Connection, session: SessionRow, session_id: str, entries: Sequence[Entry], stop: int) -> None:
    """Write entries from an index on."""
    key = session.key_of(stop)
    for entry in entries:
        row = encode_entry_row(entry, session_id, key)
        db.execute(_INSERT, (key, session.number, *row))
        key += 1
        session.last_seq = max(session.last_seq, entry.seq)
        session.size += len(row[5])
    session.length = stop + len(entries)


def _size(db: sqlite3.Connection, first: int, stop_key: int) -> int:
    sizes = "SELECT total(length(CAST(message AS BLOB))) FROM entries WHERE id >= ? AND id < ?"
    return int(db.execute(sizes, (first, stop_key)).fetchone()[0])


def _keys(db: sqlite3.Connection, session: SessionRow, seqs: set[int]) -> dict[int, list[int]]:
    """Return the keys of the history's entries with these seqs. No index is used: it may miss one."""
    start = first_key(session.number)
    rows = db.execute("SELECT id, seq FROM entries WHERE id >= ? AND id < ?", (start, start + session.length))
    return _by_seq(rows, seqs)


def _archive_keys(db: sqlite3.Connection, session: SessionRow, seqs: set[int]) -> dict[int, list[int]]:
    """Return the keys of the archive's entries with these seqs."""
    rows = db.execute("SELECT id, seq FROM archive WHERE session = ?", (session.number,)).fetchall()
    _check_archive(session, len(rows))
    return _by_seq(rows, seqs)


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
    """Save a session row."""
    db.execute(_UPDATE_SESSION, (*session.values, session.number))


def _add_row(found: ReadResult, row: RawRow, session_id: str, key: int) -> None:
    entry = decode_entry_row(row[1:], session_id, key)
    if entry is None:
        found.damaged.append(row[0])
    else:
        found.entries.append(entry)


def _mark_retained(db: sqlite3.Connection, seqs: Sequence[int]) -> None:
    db.execute("CREATE TEMP TABLE IF NOT EXISTS staying(seq INTEGER PRIMARY KEY)")
    db.execute("DELETE FROM temp.staying")
    db.executemany("INSERT OR IGNORE INTO temp.staying VALUES (?)", ((seq,) for seq in seqs))


def _is_same_message(message: bytes, row: EntryRow, entry: Entry) -> bool:
    """True if the message is the same as before, as far as it can be read."""
    if message == row[5]:
        return True
    try:
        return bool(loads(message) == entry.message)
    except (TypeError, ValueError, RecursionError):
        return False
