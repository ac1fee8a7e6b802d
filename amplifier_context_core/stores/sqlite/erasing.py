"""Erasing what was replaced by `rewrite`, from every byte of the file.

That a row was overwritten is not enough, not even with `secure_delete`: pages that were split keep copies of rows in
what is unused of them now, the search index keeps words of what was deleted until its segments are merged, and the
write-ahead log keeps pages as they were. So segments are merged, the database is written anew (VACUUM), and the log is
emptied. It takes as long as copying the file; it is what somebody asked for who pasted a secret. Until it is done a
note stands in the database, so that who is killed in between has it done by the next who opens it.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from functools import partial
from pathlib import Path

from ...errors import StoreError
from .salvage import discard_kept
from .schema import has_fts5, has_search
from .worker import Job, Then

log = logging.getLogger(__name__)

_PATIENCE = 20.0  # seconds for others to end what they read from the log
_PAUSE = 0.02


def note_erasing(db: sqlite3.Connection) -> None:
    """Note that something is to be erased; part of the transaction that replaces it."""
    db.execute("INSERT INTO facts VALUES ('erasing', 1) ON CONFLICT(name) DO UPDATE SET value = value + 1")


def is_erasing(db: sqlite3.Connection) -> bool:
    """Is there something to erase?"""
    return _noted(db) is not None


def erase(path: Path, job: Job) -> Then | None:
    """A job that erases all that is noted; begins with the search index, inside a transaction."""
    if _noted(job.db) is None:
        return None
    if has_search(job.db) and has_fts5(job.db):
        job.db.execute("INSERT INTO search(search) VALUES ('optimize')")
    return Then(partial(_write_anew, path), "alone")


def _write_anew(path: Path, job: Job) -> Then | None:
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
    return Then(partial(_empty_log, path, noted, time.monotonic() + _PATIENCE), "alone")


def _empty_log(path: Path, noted: int, until: float, job: Job) -> Then | None:
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
        return Then(partial(_empty_log, path, noted, until), "alone", after=_PAUSE)
    for gone in discard_kept(path):
        log.warning("erased %s: what was to be forgotten may have stood in it", gone)
    return Then(partial(_done, noted), "write")


def _done(noted: int, job: Job) -> None:
    job.db.execute("DELETE FROM facts WHERE name = 'erasing' AND value = ?", (noted,))


def _noted(db: sqlite3.Connection) -> int | None:
    row = db.execute("SELECT value FROM facts WHERE name = 'erasing'").fetchone()
    return int(row[0]) if row else None


def _unfinished(path: Path, why: str) -> StoreError:
    return StoreError(
        f"the messages were replaced, but the former ones are not erased from every byte of {path} yet: {why}. It is "
        "tried again when the database is opened anew, or rewritten once more"
    )
