"""Histories in a database: what each call of a store does to its rows.

Functions of a connection. Those that change something are called inside a transaction of their caller, who has made
sure that the session may be changed; an error means that the transaction is taken back.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ...errors import StoreError
from ...transcript import Entry
from ..checks import check_within, no_session, session_exists
from ..protocol import SessionInfo
from ..rows import loads
from .faults import damage
from .leases import holders
from .rows import (
    COLUMNS,
    VALUES,
    Found,
    Head,
    Row,
    entry_in,
    first_key,
    holes_of,
    holes_text,
    position_of,
    row_of,
)
from .schema import ELSEWHERE, POSITION_BITS, POSITIONS, has_fts5

_AT_ONCE = 400  # values in one statement; older SQLite takes 999 parameters
_MISSED = 1_000  # entries that may be missing at an end and are found out when it is read
_last_stamp = 0

# Constants only: names of columns.
_INSERT = f"INSERT INTO entries(id, session, {COLUMNS}) VALUES (?, ?, {VALUES})"  # noqa: S608
_ARCHIVE = f"INSERT INTO archive(session, {COLUMNS}) SELECT session, {COLUMNS} - (id & {POSITIONS}) FROM entries \
WHERE id >= ? AND id < ? AND seq NOT IN (SELECT seq FROM temp.staying) ORDER BY id"  # noqa: S608
_RANGE = f"SELECT id, {COLUMNS} FROM entries WHERE id >= ? AND id < ? ORDER BY id"  # noqa: S608
_ARCHIVED = f"SELECT id, {COLUMNS} FROM archive WHERE session = ? ORDER BY id"  # noqa: S608
_MARKS = ",".join("?" * _AT_ONCE)
_BY_SEQ = f"SELECT id, {COLUMNS} FROM entries WHERE session = ? AND seq IN ({_MARKS}) AND {ELSEWHERE}"  # noqa: S608
_BY_KEY = f"SELECT id, {COLUMNS} FROM entries WHERE id IN ({_MARKS}) AND NOT ({ELSEWHERE})"  # noqa: S608
_UPDATE = "SET seq = ?, turn = ?, tokens = ?, origin = ?, extra = CAST(? AS TEXT), message = CAST(? AS TEXT), crc = ? \
WHERE id = ?"
_FORK = "INSERT INTO entries(id, session, seq, turn, tokens, origin, extra, message, crc) SELECT id + ?, ?, seq, turn, \
tokens, CASE WHEN origin IS NULL THEN CAST(? AS TEXT) ELSE origin END, extra, message, crc FROM entries \
WHERE id >= ? AND id < ? ORDER BY id"
_SET_ASIDE = f"INSERT INTO damaged(session, found, came, at, {COLUMNS}) SELECT session, ?, ?, ?, {COLUMNS} FROM "  # noqa: S608


@dataclass(slots=True)
class Reading:
    """What was read: sound entries, and the keys where there should be more."""

    entries: list[Entry] = field(default_factory=list[Entry])
    damaged: list[int] = field(default_factory=list[int])


def head_of(db: sqlite3.Connection, session_id: str) -> Head | None:
    """What is known of a session; None when there is none."""
    row = db.execute(
        "SELECT number, stop, holes, last_seq, size, indexed FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    if row is None:
        return None
    number, stop, holes, last_seq, size, indexed = row
    return Head(number, stop, holes_of(holes), last_seq, size, indexed)


def check_end(db: sqlite3.Connection, head: Head) -> None:
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


def read(db: sqlite3.Connection, session_id: str, head: Head, wanted: range) -> Reading:
    """The entries of these places, without the damaged ones."""
    found = Reading()
    if not wanted:
        return found
    # Row by row: between two rows other threads get a turn, however many there are.
    first, behind = head.key(wanted.start), head.key(wanted.stop - 1) + 1
    start, holes = first_key(head.number), set(head.holes)
    due = first
    for row in db.execute(_RANGE, (first, behind)):
        while due < row[0]:
            if due - start not in holes:
                found.damaged.append(due)
            due += 1
        due += 1
        _take(found, row, session_id, position_of(row[0]))
    found.damaged.extend(key for key in range(due, behind) if key - start not in holes)
    return found


def find(db: sqlite3.Connection, session_id: str, head: Head, seqs: Sequence[int]) -> Reading:
    """The entries with these seqs, in the order of the history."""
    found = Reading()
    rows: list[Found] = []
    wanted = sorted({seq for seq in seqs if 0 <= seq <= head.last_seq})
    for start in range(0, len(wanted), _AT_ONCE):
        part = wanted[start : start + _AT_ONCE]
        part += [-1] * (_AT_ONCE - len(part))  # one statement for all numbers of seqs
        rows += db.execute(_BY_SEQ, (head.number, *part))
        rows += db.execute(_BY_KEY, [first_key(head.number) + seq - 1 for seq in part])
    for row in sorted(rows, key=lambda row: row[0]):
        _take(found, row, session_id, position_of(row[0]))
    return found


def archived(db: sqlite3.Connection, session_id: str, head: Head) -> Reading:
    """What was replaced, oldest replacement first."""
    found = Reading()
    for row in db.execute(_ARCHIVED, (head.number,)):
        _take(found, row, session_id, 0)
    return found


def replace(db: sqlite3.Connection, session_id: str, keep: int, entries: Sequence[Entry], *, archive: bool) -> None:
    """Keep a history up to a place; it goes on with these entries, and what was there is archived."""
    head = head_of(db, session_id)
    check_within(session_id, keep, head.length if head else 0)
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
            db.execute(_ARCHIVE, (first, behind))
        head.size = max(0, head.size - _size(db, first, behind))
        db.execute("DELETE FROM entries WHERE id >= ? AND id < ?", (first, behind))
        if head.indexed > stop:
            unindex(db, head, stop)
    head.holes = [hole for hole in head.holes if hole < stop]
    db.execute("DELETE FROM checkpoints WHERE session = ? AND covered > ?", (head.number, keep))
    _add(db, head, session_id, entries, stop)
    _touch(db, head)


def rewrite(db: sqlite3.Connection, session_id: str, entries: Sequence[Entry]) -> list[int] | None:
    """Put these in place of the entries of the same seqs, in history and archive.

    Returns:
        Keys of the history's entries whose messages are others now, None if no message at all is another.
    """
    head = head_of(db, session_id)
    if head is None:
        return None
    changed: list[int] = []
    erased = False
    for entry in entries:
        row = row_of(entry, session_id)
        for table, places in (("entries", _places(db, head, entry.seq)), ("archive", _old_places(db, head, entry.seq))):
            for key in places:
                (message,) = db.execute(f"SELECT message FROM {table} WHERE id = ?", (key,)).fetchone()  # noqa: S608
                db.execute(
                    f"UPDATE {table} {_UPDATE}",
                    (*row[:-1], row[-1] + (position_of(key) if table == "entries" else 0), key),
                )
                head.size += len(row[5]) - len(message) if table == "entries" else 0
                if not _same(message, row, entry):
                    erased = True
                    changed += [key] if table == "entries" else []
    if erased:
        db.execute("DELETE FROM checkpoints WHERE session = ?", (head.number,))
        # All of them: of a damaged row not even the seq can be trusted.
        db.execute("DELETE FROM damaged WHERE session = ?", (head.number,))
    _touch(db, head)
    return changed if erased else None


def save_checkpoint(db: sqlite3.Connection, session_id: str, covered: int, data: bytes) -> None:
    """Keep bytes that stand for a beginning of a history."""
    head = head_of(db, session_id)
    check_within(session_id, covered, head.length if head else 0)
    head = head or _create(db, session_id)
    db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)", (head.number, covered, zlib.crc32(data), data))
    _touch(db, head)


def load_checkpoint(db: sqlite3.Connection, head: Head) -> tuple[bytes | None, bool]:
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
    check_within(session_id, count, head.length)
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
    for table in ("archive", "checkpoints", "damaged"):
        db.execute(f"DELETE FROM {table} WHERE session = ?", (head.number,))  # noqa: S608 - constants
    db.execute("DELETE FROM sessions WHERE number = ?", (head.number,))


def sessions(db: sqlite3.Connection) -> list[SessionInfo]:
    """All sessions, the last changed first."""
    writing = holders(db)
    found: list[SessionInfo] = []
    for name, stop, holes, size, updated in db.execute(
        "SELECT id, stop, holes, size, updated FROM sessions ORDER BY updated DESC, number DESC"
    ):
        session_id = name.decode()
        when = datetime.fromtimestamp(updated / 1e6, UTC).isoformat(timespec="milliseconds")
        found.append(SessionInfo(session_id, stop - len(holes_of(holes)), when, size, writing.get(session_id, "")))
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
        position = position_of(key) if came == "entries" else 0
        if row is not None and entry_in(row[1:], session_id, position) is not None:
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
            done += 1
    head.holes = sorted(holes)
    _touch(db, head)
    return done


def unindex(db: sqlite3.Connection, head: Head, position: int) -> None:
    """What lies at a position and after it is not in the search index any more."""
    start = first_key(head.number)
    if has_fts5(db):  # without it nobody can search; who can again will fill the index over what is stale
        db.execute("DELETE FROM search WHERE rowid >= ? AND rowid < ?", (start + position, start + head.indexed))
    db.execute("UPDATE sessions SET indexed = ? WHERE number = ?", (position, head.number))
    head.indexed = position


def rows_after(db: sqlite3.Connection, head: Head, position: int, limit: int) -> Iterator[Found]:
    """Keys and columns of entries from a position on."""
    start = first_key(head.number)
    yield from db.execute(f"{_RANGE} LIMIT ?", (start + position, start + head.stop, limit))


def _create(db: sqlite3.Connection, session_id: str) -> Head:
    made = db.execute("INSERT INTO sessions(id) VALUES (?)", (session_id,)).lastrowid or 0
    if made >> (63 - POSITION_BITS):
        raise StoreError("the database has held all the sessions it can number; begin another one")
    return Head(made, 0, [], 0, 0, 0)


def _add(db: sqlite3.Connection, head: Head, session_id: str, entries: Sequence[Entry], stop: int) -> None:
    """Write entries from a position on."""
    key = first_key(head.number) + stop
    for entry in entries:
        row = row_of(entry, session_id, position_of(key))
        db.execute(_INSERT, (key, head.number, *row))
        key += 1
        head.last_seq = max(head.last_seq, entry.seq)
        head.size += len(row[5])
    head.stop = stop + len(entries)


def _size(db: sqlite3.Connection, first: int, behind: int) -> int:
    sizes = "SELECT total(length(CAST(message AS BLOB))) FROM entries WHERE id >= ? AND id < ?"
    return int(db.execute(sizes, (first, behind)).fetchone()[0])


def _places(db: sqlite3.Connection, head: Head, seq: int) -> list[int]:
    """Keys of the entries of a history with a seq; one, as a rule."""
    found = db.execute(f"SELECT id FROM entries WHERE session = ? AND seq = ? AND {ELSEWHERE}", (head.number, seq))  # noqa: S608
    keys = [key for (key,) in found]
    key = first_key(head.number) + seq - 1
    if seq > 0 and db.execute(f"SELECT 1 FROM entries WHERE id = ? AND NOT ({ELSEWHERE})", (key,)).fetchone():  # noqa: S608
        keys.append(key)
    return keys


def _old_places(db: sqlite3.Connection, head: Head, seq: int) -> list[int]:
    """Keys of the entries of the archive with a seq."""
    return [key for (key,) in db.execute("SELECT id FROM archive WHERE session = ? AND seq = ?", (head.number, seq))]


def _touch(db: sqlite3.Connection, head: Head) -> None:
    """Write down what is known of a session, and that it changed now: later than any change before."""
    global _last_stamp
    _last_stamp = max(time.time_ns() // 1000, _last_stamp + 1)
    db.execute(
        "UPDATE sessions SET stop = ?, holes = ?, last_seq = ?, size = ?, updated = ? WHERE number = ?",
        (head.stop, holes_text(head.holes), head.last_seq, head.size, _last_stamp, head.number),
    )


def _take(found: Reading, row: Found, session_id: str, position: int) -> None:
    entry = entry_in(row[1:], session_id, position)
    if entry is None:
        found.damaged.append(row[0])
    else:
        found.entries.append(entry)


def _stay(db: sqlite3.Connection, seqs: Sequence[int]) -> None:
    db.execute("CREATE TEMP TABLE IF NOT EXISTS staying(seq INTEGER PRIMARY KEY)")
    db.execute("DELETE FROM temp.staying")
    db.executemany("INSERT OR IGNORE INTO temp.staying VALUES (?)", ((seq,) for seq in seqs))


def _same(message: bytes, row: Row, entry: Entry) -> bool:
    """Is the message the same as before, as far as anybody can tell?"""
    if message == row[5]:
        return True
    try:
        return bool(loads(message) == entry.message)
    except (TypeError, ValueError, RecursionError):
        return False
