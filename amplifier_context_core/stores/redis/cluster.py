"""A client of a Redis cluster: redis-py's cluster client finds the node that holds a session.

That client sends a command again by itself when a node fails. That is harmless: a change has a revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from redis import exceptions as errors
from redis.asyncio import RedisCluster

from .client import RedisClient, Reply
from .errors import REFUSALS
from .url import RedisSettings


class ClusterClient(RedisClient):
    """A client of the nodes of a cluster, on a loop thread. Opens nothing before the first call."""

    def __init__(self, settings: RedisSettings) -> None:
        super().__init__(settings)
        self._client: RedisCluster | None = None

    async def stop(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        self._checked = False
        if client is not None:
            await client.aclose()

    async def scan(self, pattern: str) -> list[bytes]:
        """Return all keys of all nodes that match a pattern."""
        await self._ensure_checked()
        client = self._connected()
        try:
            keys = cast("Callable[..., AsyncIterator[bytes]]", client.scan_iter)(match=pattern, count=1_000)  # pyright: ignore[reportUnknownMemberType]
            return [key async for key in keys]
        except (errors.RedisError, OSError) as problem:
            raise self._unreachable(problem) from problem

    async def _exchange(self, commands: Sequence[Sequence[Any]]) -> list[Reply]:
        client = self._connected()
        return list(await asyncio.gather(*(self._send(client, command) for command in commands)))

    async def _send(self, client: RedisCluster, command: Sequence[Any]) -> Reply:
        send = cast("Callable[..., Any]", client.execute_command)
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await send(*command)
        except REFUSALS as problem:
            raise self.refused(problem) from problem
        except errors.RedisClusterException as problem:  # no node answered
            raise self._unreachable(problem) from problem
        except errors.ClusterError as problem:
            return problem
        except errors.ResponseError as problem:
            return problem
        except (errors.RedisError, OSError) as problem:
            raise self._connection_lost() from problem

    def _connected(self) -> RedisCluster:
        if self._client is None:
            make = cast("Callable[..., RedisCluster]", RedisCluster.from_url)
            self._client = make(
                self.settings.url,
                max_connections=self.settings.pool_size,
                socket_timeout=self.settings.timeout,
                socket_connect_timeout=self.settings.connect_timeout,
                protocol=2,
            )
            cast("dict[str, Any]", self._client.response_callbacks).pop("INFO", None)  # raw, as `RedisClient` reads it
        return self._client
