"""The first page of a damaged database: it says where each table begins, and without it nothing can be read.

All databases are made alike, so a table begins at one of few pages: the one that the file names, if its schema is
readable; the one of a new database; or the one after a VACUUM (`forget` runs one). Each yields a first page to try.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .driver import CheckedConnection
from .schema import PAGE_SIZE, connect, disconnect, make_schema, schema_objects

Roots = dict[bytes, int]

_WRITE_AHEAD = b"\x02\x02"  # bytes 18 and 19: the file has a write-ahead log


@dataclass(frozen=True, slots=True)
class FirstPage:
    """A first page to read a file with.

    Attributes:
        content: Its bytes.
        is_own: True if it is the file's own.
    """

    content: bytes
    is_own: bool = False


def first_pages(copy: Path) -> Iterator[FirstPage]:
    """Yield the first pages to try: the file's own, then those with other roots.

    Args:
        copy: Copy of the damaged file; it is not changed, except that its write-ahead log is merged into it.
    """
    known = [roots for roots in (_roots_in_file(copy), *_default_roots()) if roots]
    with copy.open("rb") as file:
        yield FirstPage(file.read(PAGE_SIZE), is_own=True)
    pages = copy.stat().st_size // PAGE_SIZE
    tried: list[Roots] = []
    for roots in known:
        if roots not in tried:
            tried.append(roots)
            yield FirstPage(_page(roots, pages))


def _roots_in_file(copy: Path) -> Roots:
    """Return the roots that the file names, as far as its schema is readable."""
    found: list[tuple[tuple[bytes | None, ...], int]] = []
    with suppress(sqlite3.Error):
        db = connect(copy, 1.0)
        try:
            db.execute("PRAGMA writable_schema = ON")  # otherwise one damaged text makes the whole schema unreadable
            for *row, root in db.execute("SELECT name, type, tbl_name, sql, rootpage FROM sqlite_master"):
                if isinstance(root, int) and root > 1:
                    found.append((tuple(row), root))
        finally:
            disconnect(db, copy)
    roots: Roots = {}
    for name, (kind, table, sql) in schema_objects().items():
        expected = (name, kind, table, sql)
        alike = [sum(one == other for one, other in zip(expected, row, strict=True)) for row, _ in found]
        if alike and max(alike) >= 3:
            roots[name] = found[alike.index(max(alike))][1]
    return roots


@cache
def _default_roots() -> tuple[Roots, ...]:
    """Return the roots of a new database, and those after a VACUUM."""
    db = _new_database()
    try:
        new = _roots(db)
        db.execute("VACUUM")
        return new, _roots(db)
    finally:
        db.close()


def _page(roots: Roots, pages: int) -> bytes:
    """Return the first page of an empty database whose tables begin at these pages.

    Args:
        roots: Root pages by name; a missing name gets the root of a new database.
        pages: Number of pages of the file.
    """
    db = _new_database()
    try:
        db.execute("PRAGMA writable_schema = ON")
        for name, root in roots.items():
            db.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = CAST(? AS TEXT)", (root, name))
        page = db.serialize()[:PAGE_SIZE]
    finally:
        db.close()
    # Bytes 28 to 31: pages of the file. Bytes 32 to 39: free pages, which no code here needs.
    return page[:18] + _WRITE_AHEAD + page[20:28] + pages.to_bytes(4, "big") + bytes(8) + page[40:]


def _new_database() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None, factory=CheckedConnection)
    db.text_factory = bytes
    db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    make_schema(db)
    return db


def _roots(db: sqlite3.Connection) -> Roots:
    return dict(db.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0"))
