"""Connections of the second thread: each sees the database as it was when its task began.

Opening one takes a fifth of a search, so the connection of a task that has ended is kept for the next.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from .schema import disconnect, open_to_read


class Snapshots:
    """Opens connections to read from a database.

    Args:
        path: The database.
        busy: Seconds to wait while others have locked it.
    """

    def __init__(self, path: Path, busy: float) -> None:
        self._path, self._busy = path, busy
        self._lock = threading.Lock()
        self._kept: sqlite3.Connection | None = None
        self._closings = 0

    def open(self, *, keeps: bool) -> AbstractContextManager[sqlite3.Connection]:
        """Return the database as it is now, whatever is written until it is used. Any thread may use it, once.

        Args:
            keeps: Keep the connection for the next snapshot, unless `close` is called before its end.

        Raises:
            StoreError: The file is not a database of ours, or of a newer version.
            sqlite3.Error, OSError: The file cannot be read.
        """
        with self._lock:
            (kept, self._kept), opened_in = (self._kept, None), self._closings
        db = kept or open_to_read(self._path, self._busy)
        try:
            db.execute("BEGIN")
            db.execute("SELECT 1 FROM sessions LIMIT 1").fetchone()
        except BaseException:
            disconnect(db, self._path)
            raise
        return self._used(db, opened_in if keeps else None)

    def close(self) -> None:
        """Close the connection that is kept; one in use is closed at its end."""
        with self._lock:
            self._closings += 1
            kept, self._kept = self._kept, None
        if kept is not None:
            with suppress(sqlite3.Error):
                disconnect(kept, self._path)

    @contextmanager
    def _used(self, db: sqlite3.Connection, opened_in: int | None) -> Generator[sqlite3.Connection]:
        keeps = False
        try:
            yield db
            db.execute("COMMIT")
            with self._lock:
                keeps = self._kept is None and opened_in == self._closings
                if keeps:
                    self._kept = db
        finally:
            if not keeps:
                disconnect(db, self._path)
