"""The schema of a database of sessions: how one is created, recognised as ours, and brought up to date.

Entries are in the file in the order of their histories. Their key is the session's number and their slot in it, so that
a range of a history is a range of the file, however many sessions share it. An entry's slot is its index.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...errors import StoreError
from ..protocol import Durability
from .driver import Connection, connect, opening
from .errors import REPAIR, code_of, damage_error, is_unwritable, needs_rollback
from .journal import JournalMode, journal_mode

SIDECARS = ("-wal", "-shm", "-journal")  # files beside a database
APPLICATION_ID = 0x41436374  # "ACct"; marks a database as ours
ONE_SESSION_ID = 0x41436F73  # "ACos"; the same, of a database that holds one session whatever its id
SLOT_BITS = 36  # bits of an entry's key; the bits above are the session's number

MAX_SLOTS = (1 << SLOT_BITS) - 1
NOT_AT_SEQ = f"seq <> (id & {MAX_SLOTS}) + 1"  # the entry is not in the slot that its seq suggests

_SYNCHRONOUS: dict[Durability, str] = {"fsync": "FULL", "flush": "NORMAL", "none": "OFF"}
_COLUMNS = """seq INTEGER NOT NULL, turn INTEGER NOT NULL, tokens INTEGER NOT NULL, origin TEXT, extra TEXT NOT NULL,
message TEXT NOT NULL, crc INTEGER NOT NULL"""
# The columns are those of `rows.SessionRow`, and the checksum of the row.
CREATE_SESSIONS = """CREATE TABLE sessions(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
length INTEGER NOT NULL, last_seq INTEGER NOT NULL, size INTEGER NOT NULL, updated INTEGER NOT NULL,
indexed INTEGER NOT NULL, archived INTEGER NOT NULL, edits INTEGER NOT NULL, crc INTEGER NOT NULL)"""
# For people with a database browser; no code here reads it.
CREATE_VIEW = """CREATE VIEW messages AS SELECT s.id AS session, e.seq, e.turn, e.tokens, e.message FROM entries e
JOIN sessions s ON s.number = e.session ORDER BY e.id"""
_CREATE_TABLES = (
    "CREATE TABLE facts(name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    CREATE_SESSIONS,
    f"CREATE TABLE entries(id INTEGER PRIMARY KEY, session INTEGER NOT NULL, {_COLUMNS})",
    # An unedited history holds seq 1 in slot 0, seq 2 in slot 1: only the other entries need an index.
    f"CREATE INDEX entries_by_seq ON entries(session, seq) WHERE {NOT_AT_SEQ}",
    f"CREATE TABLE archive(id INTEGER PRIMARY KEY, session INTEGER NOT NULL, {_COLUMNS})",
    "CREATE INDEX archive_by_session ON archive(session)",
    """CREATE TABLE checkpoints(session INTEGER PRIMARY KEY, covered INTEGER NOT NULL, crc INTEGER NOT NULL,
data BLOB NOT NULL)""",
    CREATE_VIEW,
)
SEARCH_TABLES = ("words", "names")  # FTS5 tables, which `word_index` fills and asks
_CREATE_SEARCH_TABLES = (
    "CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2'{0})",
    "CREATE VIRTUAL TABLE names USING fts5(text, tokenize = 'trigram'{0})",
)
CarryOver = Callable[[sqlite3.Connection], None]  # brings a database of the former format to the present one
Fill = Callable[[sqlite3.Connection], None]  # writes the first rows of a new database of one session
_SMALL_PAGES = 1024  # bytes; a database of one session has a dozen pages before its first message
VERSION = 3  # of the format
FORMER_VERSION = 2


def open_database(
    path: Path,
    durability: Durability,
    busy: float,
    carry_over: CarryOver,
    fill: Fill | None = None,
    journal: JournalMode | None = None,
) -> Connection:
    """Return a connection to the database at a path. Create the database if it is missing; bring it up to date. `busy`
    is in seconds. `fill` is called when a database of one session is created, in the same transaction; None for many
    sessions. Raise `StoreError` if the file is not ours, or of a newer version.
    """
    check_not_replaced(path)
    make_file(path)
    _check_file_types(path)
    db = connect(path, busy)
    try:
        version = _check_schema(db, path)
        if not version and fill is not None:
            db.execute(f"PRAGMA page_size = {_SMALL_PAGES}")
        _set_journal_mode(db, journal or journal_mode(path), busy)
        # A damaged page is noticed when it is read, before a message is written to it.
        db.execute("PRAGMA cell_size_check = ON")
        db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA journal_size_limit = 16777216")
        if version < VERSION:
            _bring_up_to_date(db, path, carry_over, fill)
        check_not_replaced(path)  # again: from here on, no repair takes the file for unused
    except BaseException:
        db.close()
        raise
    return db


def open_to_read(path: Path, busy: float) -> Connection:
    """Return a connection that changes nothing, and needs no space, folder or file that it could write to: only a
    transaction that a crash interrupted is rolled back where it left a journal.

    If there is no file, the database is empty. If shared memory cannot be created beside the log and there is no log,
    the file is read as immutable. With a log it is not: the log holds the newest messages. Raise `StoreError` if the
    file is not a database of ours, or of another version.
    """
    check_not_replaced(path)
    if not path.exists():
        return open_in_memory(path)
    _check_file_types(path)
    try:
        return _opened_to_read(path, busy, "mode=ro")
    except sqlite3.OperationalError as problem:
        if needs_rollback(problem):
            how = "mode=rw"  # undoes what a crash left of a transaction, as any reader must
        elif not is_unwritable(problem) or is_log_left(path):
            raise
        else:
            how = "immutable=1"
    return _opened_to_read(path, busy, how)


def open_in_memory(path: Path, fill: Fill | None = None) -> Connection:
    """See `open_database` for `fill`."""
    db = connect(path, 0.0, "mode=memory")
    _create_tables(db, fill)
    return db


def _opened_to_read(path: Path, busy: float, how: str) -> Connection:
    db = connect(path, busy, how)
    try:
        if _check_schema(db, path) == FORMER_VERSION:
            raise StoreError(f"{path} has the format of a former version; open it once where it can be written to")
        db.execute("PRAGMA query_only = ON")
    except BaseException:
        db.close()
        raise
    return db


def can_index(db: sqlite3.Connection) -> bool:
    """True if this build of SQLite has FTS5 with both tokenizers."""
    if sqlite3.sqlite_version_info < (3, 34):  # has no trigram
        return False
    return db.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone() is not None


def create_search_tables(db: sqlite3.Connection, options: str = "") -> None:
    for statement in _CREATE_SEARCH_TABLES:
        db.execute(statement.format(options))


def has_table(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None


def make_file(path: Path) -> None:
    """Create an empty file for its owner only, and its folders, synced, if it does not exist.

    Creating it here, and not in the driver, ensures that it is never another user's, a link, or readable to others.
    """
    make_folder(path.parent)
    with opening, suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
        sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, for their owner only, if they do not exist."""
    for folder in reversed([one for one in (path, *path.parents) if not one.exists()]):
        with suppress(FileExistsError):
            folder.mkdir(0o700)
            folder.chmod(0o700)
            sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sidecar(path: Path, ending: str) -> Path:
    """Return the path of a file that belongs to a database: ``-wal``, ``-shm``."""
    return path.with_name(path.name + ending)


def keep_log(path: Path) -> Path:
    """Move away the log of a database that is gone: SQLite would merge it into another one at its path."""
    kept = sidecar(path, f".damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-wal")
    with suppress(FileNotFoundError):
        os.replace(sidecar(path, "-wal"), kept)
    sidecar(path, "-shm").unlink(missing_ok=True)
    sync_folder(path.parent)
    return kept


def replacement(path: Path) -> Path:
    """Return the path of the new file of a repair, complete, until it takes the place of the damaged one."""
    return sidecar(path, ".repaired")


def check_not_replaced(path: Path) -> None:
    """Raise `StoreError` if a repair was interrupted: the file at the path may be without its log, or missing."""
    if replacement(path).exists():
        raise StoreError(f"a repair of the database {path} was interrupted. {REPAIR}")


def is_log_left(path: Path) -> bool:
    """True if there is a log or a journal, without which the file may not be what was committed."""
    for one in (sidecar(path, "-wal"), sidecar(path, "-journal")):
        with suppress(FileNotFoundError):
            if one.stat().st_size:
                return True
    return False


def _check_file_types(path: Path) -> None:
    for one in (path, *(sidecar(path, ending) for ending in SIDECARS)):
        try:
            mode = one.lstat().st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(mode):
            raise StoreError(f"{one} is a symbolic link, which is not followed; name the file it points to")
        if not stat.S_ISREG(mode):
            raise StoreError(f"{one} is no file, so it cannot hold sessions; move it away, or name another path")


def _check_schema(db: Connection, path: Path) -> int:
    """Return the version of a database that is ours; 0 for an empty file. Raise `StoreError` if it belongs to another
    application, or this code does not know its version.
    """
    # One statement, so that all values are of one moment.
    query = "SELECT * FROM pragma_application_id, pragma_user_version, pragma_schema_version"
    try:
        application, version, changes = db.execute(query).fetchone()
        if application == version == changes == 0:
            return 0
        if application not in (APPLICATION_ID, ONE_SESSION_ID):
            raise StoreError(f"{path} is a database of another application; name another path, or restore a backup")
        if version > VERSION:
            raise StoreError(
                f"{path} was written by a newer version (schema {version}, this one knows {VERSION}); update "
                "amplifier-context-core, or restore a backup"
            )
        if version < FORMER_VERSION:
            raise StoreError(
                f"{path} has format {version}, which this version does not read; open it once with commit 37ba2a6 of "
                "amplifier-context-core, which brings it to one that this version takes over"
            )
    except sqlite3.OperationalError as problem:
        if code_of(problem) == sqlite3.SQLITE_ERROR:  # these statements fail for no other reason
            raise damage_error("the schema cannot be read") from problem
        raise
    db.holds_one = application == ONE_SESSION_ID
    return version


def _set_journal_mode(db: Connection, mode: JournalMode, busy: float) -> None:
    """Set the journal mode. If two processes create a database at once, SQLite lets one fail without waiting."""
    until = time.monotonic() + busy
    while True:
        try:
            db.execute(f"PRAGMA journal_mode = {mode}")
            return
        except sqlite3.OperationalError as problem:
            if code_of(problem) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.005)


def _bring_up_to_date(db: Connection, path: Path, carry_over: CarryOver, fill: Fill | None) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        version = _check_schema(db, path)  # checked again: another process may have done it
        if version == FORMER_VERSION:
            carry_over(db)
        elif version == 0:
            _create_tables(db, fill)
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _create_tables(db: Connection, fill: Fill | None) -> None:
    for statement in _CREATE_TABLES:
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID if fill is None else ONE_SESSION_ID}")
    if fill is not None:
        db.holds_one = True
        fill(db)
