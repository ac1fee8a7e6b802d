"""Connections that raise `sqlite3.Error` for a damaged file, whatever SQLite says of it.

SQLite may describe a damaged database in bytes that are no text, and the driver fails to decode them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

from .errors import damage_error

# Held while a database file is created: closing it releases the locks that connections of this process have on it.
opening = threading.Lock()
# A child that is forked by another thread must not find it held.
os.register_at_fork(before=opening.acquire, after_in_parent=opening.release, after_in_child=opening.release)


class Connection(sqlite3.Connection):
    holds_one = False  # the database holds one session, whatever id its row has: its folder may have been renamed

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        try:
            return super().execute(sql, parameters)
        except UnicodeDecodeError:  # its text is omitted, because it may quote a message
            raise damage_error("what SQLite says of the file is no text") from None


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
    db.text_factory = bytes
    return db


def required_row(cursor: sqlite3.Cursor) -> Any:
    """Return the first row of a query. If there is none, the file is damaged."""
    row = cursor.fetchone()
    if row is None:
        raise damage_error("a row is missing")
    return row
