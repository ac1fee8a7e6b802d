"""The search of one session: by words, in the store or in memory, and by vectors if the config names an embedder.

What searches is imported where it is used: a session that is never searched does not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from ..arguments import checked_count, checked_text
from ..errors import ConfigError, install_command
from ..futures import in_thread
from ..plugins import Plugins
from ..stores import Searchable, Store
from ..transcript.entry import Entry
from ..transcript.searchable import SearchIndex
from ..transcript.transcript import Snapshot
from .session import Session

if TYPE_CHECKING:
    from ..stores.word_index import WordIndex

_OWN = ("auto", "scan")  # indexes; the others are of plug-ins
_WITH_VECTORS = 50  # messages with the words of a query that take part in a search by vectors, at least


class VectorSearch(Protocol):
    """The search by vectors of the package amplifier-context-recall."""

    async def joined(self, having_words: Sequence[int], session_id: str, history: Snapshot, query: str) -> list[int]:
        """Return the seqs of the messages that have the words (the best first), or are near the query, or both."""
        ...

    def forget(self) -> None: ...


class SessionSearch:
    """Raises `ConfigError`: the config names an index or an embedder that there is not."""

    def __init__(self, session: Session, plugins: Plugins) -> None:
        name, embedder = session.config.search_index, session.config.embedder
        self._session, self._name = session, name
        self._offered = None if name in _OWN else _offered_index(name, plugins)
        self._words: WordIndex | None = None  # made by the first search
        self._store = session.store if isinstance(session.store, Searchable) and name == "auto" else None
        report_fault = session.warnings.fault
        self._vectors = _vector_search(embedder, plugins, session.store, report_fault) if embedder else None

    async def matching(self, query: str, limit: int) -> list[int]:
        """Return the seqs of messages that match a query, best first; at most `limit`, whatever its size. Raises
        `ConfigError`: the query is no text, or the limit no whole number.
        """
        from ..transcript.query import Query

        query, length = checked_text("query", query), len(self._session.history.snapshot())
        limit = min(checked_count("limit", limit), length)  # databases take numbers of 64 bits
        if self._vectors is None or limit < 1 or not Query(query):  # without a word, any vector is as near
            return await self._having_words(query, limit)
        having_words = await self._having_words(query, max(limit, _WITH_VECTORS))
        await self._session.load()
        history = self._session.history
        return (await self._vectors.joined(having_words, history.session_id, history.snapshot(), query))[:limit]

    def forget(self) -> None:
        """The next search makes again what this process kept of words and vectors."""
        if self._words is not None:
            self._words.forget()
        if self._vectors is not None:
            self._vectors.forget()

    async def _having_words(self, query: str, limit: int) -> list[int]:
        if self._store is not None:
            return await self._store.search(self._session.history.session_id, query, limit)
        await self._session.load()
        found = await in_thread(self._search, self._session.history.snapshot(), query, limit)
        return [entry.seq for entry in found]

    def _search(self, history: Snapshot, query: str, limit: int) -> list[Entry]:
        from ..stores.word_index import WordIndex
        from ..transcript.search import GuardedIndex, ScanIndex

        if self._offered is not None:
            return GuardedIndex(self._offered, self._name, self._session.warnings.fault).search(history, query, limit)
        if self._name == "scan":
            return ScanIndex().search(history, query, limit)
        self._words = words = self._words or WordIndex()
        return words.search(history, query, limit)


def _offered_index(name: str, plugins: Plugins) -> SearchIndex:
    made = plugins.make_offered("amplifier_context_search_indexes", name, "search_index", _OWN)
    if not isinstance(made, SearchIndex):
        raise ConfigError("search_index", f"{name!r} made a {type(made).__name__}, not a search index")
    return made


def _vector_search(name: str, plugins: Plugins, store: Store, report_fault: Callable[[str], None]) -> VectorSearch:
    try:
        recall = import_module("amplifier_context_recall.vectors")  # when it is used: it imports the core and numpy
    except ModuleNotFoundError:
        command = install_command("vectors", "amplifier-context-recall")
        raise ConfigError("embedder", f"needs a package that is not installed: {command}") from None
    return recall.vector_search(name, plugins, store, report_fault)
