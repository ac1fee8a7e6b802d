"""Looking for damage in a database without changing anything."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ...errors import StoreError
from ..protocol import places
from .faults import damage, store_error
from .histories import archived, head_of, load_checkpoint, read
from .rows import first_key
from .schema import disconnect, open_to_read

_MOST = 20  # lines of what the database's own check says


def verify(path: Path, session_id: str, busy: float) -> list[str]:
    """What is wrong with a session, or with the database it is in, a line each."""
    if not path.exists():
        return []
    try:
        db = open_to_read(path, busy)
        try:
            db.execute("BEGIN")
            return [*_of_database(db), *_of_session(db, session_id)]
        finally:
            disconnect(db, path)
    except sqlite3.Error as problem:
        return [str(store_error(problem, path))]
    except StoreError as problem:
        return [str(problem)]


def check_pages(db: sqlite3.Connection) -> None:
    """Raise what the driver raises for a damaged file if its pages do not hang together."""
    ((said,),) = db.execute("PRAGMA quick_check(1)").fetchall()[:1]
    if said != b"ok":
        raise damage(f"pages do not hang together: {bytes(said).decode('utf-8', 'replace')}")


def _of_database(db: sqlite3.Connection) -> list[str]:
    said = [bytes(line).decode("utf-8", "replace") for (line,) in db.execute(f"PRAGMA integrity_check({_MOST})")]
    return [f"database: {line}" for line in said if line != "ok"]


def _of_session(db: sqlite3.Connection, session_id: str) -> list[str]:
    head = head_of(db, session_id)
    if head is None:
        return []
    wrong: list[str] = []
    history = read(db, session_id, head, places(head.length, 0, None))
    start = first_key(head.number)
    wrong += [f"the message at place {head.place(key - start)} is damaged or missing" for key in history.damaged]
    seqs = [entry.seq for entry in history.entries]
    if len(set(seqs)) != len(seqs):
        wrong.append("two messages of the history have the same seq")
    old = archived(db, session_id, head)
    wrong += [f"{len(old.damaged)} archived messages are damaged"] if old.damaged else []
    if max((*seqs, *(entry.seq for entry in old.entries)), default=0) > head.last_seq:
        wrong.append("there are seqs above the highest that was given")
    (others,) = db.execute(
        "SELECT count(*) FROM entries WHERE id >= ? AND id < ?", (start + head.stop, first_key(head.number + 1))
    ).fetchone()
    if others:
        wrong.append(f"{others} messages lie behind the end of the history")
    _, damaged = load_checkpoint(db, head)
    wrong += ["the checkpoint is damaged"] if damaged else []
    return wrong
