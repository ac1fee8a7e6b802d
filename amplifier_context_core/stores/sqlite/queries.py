"""Histories in a database: what each call of a store does to its rows.

Functions of a connection. Those that change something are called inside a transaction of their caller, who has made
sure that the session may be changed; an error means that the transaction is taken back.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ...errors import StoreError
from ...transcript.transcript import Entry
from ..codec import loads
from ..protocol import SessionInfo
from ..validation import check_index, no_session, session_exists
from .driver import the_row
from .errors import damage
from .leases import holder_of, holders
from .rows import (
    COLUMNS,
    LARGEST_NUMBER,
    SESSION_COLUMNS,
    VALUES,
    EntryRow,
    RawRow,
    SessionRow,
    entry_in,
    first_key,
    head_in,
    row_of,
)
from .schema import ELSEWHERE, has_fts5

_AT_ONCE = 400  # values in one statement; older SQLite takes 999 parameters
_MISSED = 1_000  # entries that may be missing at an end and are found out when it is read
_last_stamp = 0

# Constants only: names of columns.
_INSERT = f"INSERT INTO entries(id, session, {COLUMNS}) VALUES (?, ?, {VALUES})"  # noqa: S608
_ARCHIVE = f"INSERT INTO archive(session, {COLUMNS}) SELECT ?1, {COLUMNS} - id + ?2 FROM entries \
WHERE id >= ?3 AND id < ?4 AND seq NOT IN (SELECT seq FROM temp.staying) ORDER BY id"  # noqa: S608
_RANGE = f"SELECT id, {COLUMNS} FROM entries WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"  # noqa: S608
_ARCHIVED = f"SELECT id, {COLUMNS} FROM archive WHERE session = ? ORDER BY id"  # noqa: S608
_MARKS = ",".join("?" * _AT_ONCE)
_BY_SEQ = f"SELECT id, {COLUMNS} FROM entries WHERE session = ? AND seq IN ({_MARKS}) AND {ELSEWHERE}"  # noqa: S608
_BY_KEY = f"SELECT id, {COLUMNS} FROM entries WHERE id IN ({_MARKS}) AND NOT ({ELSEWHERE})"  # noqa: S608
_UPDATE = "SET seq = ?, turn = ?, tokens = ?, origin = ?, extra = CAST(? AS TEXT), message = CAST(? AS TEXT), crc = ? \
WHERE id = ?"
_FORK = (
    "INSERT INTO entries(id, session, seq, turn, tokens, origin, extra, message, crc) SELECT id + ?1, ?2, seq, turn, \
tokens, CASE WHEN origin IS NULL THEN CAST(?3 AS TEXT) ELSE origin END, extra, message, crc + ?1 FROM entries \
WHERE id >= ?4 AND id < ?5 ORDER BY id"
)
_KEEP = f"UPDATE sessions SET {' = ?, '.join(SESSION_COLUMNS.split(', '))} = ? WHERE number = ?"  # noqa: S608
_SET_ASIDE = f"INSERT INTO damaged(session, found, came, at, {COLUMNS}) SELECT session, ?, ?, ?, {COLUMNS} FROM "  # noqa: S608


@dataclass(slots=True)
class ReadResult:
    """What was read: sound entries, and the keys where there should be more."""

    entries: list[Entry] = field(default_factory=list[Entry])
    damaged: list[int] = field(default_factory=list[int])


def head_of(db: sqlite3.Connection, session_id: str) -> SessionRow | None:
    """Return what is known of a session; None when there is none.

    The index of the ids is not believed alone, neither where it finds a row nor where it finds none: every session
    that is written to has been claimed, and its claim is kept in another table.

    Raises:
        sqlite3.Error: the database is damaged, or cannot be read.
    """
    row = db.execute(f"SELECT {SESSION_COLUMNS} FROM sessions WHERE id = ?", (session_id,)).fetchone()  # noqa: S608 - constant
    if row is not None:
        head = head_in(row)
        if head.session_id != session_id:
            raise damage("the index of session ids leads to another session")
        return head
    if holder_of(db, session_id) is not None:
        row = db.execute("SELECT 1 FROM sessions NOT INDEXED WHERE id = ?", (session_id,)).fetchone()
        if row is not None:
            raise damage("the index of session ids misses one")
    return None


def check_none(db: sqlite3.Connection, session_id: str) -> None:
    """Raise what the driver raises for a damaged file if a session without a row may have had one.

    That is so where it was claimed before and the row of any session is damaged: its own may be that one.
    """
    if holder_of(db, session_id) is not None:
        for _ in heads(db):
            pass


def check_end(db: sqlite3.Connection, head: SessionRow) -> None:
    """Raise what the driver raises for a damaged file if a history does not end where it is said to end."""
    start, behind = first_key(head.number), first_key(head.number + 1)
    newest = db.execute("SELECT id FROM entries WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1", (start, behind))
    (key,) = newest.fetchone() or (start - 1,)
    missing = range(key - start + 1, head.stop)
    if key - start >= head.stop or len(missing) > len(head.holes) + _MISSED:
        raise damage(f"session {head.number} ends elsewhere than it should")


def append(db: sqlite3.Connection, session_id: str, entries: Sequence[Entry]) -> None:
    """Add entries at the end of a history, which begins with them if there is none."""
    head = head_of(db, session_id) or _create(db, session_id)
    _add(db, head, session_id, entries, head.stop)
    _touch(db, head)


def read(db: sqlite3.Connection, session_id: str, head: SessionRow, wanted: range) -> ReadResult:
    """The entries of these places, without the damaged ones."""
    found = ReadResult()
    if not wanted:
        return found
    first, behind = head.key(wanted.start), head.key(wanted.stop - 1) + 1
    start, holes = first_key(head.number), set(head.holes)
    due = first
    for row in rows_between(db, first, behind):
        while due < row[0]:
            if due - start not in holes:
                found.damaged.append(due)
            due += 1
        due += 1
        _take(found, row, session_id, row[0])
    found.damaged.extend(key for key in range(due, behind) if key - start not in holes)
    return found


def find(db: sqlite3.Connection, session_id: str, head: SessionRow, seqs: Sequence[int]) -> ReadResult:
    """Return the entries with these seqs, in the order of the history.

    Raises:
        sqlite3.Error: the index of the seqs is damaged, or the database cannot be read.
    """
    found = ReadResult()
    rows: list[RawRow] = []
    wanted = sorted({seq for seq in seqs if 0 <= seq <= head.last_seq})
    for start in range(0, len(wanted), _AT_ONCE):
        part = wanted[start : start + _AT_ONCE]
        part += [-1] * (_AT_ONCE - len(part))  # one statement for all numbers of seqs
        rows += db.execute(_BY_SEQ, (head.number, *part))
        rows += db.execute(_BY_KEY, [first_key(head.number) + seq - 1 for seq in part])
    for row in sorted(rows, key=lambda row: row[0]):
        _take(found, row, session_id, row[0])
    missed = set(wanted).difference(entry.seq for entry in found.entries)
    if missed and not found.damaged:
        found.damaged = _missing(db, head, missed)
    return found


def _missing(db: sqlite3.Connection, head: SessionRow, seqs: set[int]) -> list[int]:
    """Return the keys of a history that have no row; none of these seqs may be in it. No index is asked.

    Raises:
        sqlite3.Error: one of the seqs is in it, so the index of the seqs is damaged; or it cannot be read.
    """
    start = first_key(head.number)
    missing = {start + position for position in range(head.stop)}.difference(start + hole for hole in head.holes)
    for key, seq in db.execute("SELECT id, seq FROM entries WHERE id >= ? AND id < ?", (start, start + head.stop)):
        missing.discard(key)
        if seq in seqs:
            raise damage("the index of the seqs misses some")
    return sorted(missing)


def archived(db: sqlite3.Connection, session_id: str, head: SessionRow) -> ReadResult:
    """Return what was replaced, oldest replacement first.

    Raises:
        sqlite3.Error: there are more or fewer than there should be, or the database cannot be read.
    """
    found = ReadResult()
    for row in db.execute(_ARCHIVED, (head.number,)):
        _take(found, row, session_id, first_key(head.number))
    _check_archive(head, len(found.entries) + len(found.damaged))
    return found


def _check_archive(head: SessionRow, count: int) -> None:
    """Raise what the driver raises for a damaged file if the archive of a session does not hold so many entries."""
    if count != head.archived:
        raise damage(f"the archive of session {head.number} does not hold what it should")


def replace(db: sqlite3.Connection, session_id: str, keep: int, entries: Sequence[Entry], *, archive: bool) -> None:
    """Keep a history up to a place; it goes on with these entries, and what was there is archived."""
    head = head_of(db, session_id)
    check_index(session_id, keep, head.length if head else 0)
    if head is None:
        if entries:
            append(db, session_id, entries)
        return
    if keep == head.length and not entries:
        return
    stop = head.position(keep)
    first, behind = first_key(head.number) + stop, first_key(head.number) + head.stop
    if behind > first:
        _stay(db, [entry.seq for entry in entries])
        if archive:
            head.archived += db.execute(_ARCHIVE, (head.number, first_key(head.number), first, behind)).rowcount
        head.size = max(0, head.size - _size(db, first, behind))
        db.execute("DELETE FROM entries WHERE id >= ? AND id < ?", (first, behind))
        if head.indexed > stop:
            unindex(db, head, stop)
    head.holes = [hole for hole in head.holes if hole < stop]
    db.execute("DELETE FROM checkpoints WHERE session = ? AND covered > ?", (head.number, keep))
    _add(db, head, session_id, entries, stop)
    _touch(db, head)


def rewrite(db: sqlite3.Connection, session_id: str, entries: Sequence[Entry]) -> bool:
    """Put these in place of the entries of the same seqs, in history and archive. True if anything is to be erased.

    That is so where a message is another now, or may be among the damaged rows that were put aside.
    """
    head = head_of(db, session_id)
    if head is None:
        return False
    erased = False
    known = {entry.seq for entry in entries}
    start = first_key(head.number)
    places = {"entries": _keys(db, head, known), "archive": _old_keys(db, head, known)}
    for entry in entries:
        for table, keys in places.items():
            for key in keys.get(entry.seq, ()):
                row = row_of(entry, session_id, key if table == "entries" else start)
                (message,) = the_row(db.execute(f"SELECT message FROM {table} WHERE id = ?", (key,)))  # noqa: S608
                db.execute(f"UPDATE {table} {_UPDATE}", (*row, key))
                head.size += len(row[5]) - len(message) if table == "entries" else 0
                erased = erased or not _same(message, row, entry)
    if not known or known.difference(*places.values()):
        erased = erased or _has_damaged(db, head)
    if erased:
        db.execute("DELETE FROM checkpoints WHERE session = ?", (head.number,))
        # All of them: of a damaged row not even the seq can be trusted.
        db.execute("DELETE FROM damaged WHERE session = ?", (head.number,))
    _touch(db, head)
    return erased


def _has_damaged(db: sqlite3.Connection, head: SessionRow) -> bool:
    return db.execute("SELECT 1 FROM damaged WHERE session = ? LIMIT 1", (head.number,)).fetchone() is not None


def save_checkpoint(db: sqlite3.Connection, session_id: str, covered: int, data: bytes) -> None:
    """Keep bytes that stand for a beginning of a history."""
    head = head_of(db, session_id)
    check_index(session_id, covered, head.length if head else 0)
    head = head or _create(db, session_id)
    db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)", (head.number, covered, zlib.crc32(data), data))
    _touch(db, head)


def load_checkpoint(db: sqlite3.Connection, head: SessionRow) -> tuple[bytes | None, bool]:
    """What was saved last, and whether that is damaged."""
    row = db.execute("SELECT data, crc FROM checkpoints WHERE session = ?", (head.number,)).fetchone()
    if row is None:
        return None, False
    data, crc = row
    sound = isinstance(data, bytes) and zlib.crc32(data) == crc
    return (data, False) if sound else (None, True)


def fork(db: sqlite3.Connection, session_id: str, new_id: str, length: int | None) -> None:
    """A new session that begins as another did."""
    head = head_of(db, session_id)
    if head is None:
        raise no_session(session_id)
    if head_of(db, new_id) is not None:
        raise session_exists(new_id)
    count = head.length if length is None else length
    check_index(session_id, count, head.length)
    child = _create(db, new_id)
    child.stop = head.position(count)
    child.holes = [hole for hole in head.holes if hole < child.stop]
    child.last_seq = head.last_seq
    start, to = first_key(head.number), first_key(child.number)
    db.execute(_FORK, (to - start, child.number, session_id, start, start + child.stop))
    child.size = head.size if count == head.length else _size(db, to, to + child.stop)
    db.execute(
        "INSERT INTO checkpoints SELECT ?, covered, crc, data FROM checkpoints WHERE session = ? AND covered <= ?",
        (child.number, head.number, count),
    )
    _touch(db, child)


def delete(db: sqlite3.Connection, session_id: str) -> None:
    """Erase a session."""
    head = head_of(db, session_id)
    db.execute("DELETE FROM leases WHERE session = ?", (session_id,))
    db.execute("DELETE FROM repairs WHERE session = ?", (session_id,))
    if head is None:
        return
    if head.indexed:
        unindex(db, head, 0)
    start, behind = first_key(head.number), first_key(head.number + 1)
    db.execute("DELETE FROM entries WHERE id >= ? AND id < ?", (start, behind))
    _check_archive(head, db.execute("DELETE FROM archive WHERE session = ?", (head.number,)).rowcount)
    for table in ("checkpoints", "damaged"):
        db.execute(f"DELETE FROM {table} WHERE session = ?", (head.number,))  # noqa: S608 - constants
    db.execute("DELETE FROM sessions WHERE number = ?", (head.number,))


def heads(db: sqlite3.Connection) -> Iterator[SessionRow]:
    """Yield what is known of every session, the last changed first."""
    for row in db.execute(f"SELECT {SESSION_COLUMNS} FROM sessions ORDER BY updated DESC, number DESC"):  # noqa: S608 - constant
        yield head_in(row)


def sessions(db: sqlite3.Connection) -> list[SessionInfo]:
    """All sessions, the last changed first."""
    writing = holders(db)
    found: list[SessionInfo] = []
    for head in heads(db):
        when = datetime.fromtimestamp(head.updated / 1e6, UTC).isoformat(timespec="milliseconds")
        found.append(SessionInfo(head.session_id, head.length, when, head.size, writing.get(head.session_id, "")))
    return found


def set_aside(db: sqlite3.Connection, session_id: str, keys: Sequence[int], came: str) -> int:
    """Take damaged rows out of a history (`entries`) or the archive; they are kept in a table of their own.

    A checkpoint that stands for one of them is gone: it stands for so many entries, and there are fewer now.

    Returns:
        How many there were.
    """
    head = head_of(db, session_id)
    if head is None:
        return 0
    table = "entries" if came == "entries" else "archive"
    start, holes, done = first_key(head.number), set(head.holes), 0
    for key in keys:
        row = db.execute(f"SELECT id, {COLUMNS} FROM {table} WHERE id = ?", (key,)).fetchone()  # noqa: S608 - see above
        if row is not None and entry_in(row[1:], session_id, key if came == "entries" else start) is not None:
            continue  # mended meanwhile
        if row is not None:
            db.execute(f"{_SET_ASIDE} {table} WHERE id = ?", (time.time(), came, key - start, key))
            db.execute(f"DELETE FROM {table} WHERE id = ?", (key,))  # noqa: S608 - see above
        if came == "entries" and 0 <= key - start < head.stop and key - start not in holes:
            covered = head.place(key - start)
            db.execute("DELETE FROM checkpoints WHERE session = ? AND covered > ?", (head.number, covered))
            if head.indexed > key - start and has_fts5(db):
                db.execute("DELETE FROM search WHERE rowid = ?", (key,))
            holes.add(key - start)
            done += 1
        elif came == "archive" and row is not None:
            head.archived -= 1
            done += 1
    head.holes = sorted(holes)
    _touch(db, head)
    return done


def unindex(db: sqlite3.Connection, head: SessionRow, position: int) -> None:
    """What lies at a position and after it is not in the search index any more."""
    start = first_key(head.number)
    if has_fts5(db):  # without it nobody can search; who can again will fill the index over what is stale
        db.execute("DELETE FROM search WHERE rowid >= ? AND rowid < ?", (start + position, start + head.indexed))
    head.indexed = position
    keep(db, head)


def rows_between(db: sqlite3.Connection, first: int, behind: int, limit: int = -1) -> Iterator[RawRow]:
    """Yield keys and columns of the entries of a range of keys, row by row: between two, other threads get a turn.

    Args:
        db: the database.
        first: key of the range.
        behind: the key after its last.
        limit: rows at the most; -1 for all.

    Raises:
        sqlite3.Error: the tree of the entries is damaged, or cannot be read.
    """
    for row in db.execute(_RANGE, (first, behind, limit)):
        if not first <= row[0] < behind:
            raise damage("rows do not come in the order of their keys")
        first = row[0] + 1
        yield row


def _create(db: sqlite3.Connection, session_id: str) -> SessionRow:
    made = db.execute("INSERT INTO sessions(id) VALUES (?)", (session_id,)).lastrowid or 0
    if made > LARGEST_NUMBER:
        raise StoreError("the database has held all the sessions it can number; begin another one")
    return SessionRow(made, session_id)


def _add(db: sqlite3.Connection, head: SessionRow, session_id: str, entries: Sequence[Entry], stop: int) -> None:
    """Write entries from a position on."""
    key = first_key(head.number) + stop
    for entry in entries:
        row = row_of(entry, session_id, key)
        db.execute(_INSERT, (key, head.number, *row))
        key += 1
        head.last_seq = max(head.last_seq, entry.seq)
        head.size += len(row[5])
    head.stop = stop + len(entries)


def _size(db: sqlite3.Connection, first: int, behind: int) -> int:
    sizes = "SELECT total(length(CAST(message AS BLOB))) FROM entries WHERE id >= ? AND id < ?"
    return int(db.execute(sizes, (first, behind)).fetchone()[0])


def _keys(db: sqlite3.Connection, head: SessionRow, seqs: set[int]) -> dict[int, list[int]]:
    """Return the keys of the history's entries with these seqs. No index is asked: what it missed would be kept."""
    start = first_key(head.number)
    rows = db.execute("SELECT id, seq FROM entries WHERE id >= ? AND id < ?", (start, start + head.stop))
    return _by_seq(rows, seqs)


def _old_keys(db: sqlite3.Connection, head: SessionRow, seqs: set[int]) -> dict[int, list[int]]:
    """Return the keys of the archive's entries with these seqs."""
    rows = db.execute("SELECT id, seq FROM archive WHERE session = ?", (head.number,)).fetchall()
    _check_archive(head, len(rows))
    return _by_seq(rows, seqs)


def _by_seq(rows: Iterable[tuple[int, int]], seqs: set[int]) -> dict[int, list[int]]:
    keys: dict[int, list[int]] = {}
    for key, seq in rows:
        if seq in seqs:
            keys.setdefault(seq, []).append(key)
    return keys


def _touch(db: sqlite3.Connection, head: SessionRow) -> None:
    """Write down what is known of a session, and that it changed now: later than any change before."""
    global _last_stamp
    head.updated = _last_stamp = max(time.time_ns() // 1000, _last_stamp + 1)
    keep(db, head)


def keep(db: sqlite3.Connection, head: SessionRow) -> None:
    """Write down what is known of a session."""
    db.execute(_KEEP, (*head.values, head.number))


def _take(found: ReadResult, row: RawRow, session_id: str, key: int) -> None:
    entry = entry_in(row[1:], session_id, key)
    if entry is None:
        found.damaged.append(row[0])
    else:
        found.entries.append(entry)


def _stay(db: sqlite3.Connection, seqs: Sequence[int]) -> None:
    db.execute("CREATE TEMP TABLE IF NOT EXISTS staying(seq INTEGER PRIMARY KEY)")
    db.execute("DELETE FROM temp.staying")
    db.executemany("INSERT OR IGNORE INTO temp.staying VALUES (?)", ((seq,) for seq in seqs))


def _same(message: bytes, row: EntryRow, entry: Entry) -> bool:
    """Is the message the same as before, as far as anybody can tell?"""
    if message == row[5]:
        return True
    try:
        return bool(loads(message) == entry.message)
    except (TypeError, ValueError, RecursionError):
        return False
