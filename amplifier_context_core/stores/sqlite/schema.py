"""What a database of sessions looks like, and how one is made, found to be ours, and brought up to date.

Entries lie in the file in the order of their histories: their key is the session's number and their position in it,
so that a range of a history is a range of the file, however many sessions share it. Positions are places, except that
what was damaged and taken out leaves a hole. All tables are made at once and in this order, empty ones too: so they
always begin at the same pages, and a database whose first page was destroyed can be given a new one (`salvage`).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from ...errors import StoreError
from ..protocol import Durability
from .faults import code_of, is_unwritable

APPLICATION = 0x41436374  # "ACct": how a database says whose it is
POSITION_BITS = 36  # of an entry's key; those above are the session's number

POSITIONS = (1 << POSITION_BITS) - 1
ELSEWHERE = f"seq <> (id & {POSITIONS}) + 1"  # of an entry: it does not lie where its seq says

_SYNCHRONOUS: dict[Durability, str] = {"fsync": "FULL", "flush": "NORMAL", "none": "OFF"}
_COLUMNS = """seq INTEGER NOT NULL, turn INTEGER NOT NULL, tokens INTEGER NOT NULL, origin TEXT, extra TEXT NOT NULL,
message TEXT NOT NULL, crc INTEGER NOT NULL"""
_FIRST = (
    "CREATE TABLE facts(name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    # `stop` is the position after the newest entry, `indexed` the one up to which the search index is filled.
    """CREATE TABLE sessions(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
stop INTEGER NOT NULL DEFAULT 0, holes TEXT NOT NULL DEFAULT '', last_seq INTEGER NOT NULL DEFAULT 0,
size INTEGER NOT NULL DEFAULT 0, updated INTEGER NOT NULL DEFAULT 0, indexed INTEGER NOT NULL DEFAULT 0)""",
    f"CREATE TABLE entries(id INTEGER PRIMARY KEY, session INTEGER NOT NULL, {_COLUMNS})",
    # A history nobody edited holds seq 1 at position 0, seq 2 at position 1: only what lies elsewhere needs an index.
    f"CREATE INDEX entries_by_seq ON entries(session, seq) WHERE {ELSEWHERE}",
    f"CREATE TABLE archive(id INTEGER PRIMARY KEY, session INTEGER NOT NULL, {_COLUMNS})",
    "CREATE INDEX archive_by_session ON archive(session)",
    """CREATE TABLE checkpoints(session INTEGER PRIMARY KEY, covered INTEGER NOT NULL, crc INTEGER NOT NULL,
data BLOB NOT NULL)""",
    # A row stays when its session is released: it says who had it last. `released` is when that was.
    """CREATE TABLE leases(session TEXT PRIMARY KEY, token TEXT NOT NULL, fence INTEGER NOT NULL, pid INTEGER NOT NULL,
host TEXT NOT NULL, machine TEXT NOT NULL, started TEXT NOT NULL, expires REAL NOT NULL, released REAL)
WITHOUT ROWID""",
    # What was damaged, as it was found; and what was said of that to nobody yet.
    """CREATE TABLE damaged(id INTEGER PRIMARY KEY, session INTEGER NOT NULL, found REAL NOT NULL, came TEXT NOT NULL,
at INTEGER, seq, turn, tokens, origin, extra, message, crc)""",
    """CREATE TABLE repairs(id INTEGER PRIMARY KEY, session TEXT NOT NULL, what TEXT NOT NULL, lost INTEGER NOT NULL,
kept TEXT NOT NULL)""",
    # For people with a database browser; nothing here reads it.
    """CREATE VIEW messages AS SELECT s.id AS session, e.seq, e.turn, e.tokens, e.message FROM entries e
JOIN sessions s ON s.number = e.session ORDER BY e.id""",
)
_MIGRATIONS = (_FIRST,)
VERSION = len(_MIGRATIONS)
_connected: Counter[Path] = Counter()
_counting = threading.Lock()
SEARCH_TABLE = "CREATE VIRTUAL TABLE search USING fts5(text, tokenize = 'unicode61 remove_diacritics 2')"


def open_database(path: Path, durability: Durability, busy: float) -> sqlite3.Connection:
    """A connection to the database at a path; made, and brought up to date, where it is not there or old.

    Raises:
        StoreError: what is there is not a database of ours, or of a newer version.
        sqlite3.Error, OSError: anything else.
    """
    _check_files(path)
    db = connect(path, busy)
    try:
        _check_ours(db, path)
        _use_log(db, busy)
        db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA journal_size_limit = 16777216")
        if _fact(db, "user_version") < VERSION:
            _migrate(db, path)
    except BaseException:
        disconnect(db, path)
        raise
    return db


def open_to_read(path: Path, busy: float) -> sqlite3.Connection:
    """A connection that changes nothing, and needs nothing it could write to: no file, no folder.

    Where there is no file, the database is empty. Where no log can be made, it is read as one that nobody changes; not
    where there is a log that cannot be read along, for that holds what came last.

    Raises:
        StoreError: what is there is not a database of ours, or of a newer version.
        sqlite3.Error, OSError: it cannot be read.
    """
    if not path.exists():
        return _empty(path)
    _check_files(path)
    try:
        return _opened_to_read(path, busy, "mode=ro")
    except sqlite3.OperationalError as problem:
        if not is_unwritable(problem) or beside(path, "-wal").exists():
            raise
        return _opened_to_read(path, busy, "immutable=1")


def _opened_to_read(path: Path, busy: float, how: str) -> sqlite3.Connection:
    db = connect(path, busy, how)
    try:
        _check_ours(db, path)
        db.execute("PRAGMA query_only = ON")
    except BaseException:
        disconnect(db, path)
        raise
    return db


def _empty(path: Path) -> sqlite3.Connection:
    """A database without sessions, in memory; counted as one at a path."""
    db = connect(path, 0.0, "mode=memory")
    _migrate(db, path)
    return db


def only_reads(db: sqlite3.Connection) -> bool:
    """Is it a connection of `open_to_read`: one that may not write, or to no file?"""
    file = db.execute("PRAGMA database_list").fetchone()[2]
    return not file or bool(db.execute("PRAGMA query_only").fetchone()[0])


def connect(path: Path, busy: float, how: str = "") -> sqlite3.Connection:
    """A plain connection, which may be used by any thread (one at a time). Texts come as bytes, damaged or not.

    Args:
        path: of the database.
        busy: seconds to wait while others have it locked.
        how: parameters of SQLite's, such as ``mode=ro``.
    """
    target = f"{path.as_uri()}?{how}" if how else str(path)
    db = sqlite3.connect(
        target, busy, isolation_level=None, check_same_thread=False, cached_statements=256, uri=bool(how)
    )
    db.text_factory = bytes
    with _counting:
        _connected[path] += 1
    return db


def disconnect(db: sqlite3.Connection, path: Path) -> None:
    """Close a connection that `connect` or `open_database` gave."""
    try:
        db.close()
    finally:
        with _counting:
            _connected[path] -= 1


def connections(path: Path) -> int:
    """How many connections this process has to a database. While there are any, nobody here may open and close its
    file by other means: on POSIX systems that takes away the locks of them all."""
    return _connected[path]


def has_search(db: sqlite3.Connection) -> bool:
    """Has the database a table to search in?"""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'search'").fetchone() is not None


def has_fts5(db: sqlite3.Connection) -> bool:
    """Can this build of SQLite search?"""
    return db.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone() is not None


def make_file(path: Path) -> None:
    """An empty file for the owner only, and the folders to it, on disk, if it is not there.

    Making it here, and not by the driver, is what keeps it from being another's, a link, or readable, for a moment.
    """
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):
            folder.mkdir(0o700)
            folder.chmod(0o700)
            sync_folder(folder.parent)
    with suppress(FileExistsError):
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            os.fchmod(made, 0o600)
        finally:
            os.close(made)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have what was made or renamed in a folder on disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def beside(path: Path, ending: str) -> Path:
    """A file that belongs to a database: ``-wal``, ``-shm``."""
    return path.with_name(path.name + ending)


def is_file(path: Path) -> bool:
    """Is it a file, and no link to one?"""
    return path.is_file() and not path.is_symlink()


def _check_files(path: Path) -> None:
    for one in (path, beside(path, "-wal"), beside(path, "-shm")):
        try:
            mode = one.lstat().st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(mode):
            raise StoreError(f"{one} is a symbolic link, which is not followed; name the file it points to")
        if not stat.S_ISREG(mode):
            raise StoreError(f"{one} is no file, so it cannot hold sessions; move it away, or name another path")


def _check_ours(db: sqlite3.Connection, path: Path) -> None:
    """Before anything is written: is it ours, and no newer than we are?"""
    asked = "SELECT * FROM pragma_application_id, pragma_user_version, pragma_schema_version"  # all at one moment
    application, version, changes = db.execute(asked).fetchone()
    if application == version == changes == 0:
        return
    if application != APPLICATION:
        raise StoreError(f"{path} is a database of another application; name another path")
    if version > VERSION:
        raise StoreError(
            f"{path} was written by a newer version (schema {version}, this one knows {VERSION}); update "
            "amplifier-context-core"
        )


def _use_log(db: sqlite3.Connection, busy: float) -> None:
    """Have a write-ahead log. Where two make a database at once, SQLite lets one of them fail without any waiting."""
    until = time.monotonic() + busy
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as problem:
            if code_of(problem) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.005)


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        _check_ours(db, path)  # again: another process may have been at it
        for step in _MIGRATIONS[_fact(db, "user_version") :]:
            for statement in step:
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _fact(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
