"""Databases of three sessions, damaged in one place."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from amplifier_context_core.stores.sqlite.store import SqliteStore
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.sqlite.damage import PAGE

SECRET = "correct-horse-battery-staple"


async def build(path: Path) -> None:
    """Make a database of three sessions, one of them edited; closed."""
    store = SqliteStore(path, durability="none")
    await store.append("s", entries(1, 20))
    await store.append("t", entries(1, 6, session_id="t"))
    await store.append("t", [entry(seq, f"{SECRET} {seq}", session_id="t") for seq in range(7, 11)])
    await store.replace("t", 5, [entry(seq, session_id="t") for seq in range(11, 15)])
    await store.append("u", entries(1, 3, session_id="u"))
    await store.save_checkpoint("s", 5, b"five")
    await store.close()


T_HISTORY = [1, 2, 3, 4, 5, 11, 12, 13, 14]
T_ARCHIVE = [6, 7, 8, 9, 10]


def page_of(path: Path, name: str) -> int:
    """Return the offset of the only page of a table or an index."""
    db = sqlite3.connect(path)
    ((page,),) = db.execute("SELECT pageno FROM dbstat WHERE name = ?", (name,))
    db.close()
    return (page - 1) * PAGE


def empty(path: Path, name: str) -> None:
    """Empty a table or an index of one page: a valid page, with none of its rows to be found."""
    at = page_of(path, name)
    data = bytearray(path.read_bytes())
    data[at + 1 : at + 8] = bytes(4) + PAGE.to_bytes(2, "big") + bytes(1)
    path.write_bytes(data)


def flip(path: Path, at: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def none_left(path: Path) -> None:
    empty(path, "sqlite_autoindex_sessions_1")


def not_text(path: Path) -> None:
    """Make the text of an index invalid: SQLite's description of it cannot be decoded."""
    flip(path, path.read_bytes().index(b"WHERE seq <> (id") + 12, 7)
