"""The search index over messages: the FTS5 tables of `stores/word_index.py`, filled by the first search."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence

from ...transcript.query import Query
from ...transcript.ranking import Text, search
from ...transcript.search import ScanIndex, ranked_text
from ...transcript.searchable import searchable_text
from ..word_index import Fts, add_texts
from .changes import has_indexed, save_session_row
from .queries import find_session, iterate_rows
from .rows import ENTRY_COLUMNS, decode_entry_row
from .schema import SEARCH_TABLES, can_index, create_search_tables, has_table

_BATCH_SECONDS = 0.02  # of one batch, before other tasks run
# Each batch is a segment of a table. Segments are joined at 16 and at 64, FTS5's defaults are 4 and 16: filling takes
# a third less time.
_MERGING = (("automerge", 16), ("crisismerge", 64))
_SELECT_ROWS = f"SELECT id, {ENTRY_COLUMNS} FROM entries WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"  # noqa: S608


def index_next_batch(db: sqlite3.Connection, session_id: str) -> bool:
    """Add the next batch of a session's entries to the index, inside a transaction. Return True if there are more."""
    if not can_index(db):
        return False
    if not has_table(db, "words") and find_session(db, session_id) is not None:
        create_search_tables(db)
        for table in SEARCH_TABLES:
            db.executemany(f"INSERT INTO {table}({table}, rank) VALUES (?, ?)", _MERGING)  # noqa: S608
    session = find_session(db, session_id)
    if session is None or session.indexed >= session.length:
        return False
    until = time.perf_counter() + _BATCH_SECONDS
    keys = range(session.key_of(session.indexed), session.key_of(session.length))
    slot = session.length

    def texts() -> Iterator[tuple[int, str]]:
        nonlocal slot
        for number, row in enumerate(iterate_rows(db, keys.start, keys.stop)):
            if number and time.perf_counter() > until:
                slot = row[0] - session.key_of(0)
                return
            entry = decode_entry_row(row, session_id, row[0])
            if entry is not None:
                yield row[0], searchable_text(entry)

    add_texts(db, texts(), replace=has_indexed(db, keys.start, keys.stop))
    session.indexed = slot
    save_session_row(db, session)
    return slot < session.length


def matching_seqs(db: sqlite3.Connection, session_id: str, query: str, limit: int) -> list[int] | None:
    """Return the seqs of the matching entries, best first; None if the index does not hold all entries."""
    session, parsed = find_session(db, session_id), Query(query)
    if session is None or not session.length or not parsed or limit < 1:
        return []
    if session.indexed < session.length or not can_index(db) or not has_table(db, "words"):
        return None
    seqs: dict[int, int] = {}

    def texts(keys: Sequence[int]) -> Iterator[tuple[int, Text]]:
        for row in db.execute(_SELECT_ROWS, (json.dumps(keys),)):
            entry = decode_entry_row(row, session_id, row[0])
            if entry is not None:
                seqs[row[0]] = entry.seq
                yield row[0], ranked_text(entry)

    index = Fts(db, range(session.key_of(0), session.key_of(session.length)), texts)
    return [seqs[key] for key in search(parsed, index, session.length, limit)]


def scan(db: sqlite3.Connection, session_id: str, query: str, limit: int) -> list[int]:
    session = find_session(db, session_id)
    if session is None:
        return []
    rows = iterate_rows(db, session.key_of(0), session.key_of(session.length))
    entries = (decode_entry_row(row, session_id, row[0]) for row in rows)
    return [entry.seq for entry in ScanIndex().search(filter(None, entries), query, limit)]
