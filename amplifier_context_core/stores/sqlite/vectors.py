"""Vectors of messages, beside the entries: a table that the first vectors create.

Triggers remove a vector with its entry, and when the entry's message changes. So no change of a history can leave one
behind.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ...messages.hashing import text_digest
from ...transcript.searchable import searchable_text
from ..protocol import KeptVector
from .queries import find_session, rows_by_seq
from .rows import decode_entry_row, first_key, number_in
from .schema import SLOT_BITS, has_table

_CREATE = (
    "CREATE TABLE vectors(id INTEGER PRIMARY KEY, model TEXT NOT NULL, digest BLOB NOT NULL, vector BLOB NOT NULL)",
    """CREATE TRIGGER vectors_of_changed AFTER UPDATE OF message ON entries WHEN new.message IS NOT old.message
BEGIN DELETE FROM vectors WHERE id = old.id; END""",
    "CREATE TRIGGER vectors_of_removed AFTER DELETE ON entries BEGIN DELETE FROM vectors WHERE id = old.id; END",
)


def read_vectors(db: sqlite3.Connection, session_id: str, model: str) -> list[KeptVector]:
    session = find_session(db, session_id)
    if session is None or not has_table(db, "vectors"):
        return []
    start = first_key(session.number)
    select = (
        "SELECT e.seq, v.digest, v.vector FROM vectors v JOIN entries e ON e.id = v.id "
        "WHERE v.id >= ? AND v.id < ? AND v.model = ?"
    )
    rows = db.execute(select, (start, start + (1 << SLOT_BITS), model))
    return [
        KeptVector(number_in(seq), made_of, vector)
        for seq, made_of, vector in rows
        if isinstance(made_of, bytes) and isinstance(vector, bytes)
    ]


def save_vectors(db: sqlite3.Connection, session_id: str, model: str, vectors: Sequence[KeptVector]) -> None:
    """Keep vectors, inside a transaction, but for those of another text than the history has now."""
    session = find_session(db, session_id)
    if session is None:
        return
    if not has_table(db, "vectors"):
        for statement in _CREATE:
            db.execute(statement)
    start = first_key(session.number)
    keys = (start, start + (1 << SLOT_BITS))
    # A session has vectors of one model: a look at one of them is enough.
    if db.execute("SELECT model <> ? FROM vectors WHERE id >= ? AND id < ? LIMIT 1", (model, *keys)).fetchone() == (1,):
        db.execute("DELETE FROM vectors WHERE id >= ? AND id < ?", keys)
    by_seq = {one.seq: one for one in vectors}
    for row in rows_by_seq(db, session, sorted(by_seq)):
        entry = decode_entry_row(row, session_id, row[0])
        if entry is not None and text_digest(searchable_text(entry)) == by_seq[entry.seq].digest:
            one = by_seq[entry.seq]
            db.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", (row[0], model, one.digest, one.vector))
