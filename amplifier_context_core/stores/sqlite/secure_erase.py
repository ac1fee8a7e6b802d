"""Erase what `rewrite` replaced from every byte of the file.

Overwriting a row is not enough, not even with `secure_delete`: pages that were split keep copies of rows in their
unused space, and the write-ahead log keeps old pages. So the database is rewritten (VACUUM) and the log is truncated,
which takes as long as copying the file. Until it is done a row in the database requests it, so that the next process
that opens the database finishes it.
"""

from __future__ import annotations

import glob
import logging
import sqlite3
from pathlib import Path

from ...errors import NotErased
from .rows import number_in

log = logging.getLogger(__name__)


def request_erase(db: sqlite3.Connection) -> None:
    """Request an erasure, as part of the transaction that replaces the messages."""
    db.execute("INSERT INTO facts VALUES ('erasing', 1) ON CONFLICT(name) DO UPDATE SET value = value + 1")


def is_erase_pending(db: sqlite3.Connection) -> bool:
    return _pending_number(db) is not None


def erase(db: sqlite3.Connection, path: Path) -> None:
    """Run all pending erasures, outside any transaction. Raise `NotErased` if the file cannot be rewritten, or others
    read from its log for longer than the connection waits for locks.
    """
    number = _pending_number(db)
    if number is None:
        return
    try:
        _vacuum(db)
        (is_busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as problem:
        name = getattr(problem, "sqlite_errorname", type(problem).__name__)
        raise _not_erased(path, f"the database could not be rewritten ({name})") from problem
    if is_busy:
        raise _not_erased(path, "other connections keep reading from its log")
    remove_copies(path)
    db.execute("DELETE FROM facts WHERE name = 'erasing' AND value = ?", (number,))


def remove_copies(path: Path) -> None:
    """Remove what repairs left beside a database: damaged ones, and copies that an interrupted repair was making."""
    for pattern in ("damaged-*", "repair*"):
        for one in sorted(path.parent.glob(f"{glob.escape(path.name)}.{pattern}")):
            one.unlink(missing_ok=True)
            log.warning("erased %s: it may have held messages to be forgotten", one)


def _vacuum(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA temp_store = FILE")  # a database may be larger than memory; the file holds what remains of it
    try:
        db.execute("VACUUM")
    finally:
        db.execute("PRAGMA temp_store = MEMORY")


def _pending_number(db: sqlite3.Connection) -> int | None:
    row = db.execute("SELECT value FROM facts WHERE name = 'erasing'").fetchone()
    return number_in(row[0]) if row else None


def _not_erased(path: Path, why: str) -> NotErased:
    return NotErased(
        f"the messages were replaced, but the former ones are not erased from every byte of {path} yet: {why}. It is "
        "tried again at the next opening or rewrite of the database"
    )
