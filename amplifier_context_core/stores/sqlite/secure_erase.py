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
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ...errors import NotErased
from .rows import number_in

log = logging.getLogger(__name__)

_READER_TIMEOUT = 20.0  # seconds to wait for readers of the log
RETRY_DELAY = 0.02


def request_erase(db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO facts VALUES ('erasing', 1) ON CONFLICT(name) DO UPDATE SET value = value + 1")


def is_erase_pending(db: sqlite3.Connection) -> bool:
    return _pending_number(db) is not None


def erase_now(database: Callable[[], sqlite3.Connection], path: Path) -> None:
    """Run all pending erasures, if there are no readers of the log."""
    with suppress(NotErased):
        next(erasing(database, path), None)


def erasing(database: Callable[[], sqlite3.Connection], path: Path) -> Iterator[None]:
    """Run all pending erasures, outside any transaction. Yield while the log has readers: others may write meanwhile.
    Raise `NotErased` if the file cannot be rewritten, or there are readers for too long.
    """
    number = _pending_number(database())
    if number is None:
        return
    _vacuum(database(), path)
    until = time.monotonic() + _READER_TIMEOUT
    while not _truncate_log(database()):
        if time.monotonic() > until:
            raise _not_erased(path, "other connections keep reading from its log")
        yield
    remove_copies(path)
    database().execute("DELETE FROM facts WHERE name = 'erasing' AND value = ?", (number,))


def remove_copies(path: Path) -> None:
    """Remove what repairs left beside a database: damaged ones, and copies that an interrupted repair was making."""
    for pattern in ("damaged-*", "repair*"):
        for one in sorted(path.parent.glob(f"{glob.escape(path.name)}.{pattern}")):
            one.unlink(missing_ok=True)
            log.warning("erased %s: it may have held messages to be forgotten", one)


def _vacuum(db: sqlite3.Connection, path: Path) -> None:
    try:
        # A database may be larger than memory. The temporary file holds only what remains.
        db.execute("PRAGMA temp_store = FILE")
        db.execute("VACUUM")
    except sqlite3.Error as problem:
        name = getattr(problem, "sqlite_errorname", type(problem).__name__)
        raise _not_erased(path, f"the database could not be rewritten ({name})") from problem
    finally:
        db.execute("PRAGMA temp_store = MEMORY")


def _truncate_log(db: sqlite3.Connection) -> bool:
    """Empty the log. False if a reader uses it."""
    (before,) = db.execute("PRAGMA busy_timeout").fetchone()
    try:
        db.execute("PRAGMA busy_timeout = 0")  # wait for readers without blocking other writers
        (busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as problem:
        if getattr(problem, "sqlite_errorcode", 0) & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        busy = 1
    finally:
        db.execute(f"PRAGMA busy_timeout = {int(before)}")
    return not busy


def _pending_number(db: sqlite3.Connection) -> int | None:
    row = db.execute("SELECT value FROM facts WHERE name = 'erasing'").fetchone()
    return number_in(row[0]) if row else None


def _not_erased(path: Path, why: str) -> NotErased:
    return NotErased(
        f"the messages were replaced, but the former ones are not erased from every byte of {path} yet: {why}. It is "
        "tried again at the next opening or rewrite of the database"
    )
