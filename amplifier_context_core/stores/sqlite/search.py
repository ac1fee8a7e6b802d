"""The search index over messages: an FTS5 table of `stores/word_index.py`, filled by the first search."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator

from ...transcript.ranking import Query, Text, rank
from ...transcript.search import ScanIndex, ranked_text, searchable_text
from ..word_index import candidates, has_fts5, indexed
from ..yielding import yielding
from .changes import save_session_row
from .queries import find_session, iterate_rows, session_rows
from .rows import ENTRY_COLUMNS, decode_entry_row, first_key
from .schema import SEARCH_TABLE, has_search_table

_BATCH_SECONDS = 0.02  # of one batch, before other tasks run
# Each batch is a segment of the index. Segments are joined at 16 and at 64, FTS5's defaults are 4 and 16: filling takes
# a third less time, searching as long.
_MERGING = (("automerge", 16), ("crisismerge", 64))
# A fill of so many batches that doubles the index, or more, joins all segments at its end: searches take a third less
# time. Each step joins so many pages, so that other tasks run between them.
_JOINED_AFTER = 16
_PAGES = 200
_INSERT = "INSERT INTO search(rowid, text, grams) VALUES (?, ?, ?)"
_REPLACE = "INSERT OR REPLACE INTO search(rowid, text, grams) VALUES (?, ?, ?)"  # looks for each key first
_MAX_KEYS = 50  # of one statement
_SELECT_ROWS = f"SELECT id, {ENTRY_COLUMNS} FROM entries WHERE id IN ({','.join('?' * _MAX_KEYS)}) ORDER BY id"  # noqa: S608


def index_next_batch(db: sqlite3.Connection, session_id: str) -> bool:
    """Add the next batch of a session's entries to the index, inside a transaction. Return True if there are more."""
    session = find_session(db, session_id)
    if session is None or session.indexed >= session.length or not has_fts5(db):
        return False
    if not has_search_table(db):
        db.execute(SEARCH_TABLE)
        for setting in _MERGING:
            db.execute("INSERT INTO search(search, rank) VALUES (?, ?)", setting)
    until = time.perf_counter() + _BATCH_SECONDS
    start = first_key(session.number)
    slot = session.length
    keys = range(start + session.indexed, start + session.length)
    add = _REPLACE if _has_rows(db, keys) else _INSERT
    for number, row in enumerate(iterate_rows(db, keys.start, keys.stop)):
        if number and time.perf_counter() > until:
            slot = row[0] - start
            break
        entry = decode_entry_row(row[1:], session_id, row[0])
        if entry is not None:
            db.execute(add, (row[0], *indexed(searchable_text(entry))))
    session.indexed = slot
    save_session_row(db, session)
    return slot < session.length


class IndexFill:
    """Fills the index for one search, a step at a time, each in a transaction of its own."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._batches = 0
        self._rows = 0  # of the index, before the first batch
        self._pages = 0  # what the next step joins; 0 while batches are indexed

    def step(self, db: sqlite3.Connection) -> bool:
        """Index a batch, or join segments of the index. Return True if there is more to do."""
        if self._pages:
            pages, self._pages = self._pages, _PAGES
            return _join_segments(db, pages)
        if not self._batches:
            self._rows = _indexed_rows(db)
        self._batches += 1
        if index_next_batch(db, self._session_id):
            return True
        if self._batches >= _JOINED_AFTER and _indexed_rows(db) >= 2 * self._rows:
            self._pages = -_PAGES  # negative: join all segments, also few of a size
        return bool(self._pages)


def _indexed_rows(db: sqlite3.Connection) -> int:
    return sum(session.indexed for session in session_rows(db))


def _join_segments(db: sqlite3.Connection, pages: int) -> bool:
    before = db.total_changes
    db.execute("INSERT INTO search(search, rank) VALUES ('merge', ?)", (pages,))
    return db.total_changes - before > 1  # 1: nothing was left to join


def _has_rows(db: sqlite3.Connection, keys: range) -> bool:
    """True if the index holds texts of some of these keys, as after an edit."""
    select = "SELECT 1 FROM search_content WHERE id BETWEEN ? AND ? LIMIT 1"
    return db.execute(select, (keys.start, keys.stop - 1)).fetchone() is not None


def matching_seqs(db: sqlite3.Connection, session_id: str, query: str, limit: int) -> list[int] | None:
    """Return the seqs of the matching entries, best first; None if the index does not hold all entries."""
    session, parsed = find_session(db, session_id), Query(query)
    if session is None or not parsed or limit < 1 or not session.length:
        return []
    if session.indexed < session.length or not has_fts5(db) or not has_search_table(db):
        return None
    start, total = first_key(session.number), session.indexed
    found = candidates(db, parsed, range(start, start + total), total, limit)
    seqs: dict[int, int] = {}

    def texts() -> Iterator[tuple[int, Text]]:
        for at in range(0, len(found.keys), _MAX_KEYS):
            keys = found.keys[at : at + _MAX_KEYS]
            for row in db.execute(_SELECT_ROWS, keys + [-1] * (_MAX_KEYS - len(keys))):
                entry = decode_entry_row(row[1:], session_id, row[0])
                if entry is not None:
                    seqs[row[0]] = entry.seq
                    yield row[0], ranked_text(entry)

    ranked = rank(parsed, yielding(texts()), found.frequency, found.nearby, total)
    return [seqs[key] for key in ranked[:limit]]


def scan(db: sqlite3.Connection, session_id: str, query: str, limit: int) -> list[int]:
    """Return the seqs of the matching entries, best first, by scanning the whole history."""
    session = find_session(db, session_id)
    if session is None:
        return []
    start = first_key(session.number)
    rows = iterate_rows(db, start, start + session.length)
    entries = (decode_entry_row(row[1:], session_id, row[0]) for row in rows)
    return [entry.seq for entry in ScanIndex().search(filter(None, entries), query, limit)]
