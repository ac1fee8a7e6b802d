"""The search index over messages: an FTS5 table, filled by the first search.

Words are those of Unicode, so that a path or an identifier is a phrase of its parts and is found by the whole and by
each part. Each character of Chinese, Japanese and Korean is a word, so that any run of them is a phrase. A word of a
query also finds words that begin with it. No part of a query reaches FTS5 as syntax.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator

from ...errors import StoreError
from ...transcript.search import ScanIndex, searchable_text
from ...transcript.transcript import Entry
from .columns import number_in
from .queries import find_session, iterate_rows, save_session_row, session_rows
from .rows import SessionRow, decode_entry_row, first_key
from .schema import SEARCH_TABLE, has_fts5, has_search_table

_BATCH_ENTRIES = 500  # entries in one batch, before other tasks run
_BATCH_SECONDS = 0.01  # seconds of one batch, likewise
_WORD = re.compile(r"[\w./:@#-]+")
_PARTS = re.compile(r"\w+")
_MIN_PREFIX = 3  # characters; a shorter word finds only itself
# CJK radicals to ideographs with kana and bopomofo between, Hangul, compatibility forms, halfwidth kana and Hangul, and
# the planes of rarer ideographs.
_UNSPACED = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)


def index_next_batch(db: sqlite3.Connection, session_id: str) -> bool:
    """Add the next batch of a session's entries to the index, inside a transaction. Return True if there are more."""
    session = find_session(db, session_id)
    if session is None or session.indexed_slots >= session.stop_slot:
        return False
    if not has_search_table(db):
        db.execute(SEARCH_TABLE)
    until = time.perf_counter() + _BATCH_SECONDS
    start, slot = first_key(session.number), session.indexed_slots
    rows = list(iterate_rows(db, start + slot, start + session.stop_slot, _BATCH_ENTRIES))
    for row in rows:
        entry = decode_entry_row(row[1:], session_id, row[0])
        if entry is not None:
            index_entry(db, row[0], entry)
        slot = row[0] - start + 1
        if time.perf_counter() > until:
            break
    else:
        slot = slot if len(rows) == _BATCH_ENTRIES else session.stop_slot
    session.indexed_slots = slot
    save_session_row(db, session)
    return slot < session.stop_slot


def index_entry(db: sqlite3.Connection, key: int, entry: Entry) -> None:
    """Add an entry's text to the index, replacing what its key had."""
    text = searchable_text(entry).encode("utf-8", "replace").decode()
    db.execute("INSERT OR REPLACE INTO search(rowid, text) VALUES (?, ?)", (key, _with_cjk_spaced(text)))


def check_index(db: sqlite3.Connection) -> None:
    """Raise the driver's error for a damaged search index if the index does not match its texts."""
    if has_search_table(db) and has_fts5(db):
        db.execute("INSERT INTO search(search) VALUES ('integrity-check')")


def drop_index(db: sqlite3.Connection) -> None:
    """Drop the index; the next search fills it again.

    Raises:
        StoreError: This build of SQLite cannot remove the index.
    """
    if not has_search_table(db):
        return
    if not has_fts5(db):
        raise StoreError("this build of SQLite has no FTS5: it cannot erase from the search index; use one that has")
    db.execute("DROP TABLE search")
    for session in [session for session in session_rows(db) if session.indexed_slots]:
        session.indexed_slots = 0
        save_session_row(db, session)


def matching_seqs(db: sqlite3.Connection, session_id: str, query: str, limit: int) -> list[int]:
    """Return the seqs of the matching entries, best first.

    First the entries that hold the whole query, then those that hold it as the beginning of something longer, the
    newest first; then those that hold some of its words, ranked by bm25.
    """
    session = find_session(db, session_id)
    words = _words(query)
    if session is None or not words or limit < 1 or not has_search_table(db):
        return []
    bounds = first_key(session.number), first_key(session.number) + session.indexed_slots - 1
    select = "SELECT rowid FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ? ORDER BY "
    whole = " ".join(words)
    newest_first = f"{select} rowid DESC LIMIT ?"
    any_word = f"{select} bm25(search), rowid DESC LIMIT ?"
    keys: dict[int, None] = {}  # a dict, to keep the order
    for statement, phrase in (
        (newest_first, _phrase(whole)),
        (newest_first, _phrase(whole, as_prefix=True)),
        (any_word, " OR ".join(_phrase(word, as_prefix=True) for word in words)),
    ):
        if len(keys) < limit:
            keys.update((key, None) for (key,) in db.execute(statement, (phrase, *bounds, limit)))
    seqs = (db.execute("SELECT seq FROM entries WHERE id = ?", (key,)).fetchone() for key in list(keys)[:limit])
    return [number_in(seq[0]) for seq in seqs if seq is not None]


def scan(db: sqlite3.Connection, session_id: str, query: str, limit: int) -> list[int]:
    """Return the same without an index, by scanning the whole history."""
    session = find_session(db, session_id)
    return (
        [entry.seq for entry in ScanIndex().search(_entries(db, session_id, session), query, limit)] if session else []
    )


def _entries(db: sqlite3.Connection, session_id: str, session: SessionRow) -> Iterator[Entry]:
    start = first_key(session.number)
    for row in iterate_rows(db, start, start + session.stop_slot):
        entry = decode_entry_row(row[1:], session_id, row[0])
        if entry is not None:
            yield entry


def _words(query: str) -> list[str]:
    """Return the words of a query, each once, without those that are only punctuation."""
    words = (word.lower() for word in _WORD.findall(query.encode("utf-8", "ignore").decode()))
    return [word for word in dict.fromkeys(words) if _PARTS.search(word.replace("_", " "))]


def _phrase(text: str, *, as_prefix: bool = False) -> str:
    """Return an FTS5 phrase for a text, quoted, so that nothing in it is syntax.

    Args:
        text: One word, or several that follow each other.
        as_prefix: Also find longer words that begin with the last one, if that has at least `_MIN_PREFIX` characters.
    """
    spaced = _with_cjk_spaced(text.replace('"', " ")).rstrip()
    last = _PARTS.findall(spaced.replace("_", " "))[-1]
    return f'"{spaced}"' + ("*" if as_prefix and len(last) >= _MIN_PREFIX and spaced.endswith(last) else "")


def _with_cjk_spaced(text: str) -> str:
    return _UNSPACED.sub(r" \g<0> ", text)
