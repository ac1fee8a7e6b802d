"""The driver, held to what it documents: all it raises is `sqlite3.Error`.

By itself it also raises what Python raises while an error is made: of a damaged database SQLite may say bytes that are
no text, and the driver then fails to decode them. Every connection of this package is a `Connection`, so that each
`except sqlite3.Error` is complete.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Self

from .errors import damage_error, driver_error

_UNDOCUMENTED = (UnicodeDecodeError, OverflowError, MemoryError)


def _documented(problem: Exception) -> sqlite3.Error:
    """The driver's error for what it raises without documenting it. The text is left out: it may quote a message."""
    if isinstance(problem, UnicodeDecodeError):
        return damage_error("what SQLite says of the file is no text")
    if isinstance(problem, OverflowError):
        return driver_error(sqlite3.DataError, "a number is larger than 64 bits", "SQLITE_RANGE")
    return driver_error(sqlite3.OperationalError, "out of memory", "SQLITE_NOMEM")


def required_row(cursor: sqlite3.Cursor) -> Any:
    """Return the first row of a query that must find one.

    Raises:
        sqlite3.Error: there is none: the file is damaged.
    """
    row = cursor.fetchone()
    if row is None:
        raise damage_error("a row is missing")
    return row


class CheckedCursor(sqlite3.Cursor):
    """A cursor that raises nothing but `sqlite3.Error`."""

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        try:
            return super().execute(sql, parameters)
        except _UNDOCUMENTED as problem:
            raise _documented(problem) from None

    def executemany(self, sql: str, parameters: Any, /) -> Self:
        try:
            return super().executemany(sql, parameters)
        except _UNDOCUMENTED as problem:
            raise _documented(problem) from None

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except _UNDOCUMENTED as problem:
            raise _documented(problem) from None

    def fetchone(self) -> Any:
        try:
            return super().fetchone()
        except _UNDOCUMENTED as problem:
            raise _documented(problem) from None

    def fetchall(self) -> list[Any]:
        try:
            return super().fetchall()
        except _UNDOCUMENTED as problem:
            raise _documented(problem) from None


class CheckedConnection(sqlite3.Connection):
    """A connection that raises nothing but `sqlite3.Error`."""

    def execute(self, sql: str, parameters: Any = (), /) -> CheckedCursor:
        return self.cursor(CheckedCursor).execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> CheckedCursor:
        return self.cursor(CheckedCursor).executemany(sql, parameters)
