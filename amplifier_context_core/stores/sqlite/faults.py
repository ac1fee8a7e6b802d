"""What the driver and the operating system raise, in words that say what to do."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from ...errors import StoreError

_SAYS = {
    sqlite3.SQLITE_BUSY: "is locked by another process; end that one, or try again",
    sqlite3.SQLITE_LOCKED: "is locked by another process; end that one, or try again",
    sqlite3.SQLITE_PROTOCOL: "is locked by another process; end that one, or try again",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full; free some space and try again",
    sqlite3.SQLITE_READONLY: "cannot be written: it, its folder or its file system is read-only; make it writable",
    sqlite3.SQLITE_PERM: "cannot be written: permission is missing; give it back",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that its folder is there and may be written by this user",
    sqlite3.SQLITE_CORRUPT: "is damaged; nothing was changed. `amplifier-context repair` saves what can be read",
    sqlite3.SQLITE_NOTADB: "is no database, or damaged from its first byte; name another path, or restore a backup",
    sqlite3.SQLITE_NOMEM: "cannot be used: memory is short; free some and try again",
    sqlite3.SQLITE_TOOBIG: "cannot take a message this large",
    sqlite3.SQLITE_IOERR: "cannot be read or written; check the disk, its space and limits on file sizes",
}
_SYSTEM_SAYS = {
    errno.ENOSPC: _SAYS[sqlite3.SQLITE_FULL],
    errno.EDQUOT: "cannot grow: the quota is used up; free some space and try again",
    errno.EROFS: _SAYS[sqlite3.SQLITE_READONLY],
    errno.EACCES: "cannot be opened: permission is missing; give it back",
    errno.EPERM: "cannot be opened: permission is missing; give it back",
    errno.ENOTDIR: "cannot be opened: what should be its folder is a file; name another path",
    errno.EFBIG: "cannot grow: a limit on file sizes is reached; raise it and try again",
}
# After these a connection is not trusted any more: a new one looks at the file afresh.
_UNSETTLING = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_NOMEM,
    }
)
Fault = sqlite3.Error | OSError


def store_error(problem: Fault, path: Path) -> StoreError:
    """Our error for what was raised; chain it."""
    code = code_of(problem)
    if isinstance(problem, OSError):
        says = _SYSTEM_SAYS.get(problem.errno or 0, "cannot be opened; check that its folder may be written")
        name = errno.errorcode.get(problem.errno or 0, type(problem).__name__)
    else:
        says = _SAYS.get(code, "could not do what it was asked")
        name = getattr(problem, "sqlite_errorname", None) or type(problem).__name__
    return StoreError(f"the database {path} {says} ({name})")


def code_of(problem: BaseException) -> int:
    """The primary result code; 0 where there is none."""
    return int(getattr(problem, "sqlite_errorcode", 0) or 0) & 0xFF


def is_damage(problem: BaseException) -> bool:
    """Does it say that the file itself is damaged?"""
    # A row where none should be: what is known of the session cannot be right.
    telling = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT)
    return code_of(problem) in telling and not is_index_damage(problem)


def is_index_damage(problem: BaseException) -> bool:
    """Does it say that the search index is damaged, and only that?"""
    return getattr(problem, "sqlite_errorcode", 0) == sqlite3.SQLITE_CORRUPT_VTAB


def damage(what: str) -> sqlite3.DatabaseError:
    """The driver's error for a damaged file, where we found it out ourselves."""
    found = sqlite3.DatabaseError(what)
    found.sqlite_errorcode, found.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
    return found


def moved(what: str) -> sqlite3.OperationalError:
    """The driver's error for a file that is not at its path any more; with a write-ahead log it does not look."""
    found = sqlite3.OperationalError(what)
    found.sqlite_errorcode, found.sqlite_errorname = sqlite3.SQLITE_READONLY_DBMOVED, "SQLITE_READONLY_DBMOVED"
    return found


def is_moved(problem: BaseException) -> bool:
    """Does it say that the file is not at its path any more?"""
    return getattr(problem, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED


def is_unwritable(problem: BaseException) -> bool:
    """Does it say that nothing can be written here? Then there may still be something to read."""
    if isinstance(problem, OSError):
        return problem.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
    return code_of(problem) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)


def unsettles(problem: BaseException) -> bool:
    """Should the connection be closed after this?"""
    return code_of(problem) in _UNSETTLING
