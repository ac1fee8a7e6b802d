"""Histories in PostgreSQL: many machines, one writer per session.

``postgresql://user@host:5432/database?schema=NAME&lease_ttl=30``. See `driver` for how a change is applied, and
`schema` for the tables.

`rewrite` (to erase a pasted secret) replaces the rows and then vacuums their tables. docs/stores.md says where bytes
may remain.
"""

from __future__ import annotations

from collections.abc import Sequence

from amplifier_context_core.stores.protocol import Durability, KeptVector

from ..leased.loop_thread import RefCounted
from ..leased.store import LeasedStore
from .driver import PostgresDriver
from .url import PostgresSettings, parse_store_url
from .vectors import read_vectors, save_vectors

_DRIVERS: RefCounted[PostgresSettings, PostgresDriver] = RefCounted(PostgresDriver)


class PostgresStore(LeasedStore[PostgresDriver]):
    """A store in a PostgreSQL database. Stores of one process with the same URL share a pool of connections."""

    async def vectors(self, session_id: str, model: str) -> list[KeptVector]:
        return await self._read(session_id, lambda driver: read_vectors(driver.pool, session_id, model))

    async def save_vectors(self, session_id: str, model: str, vectors: Sequence[KeptVector]) -> None:
        """Needs no lease."""
        batch = tuple(vectors)
        await self._read(session_id, lambda driver: save_vectors(driver.pool, session_id, model, batch))

    @classmethod
    def from_url(cls, url: str, *, durability: Durability = "fsync", archive: bool = True) -> PostgresStore:
        """Return the store of a ``postgresql://`` URL.

        The store's own parameters are schema, lease_ttl (seconds), statement_timeout (seconds) and pool_size. All
        others, connect_timeout (seconds) among them, are passed to libpq.
        """
        return cls(_DRIVERS, parse_store_url(url, durability), archive=archive)
