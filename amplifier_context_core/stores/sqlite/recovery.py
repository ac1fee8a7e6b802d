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
from .row_recovery import carry
from .schema import beside, connections, disconnect, make_file, open_database, sync_folder

_LOCKED = 0x40000000  # where SQLite's locks lie in a file
_KEPT = "damaged"


class Unrecoverable(StoreError):
    """Nothing in a damaged database is known to be ours."""


_unsalvageable: dict[Path, tuple[int, ...]] = {}  # as they were: each attempt reads all of the file


def salvage(path: Path, seen: tuple[int, int] | None) -> Path | None:
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
        if (status.st_dev, status.st_ino) != seen:
            return None
        now = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if _unsalvageable.get(path) == now:
            raise _nothing_of_ours(path)
        try:
            return _salvage(path)
        except Unrecoverable:
            _unsalvageable[path] = now
            raise


def _salvage(path: Path) -> Path:
    _check_alone(path)
    stamp = _stamp()
    kept, made = beside(path, f".{_KEPT}-{stamp}"), beside(path, f".salvaging-{stamp}")
    copy = beside(path, f".reading-{stamp}")
    try:
        # Read from a copy: a write-ahead log is worked into the file that is opened, and the damaged one is evidence.
        for ending in ("", "-wal"):
            with suppress(FileNotFoundError):
                _copy(beside(path, ending), beside(copy, ending))
        make_file(made)
        new = open_database(made, "none", 1.0)
        try:
            _fill(new, copy, path, str(kept))
        finally:
            disconnect(new, made)
        _check_alone(path)
        _sync(made)
        os.replace(made, beside(path, f".salvaged-{stamp}"))
        sync_folder(path.parent)
        _finish(path)
    finally:
        for one in (copy, made):
            for ending in ("", "-wal", "-shm"):
                beside(one, ending).unlink(missing_ok=True)
    return kept


def finish(path: Path) -> None:
    """Put a new database that is whole in its place; a no-op where there is none."""
    if any(path.parent.glob(f"{glob.escape(path.name)}.salvaged-*")):
        with _locked(path):
            _finish(path)


def _finish(path: Path) -> None:
    for made in sorted(path.parent.glob(f"{glob.escape(path.name)}.salvaged-*")):
        kept = beside(path, f".{_KEPT}-{made.name.rpartition('.salvaged-')[2]}")
        for ending in ("", "-wal"):
            if not beside(kept, ending).exists():
                with suppress(FileNotFoundError):
                    os.replace(beside(path, ending), beside(kept, ending))
        beside(path, "-shm").unlink(missing_ok=True)
        sync_folder(path.parent)
        os.replace(made, path)
        sync_folder(path.parent)


def put_log_aside(path: Path, is_orphan: Callable[[], bool]) -> Path | None:
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
        kept = beside(path, f".{_KEPT}-{_stamp()}-wal")
        os.replace(beside(path, "-wal"), kept)
        beside(path, "-shm").unlink(missing_ok=True)
        sync_folder(path.parent)
        return kept


def discard_kept(path: Path) -> list[Path]:
    """Erase the damaged databases that were kept: they hold what is to be forgotten."""
    gone = sorted(path.parent.glob(f"{glob.escape(path.name)}.{_KEPT}-*"))
    for one in gone:
        one.unlink(missing_ok=True)
    return gone


def is_cut(db: sqlite3.Connection, path: Path) -> bool:
    """Is the file shorter than it says it is?"""
    wal = beside(path, "-wal")
    if wal.exists() and wal.stat().st_size:
        return False  # the rest may stand there
    pages, size = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "page_size"))
    return path.stat().st_size < pages * size


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """One process at a time puts files in the places of others. The file that is locked goes in the end."""
    file = beside(path, ".salvage-lock")
    with FileLock(file, timeout=60, mode=0o600):
        try:
            yield
        finally:
            file.unlink(missing_ok=True)  # who waited for it is told by `filelock` that it is gone, and makes another


def _stamp() -> str:
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"


def _check_alone(path: Path) -> None:
    if connections(path):
        raise StoreError(f"the database {path} is damaged, and others of this process work on it; close their stores")
    if sys.platform == "win32":
        return
    import fcntl

    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 512, _LOCKED)
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


def _fill(new: sqlite3.Connection, copy: Path, path: Path, kept: str) -> None:
    """Write into a new database what can be read of a copy, under the first page that gives the most."""
    best, most = None, -1
    for page in first_pages(copy):
        carried = carry(new, copy, page, kept)
        if carried is not None and carried.whole:
            return
        if carried is not None and carried.entries > most:
            best, most = page, carried.entries
    if best is None or carry(new, copy, best, kept, whole=False) is None:
        raise _nothing_of_ours(path)


def _nothing_of_ours(path: Path) -> Unrecoverable:
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
