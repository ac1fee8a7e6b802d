"""List the sessions of a folder."""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from ...errors import ConfigError, StoreError
from ..protocol import SessionInfo
from ..sqlite.locks import lock_holder
from ..sqlite.queries import session_rows
from ..sqlite.rows import SessionRow
from ..sqlite.schema import open_to_read
from ..validation import check_session_id
from .files import exists, open_file
from .paths import SessionFiles, SessionPaths

log = logging.getLogger(__name__)
_BUSY = 1.0  # seconds to wait while another process has locked a database


def listed(paths: SessionPaths) -> list[SessionInfo]:
    try:
        all_files = paths.all_sessions()
    except OSError as problem:
        raise StoreError(f"the sessions in {paths.root} cannot be listed: {problem.strerror}") from problem
    found: list[tuple[int, SessionInfo]] = []
    for files in all_files:
        try:
            check_session_id(files.session_id)
            one = _info(files)
        except (OSError, ConfigError) as problem:  # a folder of another program may have any name
            log.warning("session %r cannot be listed: %s", files.session_id, problem)
            continue
        if one is not None:
            found.append(one)
    return [info for _, info in sorted(found, key=lambda one: one[0], reverse=True)]


def _info(files: SessionFiles) -> tuple[int, SessionInfo] | None:
    row: SessionRow | None = None
    try:
        if exists(files.database):
            with closing(open_to_read(Path(files.database), _BUSY)) as db:
                row = next(session_rows(db), None)
    except (sqlite3.Error, StoreError) as problem:
        log.warning("session %r: its database cannot be read (%s); `repair` may help", files.session_id, problem)
        row = SessionRow(1, files.session_id)
    if row is None:
        if not exists(files.main):
            return None
        row = _row_of_mirror(files)
    row.session_id = files.session_id  # its folder may have been renamed
    return row.updated, row.info(lock_holder(files.path("lock")))


def _row_of_mirror(files: SessionFiles) -> SessionRow:
    """Return what a session has whose only file is the mirror: as many messages as lines."""
    with open(open_file(files.main, os.O_RDONLY), "rb") as file:
        length = sum(1 for line in file if line.strip())
        status = os.fstat(file.fileno())
    return SessionRow(1, files.session_id, length, size=status.st_size, updated=status.st_mtime_ns // 1_000)
