"""A full-text index in SQLite: two FTS5 tables say which texts have a term, `transcript/ranking.py` orders them.

`words` has the words of a text by their Porter stem, so that a word finds its other forms; a path or an identifier is a
phrase of its parts. Each character of Chinese, Japanese and Korean is a word, so that any run of them is a phrase.
`names` has the groups of three characters of identifiers, so that any part of one is found. No part of a query reaches
FTS5 as syntax.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import TypeVar

import orjson

from ..transcript.entry import Entry
from ..transcript.query import READ_AT_ONCE, Query, Term, names
from ..transcript.ranking import Text, search
from ..transcript.search import ScanIndex, ranked_text
from ..transcript.searchable import UNSPACED, searchable_text
from ..transcript.transcript import Snapshot
from .sqlite.schema import SEARCH_TABLES, can_index, create_search_tables

T = TypeVar("T", bound=Sized)
_RANKED = 5_000  # characters of texts that are ranked: half a millisecond
_INDEXED = 20_000  # of texts that are indexed: two milliseconds; at 5,000 filling an index took half as long again
_RUN = re.compile(f"[{UNSPACED}]{{1,1000}}")  # a call for a longer one would stop other threads for milliseconds
# One row of all keys: each row that Python reads costs as much as SQLite's search for it.
_NEWEST = """
    SELECT group_concat(rowid) FROM (
        SELECT rowid FROM {0} WHERE {0} MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?
    )
"""
_HASH_BYTES = 4_000_000  # of words in memory before they are written to the index: a quarter less time than FTS5's 1 MB


def add_texts(db: sqlite3.Connection, texts: Iterable[tuple[int, str]], *, replace: bool = False) -> None:
    """Add texts with their keys to an index; with `replace`, which takes time, it may have some of the keys."""
    how = "REPLACE" if replace else "INSERT"
    for key, text in texts:
        clean, found = indexed(text)
        db.execute(f"{how} INTO words(rowid, text) VALUES (?, ?)", (key, clean))
        if found or replace:
            db.execute(f"{how} INTO names(rowid, text) VALUES (?, ?)", (key, found))


def indexed(text: str) -> tuple[str, str]:
    """Return a text as the index takes it, and its identifiers.

    The text is UTF-8, with white space around each character of a script without spaces.
    """
    if text.isascii():
        return text, names(text)
    parts = (text[at : at + READ_AT_ONCE] for at in range(0, len(text), READ_AT_ONCE))
    clean = [part.encode("utf-8", "replace").decode() for part in parts]
    return "".join(_RUN.sub(_spaced, part) for part in clean), names("".join(clean))


def _spaced(run: re.Match[str]) -> str:
    return f" {'  '.join(run.group())} "


class Fts:
    """The texts of a range of keys in an index. See `ranking.Index`."""

    def __init__(
        self, db: sqlite3.Connection, keys: range, texts: Callable[[Sequence[int]], Iterable[tuple[int, Text]]]
    ) -> None:
        self._db = db
        self._keys = keys
        self._texts = texts

    def having(self, terms: Sequence[Term], limit: int) -> list[int]:
        matches = (" AND ".join(_phrase(term) for term in terms if term.is_inside is one) for one in (False, True))
        found = [self._newest(*asked, limit) for asked in zip(SEARCH_TABLES, matches, strict=True) if asked[1]]
        others = set(found[-1])
        return [key for key in found[0] if key in others]

    def _newest(self, table: str, match: str, limit: int) -> list[int]:
        values = (match, self._keys.start, self._keys.stop - 1, limit)
        ((listed,),) = self._db.execute(_NEWEST.format(table), values)
        return orjson.loads(f"[{listed.decode() if isinstance(listed, bytes) else listed or ''}]")

    def texts(self, keys: Sequence[int]) -> Iterator[tuple[int, Text]]:
        return yielding(self._texts(keys))


def _phrase(term: Term) -> str:
    """Return an FTS5 phrase for a term, quoted: its parts are letters and digits only."""
    return f'"{("" if term.is_inside else " ").join(term.parts)}"' + ("*" if term.is_prefix else "")


def yield_gil() -> None:
    """Let other threads run. A busy thread otherwise keeps the interpreter from them for 5 ms and more."""
    time.sleep(0.00002)


def yielding(texts: Iterable[tuple[int, T]], characters: int = _RANKED) -> Iterator[tuple[int, T]]:
    """Yield texts that a thread reads, with their keys, and let other threads run before and between them: after so
    many characters.
    """
    read = characters
    for key, text in texts:
        read += len(text)
        if read > characters:
            read = 0
            yield_gil()
        yield key, text


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
            index = Fts(db, range(len(entries)), lambda keys: ((key, ranked_text(entries[key])) for key in keys))
            return [entries[key] for key in search(parsed, index, len(entries), limit)]

    def forget(self) -> None:
        """Drop the index; the next search fills it again."""
        with self._lock:
            self._close()

    def _updated(self, entries: Snapshot) -> sqlite3.Connection | None:
        """Return the database with all entries indexed; None if this build of SQLite has no FTS5."""
        if not entries.begins_with(self._history):
            self._close()
        if self._db is None:
            self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
            if not can_index(self._db):
                self._close()
                return None
            create_search_tables(self._db, ", content = ''")
            for table in SEARCH_TABLES:
                self._db.execute(f"INSERT INTO {table}({table}, rank) VALUES ('hashsize', ?)", (_HASH_BYTES,))  # noqa: S608
        texts = ((key, searchable_text(entries[key])) for key in range(len(self._history), len(entries)))
        try:
            self._db.execute("BEGIN")
            add_texts(self._db, yielding(texts, _INDEXED))
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
