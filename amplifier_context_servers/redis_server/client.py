"""A client of one Redis server, or of a cluster: it runs commands and scripts, and translates errors.

The connections are those of redis-py. A change may be sent twice only because it has a revision (see
`..leased.protocol`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from redis import exceptions as errors
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from amplifier_context_core.errors import StoreError

from ..leased.batching import MicroBatcher
from ..leased.loop_thread import LoopThread
from ..leased.protocol import ConnectionLost, NotDurable, Unreachable
from .errors import REFUSALS, explain, reason
from .url import FIXED, RedisSettings

log = logging.getLogger(__name__)

Command = tuple[Any, ...]
Reply = Any
_MAX_BATCHED_BYTES = 256_000  # of a change; a larger one is sent alone


def evaluated(script: str, keys: Sequence[str], *arguments: Any) -> Command:
    return ("EVAL", script, len(keys), *keys, *arguments)


class _NotConnected(Exception):
    """No connection could be made: nothing was sent."""


class _Pool(BlockingConnectionPool):
    async def get_connection(self, *arguments: Any, **options: Any) -> Any:
        connect = cast("Callable[..., Awaitable[Any]]", super().get_connection)  # pyright: ignore[reportUnknownMemberType]
        try:
            return await connect(*arguments, **options)
        except (errors.RedisError, OSError) as problem:
            raise _NotConnected from problem


class RedisClient:
    """A client on a loop thread. Opens nothing before the first call."""

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self.display_name = settings.display_name
        self.loop_thread = LoopThread("amplifier-context Redis")
        self.has_aof = True  # unless the server is known to write no append-only file
        self._client: Any = None
        self._is_outdated = False  # the client stays with a server that is no master any more
        self._checking = asyncio.Lock()
        self._is_checked = False
        self._wait_aof = False
        self._risk = ""  # what a crash of the server may lose, for the log at the first change: a reader loses nothing
        self._changes: MicroBatcher[Command, Reply] = MicroBatcher(self._change_all)
        self._at_once = asyncio.Semaphore(settings.pool_size)  # commands on a cluster: its client queues none

    async def stop(self) -> None:
        client, self._client, self._is_checked = self._client, None, False
        if client is not None:
            await client.aclose()
            if self.settings.cluster:  # it closes nothing if it was about to look for its nodes again
                await client.nodes_manager.aclose()
                await client.nodes_manager.aclose("startup_nodes")

    async def call(self, *command: Any) -> Reply:
        (reply,) = await self.call_all([command])
        return reply

    async def call_all(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands together, and return their replies."""
        replies = await self._send(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise self.refused(reply) from reply
        return replies

    async def change(self, script: str, keys: Sequence[str], *arguments: Any) -> Reply:
        """Return the reply of a script that changes something, once that is as durable as promised."""
        command = evaluated(script, keys, *arguments)
        if sum(len(one) for one in arguments if isinstance(one, bytes)) > _MAX_BATCHED_BYTES:
            (reply,) = await self._change_all([command])  # alone: it would delay the others
        else:
            reply = await self._changes.add(command)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _change_all(self, batch: Sequence[Command]) -> list[Reply]:
        await self._ensure_checked()
        if risk := self._risk:
            self._risk = ""
            log.warning("%s", risk)
        if not self._wait_aof:
            replies, not_durable = await self._send(batch), None
        else:
            wait = ("WAITAOF", 1, 0, round(self.settings.socket_timeout * 1000))
            *replies, synced = await self._send([*batch, wait])
            not_durable = self._not_durable(synced)
        return [
            self.refused(reply) if isinstance(reply, Exception) else (reply and not_durable) or reply
            for reply in replies
        ]

    def _not_durable(self, synced: Reply) -> NotDurable | None:
        """Return an error if the reply to WAITAOF does not confirm that the changes are on the server's disk."""
        if isinstance(synced, Exception):
            self._wait_aof = False
            log.warning(
                "%s has no append-only file (WAITAOF): a crash there may lose acknowledged messages", self.display_name
            )
            return None
        if cast("list[int]", synced)[0] >= 1:
            return None
        return NotDurable(
            f"{self.display_name} did not confirm in {self.settings.socket_timeout:g} s that the change is on its disk"
        )

    async def _send(self, commands: Sequence[Command]) -> list[Reply]:
        """Send commands together, and return their replies; an error reply is an exception among them."""
        await self._ensure_checked()
        return await self._exchange(commands)

    async def _exchange(self, commands: Sequence[Command]) -> list[Reply]:
        if self._is_outdated:
            self._is_outdated = False
            await self.stop()
        if self._client is None:
            self._client = self._new_client()
        with self._translated():
            if self.settings.cluster:
                return await self._on_cluster(self._client, commands)
            async with self._client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return await pipeline.execute(raise_on_error=False)

    async def _on_cluster(self, client: Any, commands: Sequence[Command]) -> list[Reply]:
        async def send(command: Command) -> Reply:
            async with self._at_once:
                return await client.execute_command(*command)

        # All of them end here: none is sent after the client was closed.
        replies = await asyncio.gather(*map(send, commands), return_exceptions=True)
        for reply in replies:
            is_reply = isinstance(reply, (errors.ClusterError, errors.ResponseError)) and not isinstance(
                reply, REFUSALS
            )
            if isinstance(reply, BaseException) and not is_reply:
                raise reply
        return replies

    async def scan(self, pattern: str) -> list[bytes]:
        """Return all keys that match a pattern. Visits every key of the server."""
        await self._ensure_checked()
        with self._translated():
            keys = cast("Callable[..., AsyncIterator[bytes]]", self._client.scan_iter)(match=pattern, count=1_000)
            return [key async for key in keys]

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except REFUSALS as problem:
            raise self.refused(problem) from problem
        except _NotConnected as problem:
            cause = cast(Exception, problem.__cause__)
            raise self._unreachable(cause) from cause
        except errors.RedisClusterException as problem:  # no node answered
            raise self._unreachable(problem) from problem
        except errors.ResponseError as problem:
            raise self.refused(problem) from problem
        except (errors.RedisError, OSError) as problem:  # TimeoutError is an OSError
            raise ConnectionLost(
                f"the connection to {self.display_name} broke before the answer came; try again"
            ) from problem

    def _new_client(self) -> Any:
        settings: dict[str, Any] = {
            "max_connections": self.settings.pool_size,
            "socket_timeout": self.settings.socket_timeout,
            "socket_connect_timeout": self.settings.socket_connect_timeout,
            **FIXED,
        }
        if self.settings.cluster:
            return cast("Callable[..., RedisCluster]", RedisCluster.from_url)(self.settings.url, **settings)
        # The store itself sends a change again: it knows whether it was applied.
        retry = Retry(NoBackoff(), 0)
        make = cast("Callable[..., _Pool]", _Pool.from_url)  # pyright: ignore[reportUnknownMemberType]
        return Redis.from_pool(make(self.settings.url, timeout=self.settings.socket_timeout, retry=retry, **settings))

    # -- the server's settings ------------------------------------------------------------------------------------

    async def _ensure_checked(self) -> None:
        async with self._checking:
            if not self._is_checked:
                await self._check_server_settings()
                self._is_checked = True

    async def _check_server_settings(self) -> None:
        """Find out how durable the server's changes are, and note the risk if that is less than configured."""
        found: dict[str, str] = {"redis_version": "0"}
        names = ("appendonly", "appendfsync", "maxmemory-policy")
        for reply in await self._exchange([("INFO", "server"), *(("CONFIG GET", name) for name in names)]):
            found |= reply if isinstance(reply, dict) else {}
        appendonly, appendfsync, policy = (found.get(name, "") for name in names)
        self.has_aof = appendonly != "no"
        if policy.startswith("allkeys"):
            log.warning(
                "%s evicts keys when its memory is full (maxmemory-policy %s): sessions would be lost; "
                "set it to noeviction",
                self.display_name,
                policy,
            )
        is_at_risk = self.settings.durable and (appendonly, appendfsync) != ("yes", "always")
        can_wait = [int(part) for part in re.findall(r"\d+", found["redis_version"])] >= [7, 2]
        # WAITAOF confirms changes of its own connection only, so not on a cluster.
        self._wait_aof = is_at_risk and can_wait and self.has_aof and not self.settings.cluster
        known = f"appendonly {appendonly}, appendfsync {appendfsync or 'unknown'}" if appendonly else "no CONFIG GET"
        risk = (
            f"{self.display_name} may lose acknowledged messages when it crashes ({known}): set appendonly yes and "
            "appendfsync always, or set `durability: none` if that is intended"
        )
        self._risk = risk if is_at_risk and not self._wait_aof else ""

    # -- errors ---------------------------------------------------------------------------------------------------

    def refused(self, problem: Exception) -> StoreError:
        quotable, advice = explain(problem)
        if quotable in ("READONLY", "MASTERDOWN"):
            # The connections would stay with this server, even once the URL leads to a master again.
            self._is_outdated = True
        known = f" ({quotable})" if quotable else ""
        advice = advice or "nothing was changed; look into the log of the server"
        return StoreError(f"{self.display_name} refused: {type(problem).__name__}{known}; {advice}")

    def _unreachable(self, problem: Exception) -> Unreachable:
        quotable, advice = explain(problem)
        if quotable:
            return Unreachable(f"{self.display_name} refuses the connection ({quotable}); {advice}")
        advice = "check that it is running and that the URL is right, then try again"
        return Unreachable(f"{self.display_name} cannot be reached ({reason(problem)}); {advice}")
