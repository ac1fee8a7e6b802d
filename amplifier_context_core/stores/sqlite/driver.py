"""Connections that raise only what the driver documents: `sqlite3.Error`, so that each `except` of it is complete.

The driver also raises errors of Python while it makes an error of its own: SQLite may describe a damaged database in
bytes that are no text, and the driver fails to decode them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from pathlib import Path
from typing import Any

from .errors import damage_error, driver_error

_UNDOCUMENTED = (UnicodeDecodeError, OverflowError, MemoryError)
_open: weakref.WeakSet[Connection] = weakref.WeakSet()
_open_lock = threading.Lock()
# Held while a database file is opened by other means than a connection: its closing would release the locks of those.
opening = threading.Lock()
for _lock in (_open_lock, opening):  # a child that is forked by another thread must not find one held
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Connection(sqlite3.Connection):
    """A connection that raises nothing but `sqlite3.Error`."""

    path = Path()
    holds_one = False  # the database holds one session, whatever id its row has: its folder may have been renamed

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        try:
            return super().execute(sql, parameters)
        except _UNDOCUMENTED as problem:
            raise _documented(problem) from None

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        try:
            return super().executemany(sql, parameters)
        except _UNDOCUMENTED as problem:
            raise _documented(problem) from None

    def close(self) -> None:
        try:
            super().close()
        finally:
            with _open_lock:
                _open.discard(self)


def connect(path: Path, busy: float, how: str = "") -> Connection:
    """Return a plain connection that any thread may use, one at a time. Texts are returned as bytes, damaged or not.

    `busy` is in seconds, and `how` are parameters of SQLite such as ``mode=ro``.
    """
    target = f"{path.as_uri()}?{how}" if how else str(path)
    with opening:
        db = sqlite3.connect(
            target,
            busy,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
            cached_statements=256,
            uri=bool(how),
        )
        db.path = path
        with _open_lock:
            _open.add(db)
    db.text_factory = bytes
    return db


def is_open_here(path: Path) -> bool:
    """True if this process has connections to a database. While it has any, it must not open and close the file by
    other means: on POSIX systems that releases the locks of all of them.
    """
    with _open_lock:
        return any(db.path == path for db in _open)


def _documented(problem: Exception) -> sqlite3.Error:
    """Return the driver's error for an undocumented one. Its text is omitted, because it may quote a message."""
    if isinstance(problem, UnicodeDecodeError):
        return damage_error("what SQLite says of the file is no text")
    if isinstance(problem, OverflowError):
        return driver_error(sqlite3.DataError, "a number is larger than 64 bits", "SQLITE_RANGE")
    return driver_error(sqlite3.OperationalError, "out of memory", "SQLITE_NOMEM")


def required_row(cursor: sqlite3.Cursor) -> Any:
    """Return the first row of a query. If there is none, the file is damaged."""
    row = cursor.fetchone()
    if row is None:
        raise damage_error("a row is missing")
    return row
