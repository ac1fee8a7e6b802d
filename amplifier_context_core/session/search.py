"""The search of one session: by words, in the store or in memory, and by vectors if the config names an embedder.

What searches is imported where it is used: a session that is never searched does not load it.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from ..arguments import checked_count, checked_text
from ..config import Config
from ..errors import ConfigError, install_command
from ..futures import in_thread
from ..history.history import History
from ..plugins import Plugins
from ..stores import Searchable, Store
from ..transcript.entry import Entry
from ..transcript.searchable import SearchIndex
from ..transcript.transcript import Snapshot

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
    """`load`: loads what of the history is only in the store; `report_fault`: called with the text of a plug-in's
    fault. Raises `ConfigError`: the config names an index or an embedder that there is not.
    """

    def __init__(
        self,
        config: Config,
        plugins: Plugins,
        store: Store,
        history: History,
        load: Callable[[], Awaitable[object]],
        report_fault: Callable[[str], None],
    ) -> None:
        self._name, self._report_fault = config.search_index, report_fault
        self._offered = None if self._name in _OWN else _offered_index(self._name, plugins)
        self._words: WordIndex | None = None  # made by the first search
        self._making = threading.Lock()  # several threads may search first
        self._store = store if isinstance(store, Searchable) and config.search_index == "auto" else None
        self._history, self._load = history, load
        self._vectors = _vector_search(config.embedder, plugins, store, report_fault) if config.embedder else None

    async def matching(self, query: str, limit: int) -> list[int]:
        """Return the seqs of messages that match a query, best first; at most `limit`, whatever its size. Raises
        `ConfigError`: the query is no text, or the limit no whole number.
        """
        query = checked_text("query", query)
        limit = min(checked_count("limit", limit), len(self._history.snapshot()))  # databases take numbers of 64 bits
        if self._vectors is None or limit < 1 or not _has_words(query):  # without a word, any vector is as near
            return await self._having_words(query, limit)
        having_words = await self._having_words(query, max(limit, _WITH_VECTORS))
        await self._load()
        session_id, history = self._history.session_id, self._history.snapshot()
        return (await self._vectors.joined(having_words, session_id, history, query))[:limit]

    def forget(self) -> None:
        """The next search makes again what this process kept of words and vectors."""
        if self._words is not None:
            self._words.forget()
        if self._vectors is not None:
            self._vectors.forget()

    async def _having_words(self, query: str, limit: int) -> list[int]:
        if self._store is not None:
            return await self._store.search(self._history.session_id, query, limit)
        await self._load()
        found = await in_thread(self._search, self._history.snapshot(), query, limit)
        return [entry.seq for entry in found]

    def _search(self, history: Snapshot, query: str, limit: int) -> list[Entry]:
        from ..stores.word_index import WordIndex
        from ..transcript.search import GuardedIndex, ScanIndex

        if self._offered is not None:
            return GuardedIndex(self._offered, self._name, self._report_fault).search(history, query, limit)
        if self._name == "scan":
            return ScanIndex().search(history, query, limit)
        with self._making:
            self._words = self._words or WordIndex()
        return self._words.search(history, query, limit)


def _offered_index(name: str, plugins: Plugins) -> SearchIndex:
    made = plugins.make_offered("amplifier_context_search_indexes", name, "search_index", _OWN)
    if not isinstance(made, SearchIndex):
        raise ConfigError("search_index", f"{name!r} made a {type(made).__name__}, not a search index")
    return made


def _has_words(query: str) -> bool:
    from ..transcript.query import Query

    return bool(Query(query))


def _vector_search(name: str, plugins: Plugins, store: Store, report_fault: Callable[[str], None]) -> VectorSearch:
    try:
        recall = import_module("amplifier_context_recall.vectors")  # when it is used: it imports the core and numpy
    except ModuleNotFoundError:
        command = install_command("vectors", "amplifier-context-recall")
        raise ConfigError("embedder", f"needs a package that is not installed: {command}") from None
    return recall.vector_search(name, plugins, store, report_fault)
