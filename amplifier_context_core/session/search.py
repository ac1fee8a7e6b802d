"""The search of one session: by words, in the store or in memory, and by vectors if the config names an embedder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..arguments import checked_count, checked_text
from ..config import Config
from ..futures import in_thread
from ..history.history import History
from ..plugins import Plugins
from ..stores import Searchable, Store
from ..stores.word_index import WordIndex
from ..transcript.query import Query
from ..transcript.vectors import fused
from .embeddings import NEAREST, SessionVectors
from .extensions import named_embedder, named_index


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
        self._index = named_index(config, plugins, report_fault)
        self._store = store if isinstance(store, Searchable) and config.search_index == "auto" else None
        self._history, self._load = history, load
        embedder = named_embedder(config, plugins)
        self._vectors = SessionVectors(embedder, store, report_fault) if embedder else None

    async def matching(self, query: str, limit: int) -> list[int]:
        """Return the seqs of messages that match a query, best first; at most `limit`, whatever its size. Raises
        `ConfigError`: the query is no text, or the limit no whole number.
        """
        query = checked_text("query", query)
        limit = min(checked_count("limit", limit), len(self._history.snapshot()))  # databases take numbers of 64 bits
        if self._vectors is None or limit < 1 or not Query(query):  # of a query without a word, any vector is as near
            return await self._having_words(query, limit)
        having_words = await self._having_words(query, max(limit, NEAREST))
        await self._load()
        nearest = await self._vectors.nearest(self._history.session_id, self._history.snapshot(), query)
        return fused((having_words, nearest), limit)

    def forget(self) -> None:
        """The next search makes again what this process kept of words and vectors."""
        if isinstance(self._index, WordIndex):
            self._index.forget()
        if self._vectors is not None:
            self._vectors.forget()

    async def _having_words(self, query: str, limit: int) -> list[int]:
        if self._store is not None:
            return await self._store.search(self._history.session_id, query, limit)
        await self._load()
        found = await in_thread(self._index.search, self._history.snapshot(), query, limit)
        return [entry.seq for entry in found]
