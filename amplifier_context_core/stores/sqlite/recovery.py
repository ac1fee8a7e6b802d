"""Recover a damaged database: write what is readable into a new one, and keep the damaged one beside it.

`row_recovery` reads the rows. The new database replaces the damaged one only when it is complete and on disk. If the
process is killed in between, the next process finishes the recovery.
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

_LOCK_OFFSET = 0x40000000  # offset of SQLite's locks in a file
_QUARANTINE_INFIX = "damaged"


class Unrecoverable(StoreError):
    """Nothing in a damaged database is known to be ours."""


_unrecoverable: dict[Path, tuple[int, ...]] = {}  # file states; each attempt reads the whole file


def recover(path: Path, damaged_identity: tuple[int, int] | None) -> Path | None:
    """Replace a damaged database by a new one.

    Args:
        path: The damaged database.
        damaged_identity: Its device and inode when the damage was found.

    Returns:
        Where the damaged one is kept; None if another process was faster. The table `repairs` of the new one says what
        was lost.

    Raises:
        StoreError: Others use the database, or nothing in it is known to be ours. Nothing was changed.
        sqlite3.Error, OSError: Recovery is impossible now. Nothing was changed.
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
        # Read from a copy: opening a file merges its write-ahead log, and the damaged file is evidence.
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
    """Rename a complete new database into place; a no-op without one."""
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
    """Keep the log of a database that is gone: SQLite would merge it into the next database at that path.

    Args:
        path: The database.
        is_orphan: Returns True if the log is still orphaned; checked again under the lock.

    Returns:
        Where the log is kept; None if there is none.
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
    """Erase the quarantined databases: they hold what must be forgotten."""
    erased = sorted(path.parent.glob(f"{glob.escape(path.name)}.{_QUARANTINE_INFIX}-*"))
    for one in erased:
        one.unlink(missing_ok=True)
    return erased


def is_truncated(db: sqlite3.Connection, path: Path) -> bool:
    """True if the file is shorter than its header says."""
    wal = sidecar(path, "-wal")
    if wal.exists() and wal.stat().st_size:
        return False  # the rest may be in the log
    pages, size = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "page_size"))
    return path.stat().st_size < pages * size


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Let one process at a time replace files. The lock file is removed at the end."""
    file = sidecar(path, ".salvage-lock")
    with FileLock(file, timeout=60, mode=0o600):
        try:
            yield
        finally:
            file.unlink(missing_ok=True)  # `filelock` notices that the file is gone and makes another


def _stamp() -> str:
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"


def _check_exclusive(path: Path) -> None:
    if connection_count(path):
        raise StoreError(f"the database {path} is damaged, and other stores of this process use it; close them")
    if sys.platform == "win32":
        return
    import fcntl

    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 512, _LOCK_OFFSET)
        except OSError:
            raise StoreError(
                f"the database {path} is damaged, and other processes use it; end them, and what is readable is "
                "recovered at the next call"
            ) from None


def _copy(source: Path, target: Path) -> None:
    make_file(target)
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written, 1 << 20)


def _sync(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _recover_rows(new: sqlite3.Connection, copy: Path, path: Path, quarantined_at: str) -> None:
    """Write the readable rows of a copy into a new database, under the first page that yields the most."""
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
        f"the file {path} is no database of sessions, or damaged beyond recovery; it was not changed. "
        "Move it away, restore a backup, or name another path"
    )


def pop_repairs(db: sqlite3.Connection, session_id: str) -> list[Repair]:
    """Return and delete the reports of a session that no listener has received yet."""
    rows = db.execute("SELECT what, lost, kept FROM repairs WHERE session = ? ORDER BY id", (session_id,)).fetchall()
    if rows:
        db.execute("DELETE FROM repairs WHERE session = ?", (session_id,))
    return [Repair(session_id, text_in(what), number_in(lost), text_in(kept)) for what, lost, kept in rows]
