"""Find damage in a database without changing anything."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ...errors import StoreError
from ..sqlite import queries
from ..sqlite.queries import is_intact
from .errors import damage_error, store_error
from .rows import SessionRow, first_key
from .schema import SEARCH_TABLES, SLOT_BITS, can_index, has_table, open_to_read

# What is true of the rows of other tables: in a damaged file they may be the messages of a session.
_OTHER_TABLES = {
    "facts": "typeof(name) = 'text' AND typeof(value) = 'integer'",
    "sqlite_sequence": "name = 'sessions' AND typeof(seq) = 'integer'",
}
_MAX_REPORTED = 20  # lines of SQLite's integrity check


def verify(path: Path, session_id: str | None, busy: float) -> list[str]:
    """Return the problems of a database and of a session (None: of all, if there are none of the database), one a line.
    Wait `busy` seconds for locks.
    """
    problems: list[str] = []

    def attempt(check: Callable[[], list[str]]) -> None:
        try:
            problems.extend(check())
        except sqlite3.Error as problem:
            problems.append(str(store_error(problem, path)))

    try:
        db = open_to_read(path, busy)
    except sqlite3.Error as problem:
        return [str(store_error(problem, path))]
    except StoreError as problem:
        return [str(problem)]
    with closing(db):
        db.execute("BEGIN")
        attempt(lambda: _database_problems(db))
        if session_id is not None:
            attempt(lambda: session_problems(db, session_id))
        elif not problems:
            for session in [*queries.session_rows(db)]:
                attempt(lambda session=session: _problems_of(db, session))
    return problems


def check_before_erasing(db: sqlite3.Connection, session_id: str) -> None:
    """Raise the driver's error for a damaged file if damaged pages or rows may hold what is to be erased."""
    problems = [*_database_problems(db), *session_problems(db, session_id)]
    if problems:
        raise damage_error(problems[0])


def _database_problems(db: sqlite3.Connection) -> list[str]:
    lines = db.execute(f"PRAGMA integrity_check({_MAX_REPORTED})").fetchall()
    problems = [f"database: {bytes(line).decode('utf-8', 'replace')}" for (line,) in lines if line != b"ok"]
    for _ in queries.session_rows(db):  # the first damaged row raises
        pass
    for table, session in (("entries", f"id >> {SLOT_BITS}"), ("archive", "session"), ("checkpoints", "session")):
        of_none = f"SELECT count(*) FROM {table} WHERE {session} NOT IN (SELECT number FROM sessions)"  # noqa: S608
        (count,) = db.execute(of_none).fetchone()
        problems += [f"database: {count} rows of {table} belong to no session"] if count else []
    for table, is_right in _OTHER_TABLES.items():
        (count,) = db.execute(f"SELECT count(*) FROM {table} WHERE ({is_right}) IS NOT TRUE").fetchone()  # noqa: S608
        problems += [f"database: {count} rows of {table} belong elsewhere"] if count else []
    if any(not is_intact(*row) for row in db.execute("SELECT data, crc FROM checkpoints")):
        problems.append("database: a checkpoint is damaged")
    if has_table(db, "words") and can_index(db):  # an index that can be searched can be dropped, if it is damaged
        for table in SEARCH_TABLES:
            db.execute(f"SELECT rowid FROM {table} WHERE {table} MATCH 'abc' LIMIT 1").fetchone()  # noqa: S608 - constant
    return problems


def session_problems(db: sqlite3.Connection, session_id: str) -> list[str]:
    session = queries.find_session(db, session_id)
    return [] if session is None else _problems_of(db, session)


def _problems_of(db: sqlite3.Connection, session: SessionRow) -> list[str]:
    name, start = session.session_id, first_key(session.number)
    history = queries.read(db, name)
    problems = [f"the message at index {key - start} is damaged or missing" for key in history.damaged]
    seqs = [entry.seq for entry in history.entries]
    if len(set(seqs)) != len(seqs):
        problems.append("two messages of the history have the same seq")
    (others,) = db.execute(
        "SELECT count(*) FROM entries WHERE id >= ? AND id < ?",
        (start + session.length, first_key(session.number + 1)),
    ).fetchone()
    if others:
        problems.append(f"{others} messages are after the end of the history")
    old = queries.archived(db, name)
    problems += [f"{len(old.damaged)} archived messages are damaged"] if old.damaged else []
    return problems
