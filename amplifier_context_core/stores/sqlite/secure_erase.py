"""Erasing what was replaced by `rewrite`, from every byte of the file.

That a row was overwritten is not enough, not even with `secure_delete`: pages that were split keep copies of rows in
what is unused of them now, and the write-ahead log keeps pages as they were. So the database is rewritten (VACUUM), and
the log is emptied. It takes as long as copying the file. Until it is done there is a note in the database, so that the
next process that opens it does the rest.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from functools import partial
from pathlib import Path

from ...errors import NotErased
from .columns import number_in
from .recovery import discard_kept
from .worker import Continuation, Task

log = logging.getLogger(__name__)

_PATIENCE = 20.0  # seconds for others to end what they read from the log
_PAUSE = 0.02


def note_erasing(db: sqlite3.Connection) -> None:
    """Note that something is to be erased; part of the transaction that replaces it."""
    db.execute("INSERT INTO facts VALUES ('erasing', 1) ON CONFLICT(name) DO UPDATE SET value = value + 1")


def is_erasing(db: sqlite3.Connection) -> bool:
    """Is there something to erase?"""
    return _noted(db) is not None


def erase(path: Path, job: Task) -> Continuation | None:
    """A job that erases all that is noted."""
    if _noted(job.db) is None:
        return None
    return Continuation(partial(_write_anew, path), "alone")


def _write_anew(path: Path, job: Task) -> Continuation | None:
    db = job.db
    noted = _noted(db)
    if noted is None:
        return None  # another did it, after this was noted
    try:
        # A database may be larger than memory. What goes to the disk for a moment is what remains.
        db.execute("PRAGMA temp_store = FILE")
        db.execute("VACUUM")
    except sqlite3.Error as problem:
        name = getattr(problem, "sqlite_errorname", type(problem).__name__)
        raise _unfinished(path, f"the database could not be written anew ({name})") from problem
    finally:
        db.execute("PRAGMA temp_store = MEMORY")
    return Continuation(partial(_empty_log, path, noted, time.monotonic() + _PATIENCE), "alone")


def _empty_log(path: Path, noted: int, until: float, job: Task) -> Continuation | None:
    db = job.db
    (before,) = db.execute("PRAGMA busy_timeout").fetchone()
    try:
        db.execute("PRAGMA busy_timeout = 0")  # those who read are waited for without keeping others waiting
        (busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as problem:
        if getattr(problem, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        busy = 1
    finally:
        db.execute(f"PRAGMA busy_timeout = {int(before)}")
    if busy:
        if time.monotonic() > until:
            raise _unfinished(path, "others keep reading from its log")
        return Continuation(partial(_empty_log, path, noted, until), "alone", after=_PAUSE)
    for gone in discard_kept(path):
        log.warning("erased %s: what was to be forgotten may have stood in it", gone)
    return Continuation(partial(_done, noted), "write")


def _done(noted: int, job: Task) -> None:
    job.db.execute("DELETE FROM facts WHERE name = 'erasing' AND value = ?", (noted,))


def _noted(db: sqlite3.Connection) -> int | None:
    row = db.execute("SELECT value FROM facts WHERE name = 'erasing'").fetchone()
    return number_in(row[0]) if row else None


def _unfinished(path: Path, why: str) -> NotErased:
    return NotErased(
        f"the messages were replaced, but the former ones are not erased from every byte of {path} yet: {why}. It is "
        "tried again when the database is opened anew, or rewritten once more"
    )
