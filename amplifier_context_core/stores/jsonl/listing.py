"""List the sessions of a folder. Each database is attached to one connection, which opens it in a tenth of the time."""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from ...errors import ConfigError, StoreError
from ..protocol import SessionInfo
from ..sqlite.driver import Connection
from ..sqlite.errors import needs_rollback
from ..sqlite.locks import lock_holder
from ..sqlite.rows import SESSION_COLUMNS, SessionRow, decode_session_row
from ..sqlite.schema import is_log_left
from ..validation import check_session_id
from .files import exists, open_file
from .paths import SessionFiles, SessionPaths

log = logging.getLogger(__name__)
_SELECT = f"SELECT {SESSION_COLUMNS} FROM one.sessions LIMIT 1"  # noqa: S608 - a constant


def listed(paths: SessionPaths) -> list[SessionInfo]:
    try:
        all_files = paths.all_sessions()
    except OSError as problem:
        raise StoreError(f"the sessions in {paths.root} cannot be listed: {problem.strerror}") from problem
    found: list[tuple[int, SessionInfo]] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None, uri=True, factory=Connection)) as db:
        db.text_factory = bytes
        for files in all_files:
            try:
                check_session_id(files.session_id)
                one = _info(db, files)
            except (OSError, ConfigError) as problem:  # a folder of another program may have any name
                log.warning("session %r cannot be listed: %s", files.session_id, problem)
                continue
            if one is not None:
                found.append(one)
    return [info for _, info in sorted(found, key=lambda one: one[0], reverse=True)]


def _info(db: sqlite3.Connection, files: SessionFiles) -> tuple[int, SessionInfo] | None:
    try:
        row = _row(db, files)
    except sqlite3.Error as problem:
        log.warning("session %r: its database cannot be read (%s); `repair` may help", files.session_id, problem)
        row = SessionRow(1, files.session_id)
    if row is None:
        if not exists(files.main):
            return None
        row = _row_of_mirror(files)
    row.session_id = files.session_id  # its folder may have been renamed
    return row.updated, row.info(lock_holder(files.path("lock")))


def _row(db: sqlite3.Connection, files: SessionFiles) -> SessionRow | None:
    try:
        if not os.stat(files.database).st_size:
            return None
    except FileNotFoundError:
        return None
    # Without a log no process writes, and no lock is needed.
    how = "mode=ro" if is_log_left(Path(files.database)) else "immutable=1"
    try:
        return _row_in(db, files.database, how)
    except sqlite3.OperationalError as problem:
        if not needs_rollback(problem):
            raise
    return _row_in(db, files.database, "mode=rw")


def _row_in(db: sqlite3.Connection, path: str, how: str) -> SessionRow | None:
    db.execute("ATTACH ? AS one", (f"file:{quote(path)}?{how}",))
    try:
        is_empty = db.execute("PRAGMA one.schema_version").fetchone() == (0,)  # a crash came before its first commit
        row = None if is_empty else db.execute(_SELECT).fetchone()
    finally:
        db.execute("DETACH one")
    return None if row is None else decode_session_row(row)


def _row_of_mirror(files: SessionFiles) -> SessionRow:
    """Return what a session has whose only file is the mirror: as many messages as lines."""
    with open(open_file(files.main, os.O_RDONLY), "rb") as file:
        length = sum(1 for line in file if line.strip())
        status = os.fstat(file.fileno())
    return SessionRow(1, files.session_id, length, size=status.st_size, updated=status.st_mtime_ns // 1_000)
