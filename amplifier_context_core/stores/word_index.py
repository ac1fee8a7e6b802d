"""A full-text index in SQLite: FTS5 finds candidates for a query, `transcript/ranking.py` orders them.

Words are indexed by their stem (Porter), so that a word finds its other forms; a path or an identifier is a phrase of
its parts. Each character of Chinese, Japanese and Korean is a word, so that any run of them is a phrase. No part of a
query reaches FTS5 as syntax.

A query reads few rows, whatever the length of the history (`find_candidates`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import orjson

from ..transcript.candidates import Candidates, Wanted, answered, find_candidates
from ..transcript.entry import Entry
from ..transcript.ranking import UNSPACED, Query, Term, grams, rank, spelled
from ..transcript.search import ScanIndex, ranked_text, searchable_text
from ..transcript.transcript import Snapshot
from .yielding import INDEXED, yielding

if TYPE_CHECKING:
    import sqlite3

COLUMNS = "text, grams, tokenize = 'porter unicode61 remove_diacritics 2'"
_RUN = re.compile(f"[{UNSPACED}]{{1,1000}}")  # a call for a longer one would stop other threads for milliseconds
_READ_AT_ONCE = 20_000  # characters, likewise
# One row of all keys: each row that Python reads costs as much as SQLite's search for it.
_SELECT_NEWEST = """
    SELECT group_concat(rowid) FROM (
        SELECT rowid FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?
    )
"""
_HASH_BYTES = 4_000_000  # of words in memory before they are written to the index: a quarter less time than FTS5's 1 MB


def has_fts5(db: sqlite3.Connection) -> bool:
    """True if this build of SQLite has FTS5."""
    return db.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone() is not None


def indexed(text: str) -> tuple[str, str]:
    """Return a text as the index takes it, and the parts of its identifiers.

    The text is UTF-8, with white space around each character of a script without spaces.
    """
    if text.isascii():
        return text, grams(text)
    parts = (text[at : at + _READ_AT_ONCE] for at in range(0, len(text), _READ_AT_ONCE))
    clean = [part.encode("utf-8", "replace").decode() for part in parts]
    return "".join([_RUN.sub(_spaced, part) for part in clean]), grams("".join(clean))


def _spaced(run: re.Match[str]) -> str:
    return f" {'  '.join(run.group())} "


def candidates(db: sqlite3.Connection, query: Query, keys: range, total: int, limit: int) -> Candidates:
    """Return the texts that may answer a query.

    Args:
        db: a database whose table `search` is an index.
        query: what is looked for.
        keys: rows of the table that count.
        total: number of texts in them.
        limit: candidates, at least; usually there are `CANDIDATES`.
    """
    known: dict[tuple[tuple[Term, ...], int], list[int]] = {}  # the newest are also any

    def answer(wanted: Wanted) -> list[int]:
        asked = wanted.terms, wanted.limit
        if asked not in known:
            known[asked] = _newest(db, wanted, keys)
        return known[asked]

    return answered(find_candidates(query, total, limit), answer)


class WordIndex:
    """The index of one session, in memory: for stores that do not search by themselves. See `SearchIndex`.

    It is filled by the first search, and each further search adds what came since. Where the history was edited, it is
    filled again. It holds no texts, only which words are in which entry.
    """

    def __init__(self) -> None:
        self._db: sqlite3.Connection | None = None
        self._history = Snapshot([], 0, 0)
        self._lock = threading.Lock()

    def search(self, history: Iterable[Entry], query: str, limit: int) -> list[Entry]:
        parsed = Query(query)
        if not parsed or limit < 1:
            return []
        entries = Snapshot.of(history)
        with self._lock:
            db = self._updated(entries)
            if db is None:
                return ScanIndex().search(entries, query, limit)
            found = candidates(db, parsed, range(len(entries)), len(entries), limit)
        texts = ((key, ranked_text(entries[key])) for key in found.keys)
        ranked = rank(parsed, yielding(texts), found.frequency, found.nearby, len(entries))
        return [entries[key] for key in ranked[:limit]]

    def forget(self) -> None:
        """Drop the index; the next search fills it again."""
        with self._lock:
            self._close()

    def _updated(self, entries: Snapshot) -> sqlite3.Connection | None:
        """Return the database with all entries indexed; None if this build of SQLite has no FTS5."""
        if not entries.begins_with(self._history):
            self._close()
        if self._db is None:
            import sqlite3  # a session that is never searched does not load it

            self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            if not has_fts5(self._db):
                self._close()
                return None
            self._db.execute(f"CREATE VIRTUAL TABLE search USING fts5({COLUMNS}, content = '')")
            self._db.execute("INSERT INTO search(search, rank) VALUES ('hashsize', ?)", (_HASH_BYTES,))
        texts = ((key, searchable_text(entries[key])) for key in range(len(self._history), len(entries)))
        rows = ((key, *indexed(text)) for key, text in yielding(texts, INDEXED))
        try:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO search(rowid, text, grams) VALUES (?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except BaseException:
            self._close()  # the next search fills a new one
            raise
        self._history = entries
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db, self._history = None, Snapshot([], 0, 0)


def _newest(db: sqlite3.Connection, wanted: Wanted, keys: range) -> list[int]:
    """Return the keys that match, the newest first."""
    match = " AND ".join(map(_phrase, wanted.terms))
    ((listed,),) = db.execute(_SELECT_NEWEST, (match, keys.start, keys.stop - 1, wanted.limit))
    return orjson.loads(f"[{listed.decode() if isinstance(listed, bytes) else listed or ''}]")


def _phrase(term: Term) -> str:
    """Return an FTS5 phrase for a term, quoted: its parts are letters and digits only."""
    words = spelled("".join(term.parts)) if term.is_inside else " ".join(term.parts)
    return f'"{words}"' + ("*" if term.is_prefix else "")
