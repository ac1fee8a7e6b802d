"""Connections that raise only what the driver documents: `sqlite3.Error`.

The driver also raises errors of Python while it makes an error of its own: SQLite may describe a damaged database in
bytes that are no text, and the driver fails to decode them. Every connection of this package is a `CheckedConnection`,
so that each `except sqlite3.Error` is complete.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .errors import damage_error, driver_error

P = ParamSpec("P")
T = TypeVar("T")
_UNDOCUMENTED = (UnicodeDecodeError, OverflowError, MemoryError)


def _documented(problem: Exception) -> sqlite3.Error:
    """Return the driver's error for an undocumented one. Its text is omitted, because it may quote a message."""
    if isinstance(problem, UnicodeDecodeError):
        return damage_error("what SQLite says of the file is no text")
    if isinstance(problem, OverflowError):
        return driver_error(sqlite3.DataError, "a number is larger than 64 bits", "SQLITE_RANGE")
    return driver_error(sqlite3.OperationalError, "out of memory", "SQLITE_NOMEM")


def required_row(cursor: sqlite3.Cursor) -> Any:
    """Return the first row of a query that must find one.

    Raises:
        sqlite3.Error: There is none: the file is damaged.
    """
    row = cursor.fetchone()
    if row is None:
        raise damage_error("a row is missing")
    return row


def _checked(call: Callable[P, T]) -> Callable[P, T]:
    def checked(*arguments: P.args, **more: P.kwargs) -> T:
        try:
            return call(*arguments, **more)
        except _UNDOCUMENTED as problem:
            raise _documented(problem) from None

    return checked


class CheckedCursor(sqlite3.Cursor):
    """A cursor that raises nothing but `sqlite3.Error`."""

    execute = _checked(sqlite3.Cursor.execute)
    executemany = _checked(sqlite3.Cursor.executemany)
    fetchone = _checked(sqlite3.Cursor.fetchone)
    fetchall = _checked(sqlite3.Cursor.fetchall)
    __next__ = _checked(sqlite3.Cursor.__next__)


class CheckedConnection(sqlite3.Connection):
    """A connection that raises nothing but `sqlite3.Error`.

    Attributes:
        holds_one: The database holds one session, whatever id its row has: its folder may have been renamed.
    """

    holds_one = False

    def execute(self, sql: str, parameters: Any = (), /) -> CheckedCursor:
        return self.cursor(CheckedCursor).execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> CheckedCursor:
        return self.cursor(CheckedCursor).executemany(sql, parameters)
