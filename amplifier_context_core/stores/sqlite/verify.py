"""Find damage in a database without changing anything."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

from ...errors import StoreError
from ..protocol import index_range
from ..sqlite import queries
from .errors import damage_error, store_error
from .rows import first_key
from .schema import SLOT_BITS, disconnect, open_to_read
from .table_rows import ROW_READERS, decode_checkpoint_row

_MAX_REPORTED = 20  # lines of SQLite's integrity check


def verify(path: Path, session_id: str, busy: float) -> list[str]:
    """Return the problems of a session and of the database that holds it, one a line.

    Args:
        path: The database.
        session_id: The session.
        busy: Seconds to wait while another process has locked the file.
    """
    if not path.exists():
        return []
    try:
        db = open_to_read(path, busy)
        try:
            db.execute("BEGIN")
            return find_problems(db, path, session_id)
        finally:
            disconnect(db, path)
    except sqlite3.Error as problem:
        return [str(store_error(problem, path))]
    except StoreError as problem:
        return [str(problem)]


def find_problems(db: sqlite3.Connection, path: Path, session_id: str) -> list[str]:
    """Return the problems at one moment of the database; the connection is in a transaction."""
    problems: list[str] = []
    for check in (_check_database, partial(_check_session, session_id=session_id)):
        try:
            check(db, problems)
        except sqlite3.Error as problem:
            problems.append(str(store_error(problem, path)))
    return problems


def check_database(db: sqlite3.Connection) -> None:
    """Raise the driver's error for a damaged file if anything but messages is damaged."""
    problems: list[str] = []
    _check_database(db, problems)
    if problems:
        raise damage_error(problems[0])
    for row in db.execute("SELECT * FROM checkpoints"):
        decode_checkpoint_row(row)


def check_pages(db: sqlite3.Connection) -> None:
    """Raise the driver's error for a damaged file if its pages are inconsistent."""
    ((answer,),) = db.execute("PRAGMA quick_check(1)").fetchall()[:1]
    if answer != b"ok":
        raise damage_error(f"pages are inconsistent: {bytes(answer).decode('utf-8', 'replace')}")


def _check_database(db: sqlite3.Connection, problems: list[str]) -> None:
    """Check the pages and every row except those of messages; the first damaged row raises."""
    lines = [
        bytes(line).decode("utf-8", "replace") for (line,) in db.execute(f"PRAGMA integrity_check({_MAX_REPORTED})")
    ]
    problems += [f"database: {line}" for line in lines if line != "ok"]
    queries.sessions(db)
    for table, read in ROW_READERS.items():
        for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608 - one of a few names
            read(row)
    for table, session in (("entries", f"id >> {SLOT_BITS}"), ("archive", "session"), ("checkpoints", "session")):
        of_none = f"SELECT count(*) FROM {table} WHERE {session} NOT IN (SELECT number FROM sessions)"  # noqa: S608
        (count,) = db.execute(of_none).fetchone()
        problems += [f"database: {count} rows of {table} belong to no session"] if count else []


def _check_session(db: sqlite3.Connection, problems: list[str], session_id: str) -> None:
    session = queries.find_session(db, session_id)
    if session is None:
        return
    history = queries.read(db, session_id, session, index_range(session.length, 0, None))
    start = first_key(session.number)
    problems += [
        f"the message at index {session.index_of(key - start)} is damaged or missing" for key in history.damaged
    ]
    seqs = [entry.seq for entry in history.entries]
    if len(set(seqs)) != len(seqs):
        problems.append("two messages of the history have the same seq")
    (others,) = db.execute(
        "SELECT count(*) FROM entries WHERE id >= ? AND id < ?",
        (start + session.stop_slot, first_key(session.number + 1)),
    ).fetchone()
    if others:
        problems.append(f"{others} messages are after the end of the history")
    _, damaged = queries.load_checkpoint(db, session)
    problems += ["the checkpoint is damaged"] if damaged else []
    old = queries.archived(db, session_id, session)
    problems += [f"{len(old.damaged)} archived messages are damaged"] if old.damaged else []
