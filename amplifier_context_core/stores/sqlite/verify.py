"""Looking for damage in a database without changing anything."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

from ...errors import StoreError
from ..protocol import index_range
from ..sqlite import queries
from .errors import damage, store_error
from .row_recovery import READERS, checkpoint_in
from .rows import first_key
from .schema import POSITION_BITS, disconnect, open_to_read

_MOST = 20  # lines of what the database's own check says


def verify(path: Path, session_id: str, busy: float) -> list[str]:
    """Return what is wrong with a session, or with the database it is in, a line each.

    Args:
        path: of the database.
        session_id: which session.
        busy: seconds to wait while another process has locked the file.
    """
    if not path.exists():
        return []
    try:
        db = open_to_read(path, busy)
        try:
            db.execute("BEGIN")
            return problems(db, path, session_id)
        finally:
            disconnect(db, path)
    except sqlite3.Error as problem:
        return [str(store_error(problem, path))]
    except StoreError as problem:
        return [str(problem)]


def problems(db: sqlite3.Connection, path: Path, session_id: str) -> list[str]:
    """Return what is wrong at one moment of the database; the connection is in a transaction."""
    wrong: list[str] = []
    for look in (_of_database, partial(_of_session, session_id=session_id)):
        try:
            look(db, wrong)
        except sqlite3.Error as problem:
            wrong.append(str(store_error(problem, path)))
    return wrong


def check(db: sqlite3.Connection) -> None:
    """Raise what the driver raises for a damaged file if anything is wrong with it, the messages left out."""
    wrong: list[str] = []
    _of_database(db, wrong)
    if wrong:
        raise damage(wrong[0])
    for row in db.execute("SELECT * FROM checkpoints"):
        checkpoint_in(row)


def check_pages(db: sqlite3.Connection) -> None:
    """Raise what the driver raises for a damaged file if its pages do not hang together."""
    ((said,),) = db.execute("PRAGMA quick_check(1)").fetchall()[:1]
    if said != b"ok":
        raise damage(f"pages do not hang together: {bytes(said).decode('utf-8', 'replace')}")


def _of_database(db: sqlite3.Connection, wrong: list[str]) -> None:
    """Check the pages and every row but those of messages; the first such row that is damaged raises."""
    said = [bytes(line).decode("utf-8", "replace") for (line,) in db.execute(f"PRAGMA integrity_check({_MOST})")]
    wrong += [f"database: {line}" for line in said if line != "ok"]
    queries.sessions(db)
    for table, read in READERS.items():
        for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608 - one of a few names
            read(row)
    for table, session in (("entries", f"id >> {POSITION_BITS}"), ("archive", "session"), ("checkpoints", "session")):
        of_none = f"SELECT count(*) FROM {table} WHERE {session} NOT IN (SELECT number FROM sessions)"  # noqa: S608
        (count,) = db.execute(of_none).fetchone()
        wrong += [f"database: {count} rows of {table} belong to no session"] if count else []


def _of_session(db: sqlite3.Connection, wrong: list[str], session_id: str) -> None:
    head = queries.head_of(db, session_id)
    if head is None:
        return
    history = queries.read(db, session_id, head, index_range(head.length, 0, None))
    start = first_key(head.number)
    wrong += [f"the message at place {head.place(key - start)} is damaged or missing" for key in history.damaged]
    seqs = [entry.seq for entry in history.entries]
    if len(set(seqs)) != len(seqs):
        wrong.append("two messages of the history have the same seq")
    (others,) = db.execute(
        "SELECT count(*) FROM entries WHERE id >= ? AND id < ?", (start + head.stop, first_key(head.number + 1))
    ).fetchone()
    if others:
        wrong.append(f"{others} messages lie behind the end of the history")
    _, damaged = queries.load_checkpoint(db, head)
    wrong += ["the checkpoint is damaged"] if damaged else []
    old = queries.archived(db, session_id, head)
    wrong += [f"{len(old.damaged)} archived messages are damaged"] if old.damaged else []
