"""Carry a database of format 2, as commit 37ba2a6 wrote it, over to the present format, once.

There, a damaged entry that was moved to another table left a gap in the slots of its history, and leases were rows.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from typing import cast

from .changes import drop_index
from .errors import damage_error
from .rows import MAX_SESSION_NUMBER, RawRow, SessionRow, first_key, number_in, row_checksum, text_in
from .schema import CREATE_SESSIONS, CREATE_VIEW

_FORMER_COLUMNS = "number, id, stop, holes, last_seq, size, updated, indexed, archived, crc"


def _decode_former_row(row: RawRow) -> tuple[SessionRow, list[int]]:
    """Return the session of a row of `sessions`, and the slots of its history without an entry."""
    number, name, stop, holes, last_seq, size, updated, _, archived, crc = row
    values = (number, text_in(name), stop, text_in(holes), *row[4:-1])
    if row_checksum(values) != crc:
        raise damage_error("the row of a session is not as it was written")
    gaps = cast("list[int]", json.loads(holes)) if holes else []
    length = number_in(stop) - len(gaps)
    session = SessionRow(
        number_in(number, 1, MAX_SESSION_NUMBER),
        text_in(name),
        length=length,
        last_seq=last_seq,
        size=size,
        updated=updated,
        archived=archived,
    )
    return session, gaps


def carry_over(db: sqlite3.Connection) -> None:
    found = [_decode_former_row(row) for row in db.execute(f"SELECT {_FORMER_COLUMNS} FROM sessions")]  # noqa: S608 - constant
    for session, gaps in found:
        _close_gaps(db, session, gaps)
    db.execute("DROP VIEW messages")
    db.execute("ALTER TABLE sessions RENAME TO former_sessions")
    db.execute(CREATE_SESSIONS)
    db.execute(CREATE_VIEW)
    for session, _ in found:
        session.insert(db)
    db.execute(
        "UPDATE sqlite_sequence SET seq = (SELECT seq FROM sqlite_sequence WHERE name = 'former_sessions') "
        "WHERE name = 'sessions'"
    )
    for table in ("former_sessions", "leases", "repairs", "damaged"):
        db.execute(f"DROP TABLE {table}")
    db.execute("DELETE FROM facts WHERE name = 'fence'")
    drop_index(db)  # by slots; the next search fills it again


def _close_gaps(db: sqlite3.Connection, session: SessionRow, gaps: list[int]) -> None:
    if not gaps:
        return
    start, stop = first_key(session.number) + gaps[0], first_key(session.number + 1)
    with suppress(sqlite3.OperationalError):  # there are none
        db.execute("DELETE FROM vectors WHERE id >= ? AND id < ?", (start, stop))
    keys = db.execute("SELECT id FROM entries WHERE id >= ? AND id < ? ORDER BY id", (start, stop)).fetchall()
    for to, (key,) in enumerate(keys, start):
        db.execute("UPDATE entries SET id = ?, crc = crc + ? WHERE id = ?", (to, to - key, key))
