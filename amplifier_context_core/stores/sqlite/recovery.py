"""What can be saved of a damaged database is written into a new one, and the damaged one is kept beside it.

What is read of it is in `row_recovery`. The new database takes the damaged one's place only when it is whole and on
disk; the process that is killed in between has the rest done by the next one.
"""

from __future__ import annotations

import glob
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from ...errors import StoreError
from ..protocol import Repair
from .columns import number_in, text_in
from .first_page import first_pages
from .row_recovery import recover_rows
from .schema import connection_count, disconnect, make_file, open_database, sidecar, sync_folder

_LOCK_OFFSET = 0x40000000  # where SQLite's locks lie in a file
_QUARANTINE_INFIX = "damaged"


class Unrecoverable(StoreError):
    """Nothing in a damaged database is known to be ours."""


_unrecoverable: dict[Path, tuple[int, ...]] = {}  # as they were: each attempt reads all of the file


def recover(path: Path, damaged_identity: tuple[int, int] | None) -> Path | None:
    """Put a new database in the place of a damaged one.

    Args:
        path: of the damaged one.
        seen: its device and number there, when it was found damaged.

    Returns:
        Where the damaged one is kept; None when another process was faster. What was lost stands in the table
        `repairs` of the new one.

    Raises:
        StoreError: others work on it, or nothing in it is known to be ours. Nothing was changed.
        sqlite3.Error, OSError: it cannot be done now. Nothing was changed.
    """
    with _locked(path):
        status = path.stat()
        if (status.st_dev, status.st_ino) != damaged_identity:
            return None
        now = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if _unrecoverable.get(path) == now:
            raise _unrecoverable_error(path)
        try:
            return _recover(path)
        except Unrecoverable:
            _unrecoverable[path] = now
            raise


def _recover(path: Path) -> Path:
    _check_exclusive(path)
    stamp = _stamp()
    quarantined_at, new_path = sidecar(path, f".{_QUARANTINE_INFIX}-{stamp}"), sidecar(path, f".salvaging-{stamp}")
    copy = sidecar(path, f".reading-{stamp}")
    try:
        # Read from a copy: a write-ahead log is worked into the file that is opened, and the damaged one is evidence.
        for ending in ("", "-wal"):
            with suppress(FileNotFoundError):
                _copy(sidecar(path, ending), sidecar(copy, ending))
        make_file(new_path)
        new = open_database(new_path, "none", 1.0)
        try:
            _recover_rows(new, copy, path, str(quarantined_at))
        finally:
            disconnect(new, new_path)
        _check_exclusive(path)
        _sync(new_path)
        os.replace(new_path, sidecar(path, f".salvaged-{stamp}"))
        sync_folder(path.parent)
        _finish_recovery(path)
    finally:
        for one in (copy, new_path):
            for ending in ("", "-wal", "-shm"):
                sidecar(one, ending).unlink(missing_ok=True)
    return quarantined_at


def finish_recovery(path: Path) -> None:
    """Put a new database that is whole in its place; a no-op where there is none."""
    if any(path.parent.glob(f"{glob.escape(path.name)}.salvaged-*")):
        with _locked(path):
            _finish_recovery(path)


def _finish_recovery(path: Path) -> None:
    for new_path in sorted(path.parent.glob(f"{glob.escape(path.name)}.salvaged-*")):
        quarantined_at = sidecar(path, f".{_QUARANTINE_INFIX}-{new_path.name.rpartition('.salvaged-')[2]}")
        for ending in ("", "-wal"):
            if not sidecar(quarantined_at, ending).exists():
                with suppress(FileNotFoundError):
                    os.replace(sidecar(path, ending), sidecar(quarantined_at, ending))
        sidecar(path, "-shm").unlink(missing_ok=True)
        sync_folder(path.parent)
        os.replace(new_path, path)
        sync_folder(path.parent)


def quarantine_log(path: Path, is_orphan: Callable[[], bool]) -> Path | None:
    """Keep the log of a database that went away: SQLite would work it into whatever comes in that one's place.

    Args:
        path: of the database.
        is_orphan: is that still so? Asked again while no other process does the same.

    Returns:
        Where it is kept; None when there is no such log.
    """
    if not is_orphan():
        return None
    with _locked(path):
        if not is_orphan():
            return None
        quarantined_at = sidecar(path, f".{_QUARANTINE_INFIX}-{_stamp()}-wal")
        os.replace(sidecar(path, "-wal"), quarantined_at)
        sidecar(path, "-shm").unlink(missing_ok=True)
        sync_folder(path.parent)
        return quarantined_at


def erase_quarantined(path: Path) -> list[Path]:
    """Erase the damaged databases that were kept: they hold what is to be forgotten."""
    erased = sorted(path.parent.glob(f"{glob.escape(path.name)}.{_QUARANTINE_INFIX}-*"))
    for one in erased:
        one.unlink(missing_ok=True)
    return erased


def is_truncated(db: sqlite3.Connection, path: Path) -> bool:
    """Is the file shorter than it says it is?"""
    wal = sidecar(path, "-wal")
    if wal.exists() and wal.stat().st_size:
        return False  # the rest may stand there
    pages, size = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "page_size"))
    return path.stat().st_size < pages * size


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """One process at a time puts files in the places of others. The file that is locked goes in the end."""
    file = sidecar(path, ".salvage-lock")
    with FileLock(file, timeout=60, mode=0o600):
        try:
            yield
        finally:
            file.unlink(missing_ok=True)  # who waited for it is told by `filelock` that it is gone, and makes another


def _stamp() -> str:
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"


def _check_exclusive(path: Path) -> None:
    if connection_count(path):
        raise StoreError(f"the database {path} is damaged, and others of this process work on it; close their stores")
    if sys.platform == "win32":
        return
    import fcntl

    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 512, _LOCK_OFFSET)
        except OSError:
            raise StoreError(
                f"the database {path} is damaged, and other processes work on it; end them, and what can be read is "
                "saved at the next call"
            ) from None


def _copy(source: Path, target: Path) -> None:
    make_file(target)
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written, 1 << 20)


def _sync(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _recover_rows(new: sqlite3.Connection, copy: Path, path: Path, quarantined_at: str) -> None:
    """Write into a new database what can be read of a copy, under the first page that gives the most."""
    best, most = None, -1
    for page in first_pages(copy):
        counts = recover_rows(new, copy, page, quarantined_at)
        if counts is not None and counts.whole:
            return
        if counts is not None and counts.entries > most:
            best, most = page, counts.entries
    if best is None or recover_rows(new, copy, best, quarantined_at, whole=False) is None:
        raise _unrecoverable_error(path)


def _unrecoverable_error(path: Path) -> Unrecoverable:
    return Unrecoverable(
        f"the file {path} is no database of sessions, or damaged beyond what can be saved; it was left as it is. "
        "Move it away, restore a backup, or name another path"
    )


def pop_repairs(db: sqlite3.Connection, session_id: str) -> list[Repair]:
    """Return the reports of a session that no listener was given yet; they are taken out."""
    rows = db.execute("SELECT what, lost, kept FROM repairs WHERE session = ? ORDER BY id", (session_id,)).fetchall()
    if rows:
        db.execute("DELETE FROM repairs WHERE session = ?", (session_id,))
    return [Repair(session_id, text_in(what), number_in(lost), text_in(kept)) for what, lost, kept in rows]
