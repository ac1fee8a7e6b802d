"""Translate errors of the driver and of the operating system into a `StoreError` with advice."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from ...errors import StoreError

REPAIR = (
    "End the programs that use it, then `python -m amplifier_context_core.repair FILE` writes what is readable into a "
    "new one and keeps this one beside it"
)
_ADVICE = {
    sqlite3.SQLITE_BUSY: "is locked by another process; end that one, or try again",
    sqlite3.SQLITE_LOCKED: "is locked by another process; end that one, or try again",
    sqlite3.SQLITE_PROTOCOL: "is locked by another process; end that one, or try again",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full; free some space and try again",
    sqlite3.SQLITE_READONLY: "cannot be written: it, its folder or its file system is read-only; make it writable",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder is there, and neither it nor its disk read-only",
    sqlite3.SQLITE_CORRUPT: f"is damaged. {REPAIR}",
    sqlite3.SQLITE_ERROR: f"does not have the tables that it was made with. {REPAIR}",
    sqlite3.SQLITE_CONSTRAINT: "refused a row, and nothing was changed: this is a fault of this package; report it",
    sqlite3.SQLITE_NOTADB: f"is no database, or damaged from its first byte; name another path. {REPAIR}",
    sqlite3.SQLITE_NOMEM: "cannot be used: memory is short; free some and try again",
    sqlite3.SQLITE_TOOBIG: "cannot take a message this large",
    sqlite3.SQLITE_RANGE: "cannot take a number this large",
    sqlite3.SQLITE_IOERR: "cannot be read or written; check the disk, its space and limits on file sizes",
}
_SYSTEM_ADVICE = {
    errno.ENOSPC: _ADVICE[sqlite3.SQLITE_FULL],
    errno.EDQUOT: "cannot grow: the quota is used up; free some space and try again",
    errno.EROFS: _ADVICE[sqlite3.SQLITE_READONLY],
    errno.EACCES: "cannot be opened: this user may not read and write it and its folder; change their modes or owner",
    errno.EPERM: "cannot be opened: this user may not read and write it and its folder; change their modes or owner",
    errno.ENOTDIR: "cannot be opened: what should be its folder is a file; name another path",
    errno.EFBIG: "cannot grow: a limit on file sizes is reached; raise it and try again",
}
# The shared memory beside a write-ahead log could not be created: no space, or no permission.
_NO_LOG = (sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMMAP)
_UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL)
_UNWRITABLE_SYSTEM = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DriverError = sqlite3.Error | OSError


def store_error(error: DriverError, path: Path) -> StoreError:
    """Return the `StoreError` for an error. The caller chains it."""
    code = code_of(error)
    if isinstance(error, OSError):
        advice = _SYSTEM_ADVICE.get(error.errno or 0, "cannot be opened; check that its folder may be written")
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    else:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE:
            code = sqlite3.SQLITE_FULL
        advice = _ADVICE.get(code, "could not do what was asked")
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    return StoreError(f"the database {path} {advice} ({name})")


def code_of(error: BaseException | None) -> int:
    """Return the primary result code; 0 without one."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def damaged_messages(session_id: str, count: int, path: Path) -> StoreError:
    """Return the error for a change of a session with damaged messages: indexes would not be those of its reader."""
    which = "a message" if count == 1 else f"{count:,} messages"
    return StoreError(f"session {session_id!r}: {which} in {path} cannot be read, so nothing was written. {REPAIR}")


def is_index_damage(error: BaseException | None) -> bool:
    """True if the error says that only the search index is damaged."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CORRUPT_VTAB


def driver_error(kind: type[sqlite3.Error], text: str, name: str) -> sqlite3.Error:
    """Return an error like those of the driver, for a fault that this package found. `name`: a result code."""
    error = kind(text)
    error.sqlite_errorcode, error.sqlite_errorname = getattr(sqlite3, name), name
    return error


def damage_error(text: str) -> sqlite3.Error:
    return driver_error(sqlite3.DatabaseError, text, "SQLITE_CORRUPT")


def needs_rollback(error: BaseException | None) -> bool:
    """True if the error says that a crash left a journal, which a connection that changes nothing cannot roll back."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_ROLLBACK


def is_unwritable(error: BaseException | None) -> bool:
    """True if the error says that nothing can be written; reading may still be possible."""
    if isinstance(error, OSError):
        return error.errno in _UNWRITABLE_SYSTEM
    return code_of(error) in _UNWRITABLE or getattr(error, "sqlite_errorcode", 0) in _NO_LOG
