"""What can be saved of a damaged database is written into a new one, and the damaged one is kept beside it.

A page that cannot be read takes only itself along: entries lie under keys that can be counted, so what a range cannot
give is asked for in halves, down to single rows, and every row has its checksum. A database whose first page is gone
is read with the first page of an empty one, for they all begin alike. The new database takes the damaged one's place
only when it is whole and on disk; who is killed in between has the rest done by the next who comes.
"""

from __future__ import annotations

import glob
import os
import shutil
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from filelock import FileLock

from ...errors import StoreError
from ..protocol import Repair
from .rows import COLUMNS, Found, entry_in, first_key, holes_of
from .schema import (
    APPLICATION,
    POSITION_BITS,
    beside,
    connect,
    connections,
    disconnect,
    make_file,
    open_database,
    sync_folder,
)

_CHUNK = 1_000  # keys asked for at once
_SMALLEST_ROW = 16  # bytes
_GIVE_UP = 20  # chunks without a single row: a page that leads to others, and is lost, takes fewer along
_LOCKED = 0x40000000  # where SQLite's locks lie in a file
_KEPT = "damaged"


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
        return _salvage(path)


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
    """Write into a new database what can be read of a copy."""
    for first_page in (False, True):
        if first_page:
            _transplant(new, copy)
        old = connect(copy, 1.0)
        try:
            if not _is_ours(old):
                continue
            new.execute("BEGIN")
            _Salvage(old, new, kept).run()
            new.execute("COMMIT")
            return
        finally:
            if new.in_transaction:
                new.execute("ROLLBACK")
            disconnect(old, copy)
    raise StoreError(
        f"the file {path} is no database of sessions, or damaged beyond what can be saved; it was left as it is. Move "
        "it away, restore a backup, or name another path"
    )


def _is_ours(old: sqlite3.Connection) -> bool:
    try:
        (application,) = old.execute("PRAGMA application_id").fetchone()
        old.execute("SELECT count(*) FROM sqlite_master WHERE name = 'entries'").fetchone()
        # Of a foreign file under our first page nothing would make sense.
        return application == APPLICATION and any(True for _ in _Salvage(old, old, "").heads())
    except sqlite3.Error:
        return False


def _transplant(new: sqlite3.Connection, copy: Path) -> None:
    new.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (_, _, name) = new.execute("PRAGMA database_list").fetchone()
    pages = copy.stat().st_size // 4096
    source = Path(os.fsdecode(name)).read_bytes()[:4096]
    # Bytes 28 to 31: pages of the file; 32 to 39: free pages, which nobody here will look for.
    page = source[:28] + pages.to_bytes(4, "big") + bytes(8) + source[40:]
    with copy.open("r+b") as file:
        file.write(page)


@dataclass(slots=True)
class _Session:
    number: int
    name: str
    stop: int | None = None
    holes: int = 0
    last_seq: int = 0
    updated: int = 0


@dataclass(slots=True)
class _Salvage:
    """Carries rows from one database to another."""

    old: sqlite3.Connection
    new: sqlite3.Connection
    kept: str
    unreadable: int = field(default=0)

    def run(self) -> None:
        """Carry over all there is."""
        for table, columns in (("leases", 9), ("facts", 2), ("repairs", 5), ("damaged", 13)):
            with suppress(sqlite3.Error):
                marks = ", ".join("?" * columns)
                for row in self.old.execute(f"SELECT * FROM {table}"):  # noqa: S608 - one of four names
                    self.new.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", _texts(row, table))  # noqa: S608
        for session in self.heads():
            self._session(session)
        # Fences rise, also when the last one could not be read.
        self.new.execute("INSERT OR IGNORE INTO facts VALUES ('fence', ?)", (int(time.time()),))

    def heads(self) -> Iterator[_Session]:
        """All sessions, also those whose row is gone: an index knows their names, their entries their numbers."""
        names: dict[int, str] = {}
        known: dict[int, _Session] = {}
        with suppress(sqlite3.Error):
            for name, number in self.old.execute("SELECT id, number FROM sessions ORDER BY id"):
                names[number] = bytes(name).decode("utf-8", "replace")
        sql = "SELECT number, id, stop, holes, last_seq, updated FROM sessions WHERE number >= ? AND number <= ?"
        for row in self._rows(sql, 1, max(names, default=None) if names else None):
            with suppress(TypeError, ValueError, AttributeError):
                number, name, stop, holes, last_seq, updated = row
                believed = stop if isinstance(stop, int) and 0 <= stop <= self._most_rows() else None
                known[number] = _Session(number, name.decode(), believed, len(holes_of(holes)), last_seq, updated)
        number = 0
        with suppress(sqlite3.Error):
            while row := self.old.execute("SELECT id FROM entries WHERE id >= ?", (first_key(number + 1),)).fetchone():
                number = row[0] >> POSITION_BITS
                names.setdefault(number, f"recovered-{number}")
        for number in sorted({*names, *known}):
            yield known.get(number) or _Session(number, names[number])

    def _most_rows(self) -> int:
        """More entries than this cannot be in the file."""
        pages, size = (self.old.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        return int(pages) * int(size) // _SMALLEST_ROW

    def _session(self, session: _Session) -> None:
        start = first_key(session.number)
        last = None if session.stop is None else start + session.stop - 1
        sql = f"SELECT id, {COLUMNS} FROM entries WHERE id >= ? AND id <= ?"  # noqa: S608 - constants
        places: list[int] = []
        size, bad = 0, 0
        # Where the end that is known is wrong, more comes behind it.
        behind = () if last is None else self._rows(sql, last + 1, None)
        for row in chain(self._rows(sql, start, last), behind):
            if row[0] >> POSITION_BITS != session.number:
                break
            if entry_in(row[1:], session.name, row[0] - start) is None:
                self._aside(session, row, "entries", row[0] - start)
                bad += 1
                continue
            values = ", ".join("?" * 9)
            self.new.execute(
                f"INSERT INTO entries VALUES ({values})",  # noqa: S608 - question marks
                (start + len(places), session.number, *_columns(row, len(places) - (row[0] - start))),
            )
            places.append(row[0] - start)
            size += len(row[6])
            session.last_seq = max(session.last_seq, row[1])
        archived_bad = self._archive(session)
        lost = (session.stop - session.holes - len(places) if session.stop is not None else bad) + archived_bad
        self.new.execute(
            "INSERT INTO sessions(number, id, stop, last_seq, size, updated) VALUES (?, ?, ?, ?, ?, ?)",
            (session.number, session.name, len(places), session.last_seq, size, session.updated),
        )
        gone = self._checkpoint(session, places)
        if lost > 0 or gone:
            self._tell(session, lost, gone)

    def _archive(self, session: _Session) -> int:
        bad = 0
        keys: list[int] = []
        with suppress(sqlite3.Error):
            found = self.old.execute("SELECT id FROM archive WHERE session = ? ORDER BY id", (session.number,))
            for (key,) in found:
                keys.append(key)
        for key in keys:
            try:
                row = self.old.execute(f"SELECT id, {COLUMNS} FROM archive WHERE id = ?", (key,)).fetchone()  # noqa: S608
            except sqlite3.Error:
                row = None
            if row is None:
                bad += 1
            elif entry_in(row[1:], session.name) is None:
                self._aside(session, row, "archive", None)
                bad += 1
            else:
                self.new.execute(
                    "INSERT OR REPLACE INTO archive VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (key, session.number, *_columns(row)),
                )
                session.last_seq = max(session.last_seq, row[1])
        return bad

    def _checkpoint(self, session: _Session, places: list[int]) -> bool:
        """Carry the checkpoint over. True if there was one that does not stand any more."""
        try:
            row = self.old.execute(
                "SELECT covered, crc, data FROM checkpoints WHERE session = ?", (session.number,)
            ).fetchone()
        except sqlite3.Error:
            return True
        if row is None:
            return False
        covered, crc, data = row
        whole = session.holes == 0 and places[:covered] == list(range(covered))
        if not isinstance(data, bytes) or zlib.crc32(data) != crc or not whole:
            return True
        self.new.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?)", (session.number, covered, crc, data))
        return False

    def _aside(self, session: _Session, row: Found, came: str, at: int | None) -> None:
        marks = ", ".join("?" * 11)
        self.new.execute(
            f"INSERT INTO damaged(session, found, came, at, {COLUMNS}) VALUES ({marks})",  # noqa: S608 - constants
            (session.number, time.time(), came, at, *row[1:]),
        )

    def _tell(self, session: _Session, lost: int, checkpoint: bool) -> None:
        what = "the database was damaged and has been written anew"
        what += f"; {lost:,} messages of this session could not be read" if lost > 0 else ""
        what += "; its checkpoint is gone" if checkpoint else ""
        self.new.execute(
            "INSERT INTO repairs(session, what, lost, kept) VALUES (?, ?, ?, ?)",
            (session.name, what, max(lost, 0), self.kept),
        )

    def _rows(self, sql: str, first: int, last: int | None) -> Iterator[Found]:
        """Rows of a range of keys, without those that cannot be read.

        Where no end is known, or none can be believed, it is where for long nothing comes any more.
        """
        empty = 0
        while (last is None or first <= last) and empty < (_GIVE_UP if self.unreadable or last is not None else 1):
            end = first + _CHUNK - 1 if last is None else min(first + _CHUNK - 1, last)
            empty += 1
            for row in self._halves(sql, first, end):
                empty = 0
                yield row
            first = end + 1

    def _halves(self, sql: str, first: int, last: int) -> Iterator[Found]:
        try:
            # In a damaged tree they need not come in order, nor once.
            yield from {row[0]: row for row in sorted(self.old.execute(sql, (first, last)), key=_key)}.values()
        except sqlite3.Error:
            if first == last:
                self.unreadable += 1
                return
            middle = (first + last) // 2
            yield from self._halves(sql, first, middle)
            yield from self._halves(sql, middle + 1, last)


def _key(row: Found) -> int:
    return int(row[0])


def _columns(row: Found, moved: int = 0) -> tuple[Any, ...]:
    """Columns of a sound row, its texts as texts, and as it is when it lies so many positions further on."""
    _, seq, turn, tokens, origin, extra, message, crc = row
    return (
        seq,
        turn,
        tokens,
        origin.decode() if origin is not None else None,
        extra.decode(),
        message.decode(),
        crc + moved,
    )


def _texts(row: Iterable[Any], table: str) -> tuple[Any, ...]:
    """A row of a table whose texts are texts, read by a connection that gives bytes."""
    if table == "damaged":
        return tuple(row)
    return tuple(value.decode() if isinstance(value, bytes) else value for value in row)


def pop_repairs(db: sqlite3.Connection, session_id: str) -> list[Repair]:
    """What was said of a session to nobody yet."""
    rows = db.execute("SELECT what, lost, kept FROM repairs WHERE session = ? ORDER BY id", (session_id,)).fetchall()
    if rows:
        db.execute("DELETE FROM repairs WHERE session = ?", (session_id,))
    return [Repair(session_id, what.decode(), lost, kept.decode()) for what, lost, kept in rows]
