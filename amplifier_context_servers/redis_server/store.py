"""Histories in Redis: many machines, one writer per session.

``redis://user:password@host:6379/0?prefix=NAME&lease_ttl=30``. See `driver` for how a change is applied, and `scripts`
for the keys.

What is acknowledged is as durable as the server makes it: `durability: fsync` needs ``appendonly yes`` with
``appendfsync always``. `rewrite` (to erase a pasted secret) replaces the rows and asks the server to rewrite its
append-only file. Older dumps, files of replicas and backups keep the former text until they are replaced.
"""

from __future__ import annotations

from amplifier_context_core.stores.protocol import Durability

from ..leased.loop_thread import RefCounted
from ..leased.store import LeasedStore
from .driver import RedisDriver
from .url import RedisSettings, parse_store_url

_DRIVERS: RefCounted[RedisSettings, RedisDriver] = RefCounted(RedisDriver)


class RedisStore(LeasedStore[RedisDriver]):
    """A store in a Redis database. Stores of one process with the same URL share its connections."""

    @classmethod
    def from_url(cls, url: str, *, durability: Durability = "fsync", archive: bool = True) -> RedisStore:
        """Return the store of a ``redis://`` or ``rediss://`` URL.

        The store's own parameters are prefix, cluster=true (the server is a node of a cluster), lease_ttl (seconds),
        pool_size, socket_timeout and socket_connect_timeout (seconds). All others are passed to redis-py.
        """
        return cls(_DRIVERS, parse_store_url(url, durability), archive=archive)
