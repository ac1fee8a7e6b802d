"""The same over a Redis cluster: redis-py's cluster client knows which node holds a session, and follows it.

That client sends a command again by itself when a node fails. A change may be sent twice, for it bears a name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from redis import exceptions as errors
from redis.asyncio import RedisCluster

from ..servers.leases import Cut
from .line import REFUSALS, RedisAddress, RedisConnections, Reply


class ClusterConnections(RedisConnections):
    """Connections to the nodes of a cluster, on an owner's loop. Opens nothing before the first call."""

    def __init__(self, address: RedisAddress) -> None:
        super().__init__(address)
        self._client: RedisCluster | None = None

    async def stop(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        self._looked = False
        if client is not None:
            await client.aclose()

    async def scan(self, pattern: str) -> list[bytes]:
        """All keys that match a pattern, of all nodes."""
        await self._look_once()
        client = self._connected()
        try:
            keys = cast("Callable[..., AsyncIterator[bytes]]", client.scan_iter)(match=pattern, count=1_000)  # pyright: ignore[reportUnknownMemberType]
            return [key async for key in keys]
        except (errors.RedisError, OSError) as problem:
            raise self._unreachable(problem) from problem

    async def _exchange(self, commands: Sequence[Sequence[Any]]) -> list[Reply]:
        client = self._connected()
        return list(await asyncio.gather(*(self._one(client, command) for command in commands)))

    async def _one(self, client: RedisCluster, command: Sequence[Any]) -> Reply:
        send = cast("Callable[..., Any]", client.execute_command)
        try:
            async with asyncio.timeout(self.address.timeout):
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
            raise Cut(f"the connection to {self.where} broke before the answer came; try again") from problem

    def _connected(self) -> RedisCluster:
        if self._client is None:
            make = cast("Callable[..., RedisCluster]", RedisCluster.from_url)
            self._client = make(
                self.address.url,
                max_connections=self.address.pool_size,
                socket_timeout=self.address.timeout,
                socket_connect_timeout=self.address.connect_timeout,
                protocol=2,
            )
            cast("dict[str, Any]", self._client.response_callbacks).pop("INFO", None)  # read as it comes, as elsewhere
        return self._client
