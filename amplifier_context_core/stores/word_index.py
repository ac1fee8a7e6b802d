"""A full-text index in SQLite: FTS5 finds candidates for a query, `transcript/ranking.py` orders them.

Words are indexed by their stem (Porter), so that a word finds its other forms; a path or an identifier is a phrase of
its parts. Each character of Chinese, Japanese and Korean is a word, so that any run of them is a phrase. No part of a
query reaches FTS5 as syntax.

A query reads few rows, whatever the length of the history: of each word at most the newest `frequent(total)` texts.
"""

from __future__ import annotations

import operator
import re
import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..transcript.ranking import CANDIDATES, UNSPACED, Query, Term, frequent, look_up, rank, telling, weight
from ..transcript.search import ScanIndex, searchable_text
from ..transcript.transcript import Entry

if TYPE_CHECKING:
    import sqlite3

COLUMNS = "text, tokenize = 'porter unicode61 remove_diacritics 2'"
_CHARACTER = re.compile(f"[{UNSPACED}]")


def has_fts5(db: sqlite3.Connection) -> bool:
    """True if this build of SQLite has FTS5."""
    return db.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone() is not None


def indexed_text(text: str) -> str:
    """Return a text as the index takes it: UTF-8, with white space around each character of a script without spaces."""
    if text.isascii():
        return text
    return _CHARACTER.sub(r" \g<0> ", text.encode("utf-8", "replace").decode())


def find_candidates(
    db: sqlite3.Connection, query: Query, keys: range, total: int, limit: int
) -> tuple[list[int], dict[Term, int]]:
    """Return the keys of texts that may answer a query, ascending, and the number of texts that have each of its terms.

    Args:
        db: a database whose table `search` is an index.
        query: what is looked for.
        keys: rows of the table that count.
        total: number of texts in them.
        limit: candidates, at least; usually there are `CANDIDATES`.
    """
    most = max(frequent(total), limit)
    found = look_up(query, lambda term: _newest(db, _phrase(term), keys, most + 1))
    frequency = {term: len(rows) for term, rows in found.items()}
    scores: defaultdict[int, float] = defaultdict(float)
    common: list[Term] = []
    for term in telling(frequency):
        if len(found[term]) > most:
            common.append(term)
        else:
            _add(scores, found[term], weight(len(found[term]), total))
    if common and len(scores) < max(limit, CANDIDATES):
        # Texts that have all of them are the best of what frequent words find, wherever they are; then the newest.
        _add(scores, _newest(db, " AND ".join(map(_phrase, common)), keys, most), 1.0)
        for term in common:
            _add(scores, found[term], weight(len(found[term]), total))
    best = sorted(scores, key=lambda key: (scores[key], key), reverse=True)
    return sorted(best[: max(limit, CANDIDATES)]), frequency


class WordIndex:
    """The index of one session, in memory: for stores that do not search by themselves. See `SearchIndex`.

    It is filled by the first search, and each further search adds what came since. Where the history was edited, it is
    filled again. It holds no texts, only which words are in which entry.
    """

    def __init__(self) -> None:
        self._db: sqlite3.Connection | None = None
        self._entries: list[Entry] = []
        self._lock = threading.Lock()

    def search(self, history: Iterable[Entry], query: str, limit: int) -> list[Entry]:
        parsed = Query(query)
        if not parsed or limit < 1:
            return []
        entries = list(history)
        with self._lock:
            db = self._updated(entries)
            if db is None:
                return ScanIndex().search(entries, query, limit)
            keys, frequency = find_candidates(db, parsed, range(len(entries)), len(entries), limit)
        texts = ((key, searchable_text(entries[key])) for key in keys)
        return [entries[key] for key in rank(parsed, texts, frequency, len(entries))[:limit]]

    def _updated(self, entries: list[Entry]) -> sqlite3.Connection | None:
        """Return the database with all entries indexed; None if this build of SQLite has no FTS5."""
        known = self._entries
        if len(known) > len(entries) or not all(map(operator.is_, known, entries)):
            self._close()
            known = []
        if self._db is None:
            import sqlite3  # a session that is never searched does not load it

            self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            if not has_fts5(self._db):
                self._close()
                return None
            self._db.execute(f"CREATE VIRTUAL TABLE search USING fts5({COLUMNS}, content = '')")
        rows = ((key, indexed_text(searchable_text(entries[key]))) for key in range(len(known), len(entries)))
        try:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO search(rowid, text) VALUES (?, ?)", rows)
            self._db.execute("COMMIT")
        except BaseException:
            self._close()  # the next search fills a new one
            raise
        self._entries = entries
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db, self._entries = None, []


def _newest(db: sqlite3.Connection, match: str, keys: range, limit: int) -> list[int]:
    """Return the keys that match, the newest first."""
    select = "SELECT rowid FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?"
    return [key for (key,) in db.execute(select, (match, keys.start, keys.stop - 1, limit)).fetchall()]


def _add(scores: dict[int, float], keys: Iterable[int], amount: float) -> None:
    for key in keys:
        scores[key] += amount


def _phrase(term: Term) -> str:
    """Return an FTS5 phrase for a term, quoted: its parts are letters and digits only."""
    return f'"{" ".join(term.parts)}"' + ("*" if term.is_prefix else "")
