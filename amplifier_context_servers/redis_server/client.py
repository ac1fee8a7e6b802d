"""A client of one Redis server, or of a cluster: it runs commands and scripts, and translates errors.

The connections are those of redis-py. A change may be sent twice only because it has a revision (see
`..leased.protocol`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
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
from .scripts import Script
from .url import FIXED, RedisSettings

log = logging.getLogger(__name__)

Reply = Any
_MAX_BATCHED_BYTES = 256_000  # of a change; a larger one is sent alone


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """A script, its keys and its arguments."""

    script: Script
    keys: Sequence[str]
    arguments: tuple[Any, ...]

    def by_name(self) -> tuple[Any, ...]:
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.arguments)

    def by_source(self) -> tuple[Any, ...]:
        return ("EVAL", self.script.source, len(self.keys), *self.keys, *self.arguments)


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
    """A client on a loop thread. Opens nothing before the first call.

    Attributes:
        has_aof: False if the server is known to write no append-only file.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self.display_name = settings.display_name
        self.loop_thread = LoopThread("amplifier-context Redis")
        self.has_aof = True
        self._client: Any = None
        self._checking = asyncio.Lock()
        self._is_checked = False
        self._wait_aof = False
        self._risk = ""  # what a crash of the server may lose, for the log at the first change: a reader loses nothing
        self._changes: MicroBatcher[ScriptCall, Reply] = MicroBatcher(self._change_all)

    async def stop(self) -> None:
        """Close all connections."""
        client, self._client, self._is_checked = self._client, None, False
        if client is not None:
            await client.aclose()

    async def call(self, *command: Any) -> Reply:
        """Return the reply to one command."""
        (reply,) = await self._send([command])
        if isinstance(reply, Exception):
            raise self.refused(reply) from reply
        return reply

    async def run(self, script: Script, keys: Sequence[str], *arguments: Any) -> Reply:
        """Return the reply of a script."""
        (reply,) = await self.run_all([ScriptCall(script, keys, arguments)])
        return reply

    async def run_all(self, calls: Sequence[ScriptCall]) -> list[Reply]:
        """Run scripts together, and return their replies."""
        replies = await self._run_scripts(calls)
        for reply in replies:
            if isinstance(reply, Exception):
                raise self.refused(reply) from reply
        return replies

    async def change(self, script: Script, keys: Sequence[str], *arguments: Any) -> Reply:
        """Return the reply of a script that changes something, once that is as durable as promised."""
        call = ScriptCall(script, keys, arguments)
        if sum(len(one) for one in arguments if isinstance(one, bytes)) > _MAX_BATCHED_BYTES:
            (reply,) = await self._change_all([call])  # alone: it would delay the others
        else:
            reply = await self._changes.add(call)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _change_all(self, batch: Sequence[ScriptCall]) -> list[Reply]:
        await self._ensure_checked()
        if risk := self._risk:
            self._risk = ""
            log.warning("%s", risk)
        if not self._wait_aof:
            replies, not_durable = await self._run_scripts(batch), None
        else:
            *replies, synced = await self._run_scripts(batch, ("WAITAOF", 1, 0, round(self.settings.timeout * 1000)))
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
            f"{self.display_name} did not confirm in {self.settings.timeout:g} s that the change is on its disk"
        )

    async def _run_scripts(self, calls: Sequence[ScriptCall], *after: Sequence[Any]) -> list[Reply]:
        """Return the replies of scripts, then those to commands that are sent after them on the same connection."""
        replies = await self._send([*(call.by_name() for call in calls), *after])
        unknown = [index for index in range(len(calls)) if isinstance(replies[index], errors.NoScriptError)]
        if unknown:  # restarted, or its scripts were flushed: this loads them again
            again = await self._send([*(calls[index].by_source() for index in unknown), *after])
            for index, reply in zip(unknown, again, strict=False):
                replies[index] = reply
            replies[len(calls) :] = again[len(unknown) :]
        return replies

    async def _send(self, commands: Sequence[Sequence[Any]]) -> list[Reply]:
        """Send commands together, and return their replies; an error reply is an exception among them."""
        await self._ensure_checked()
        return await self._exchange(commands)

    async def _exchange(self, commands: Sequence[Sequence[Any]]) -> list[Reply]:
        if self._client is None:
            self._client = self._new_client()
        client = self._client
        try:
            if self.settings.cluster:  # each command on its own node
                return await asyncio.gather(*(_cluster_reply(client, command) for command in commands))
            async with client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return await pipeline.execute(raise_on_error=False)
        except REFUSALS as problem:
            raise self.refused(problem) from problem
        except _NotConnected as problem:
            cause = cast(Exception, problem.__cause__)
            raise self._unreachable(cause) from cause
        except errors.RedisClusterException as problem:  # no node answered
            raise self._unreachable(problem) from problem
        except (errors.RedisError, OSError) as problem:  # TimeoutError is an OSError
            raise ConnectionLost(
                f"the connection to {self.display_name} broke before the answer came; try again"
            ) from problem

    async def scan(self, pattern: str) -> list[bytes]:
        """Return all keys that match a pattern. Visits every key of the server."""
        await self._ensure_checked()
        try:
            keys = cast("Callable[..., AsyncIterator[bytes]]", self._client.scan_iter)(match=pattern, count=1_000)
            return [key async for key in keys]
        except (errors.RedisError, OSError, _NotConnected) as problem:
            raise ConnectionLost(f"the connection to {self.display_name} broke; try again") from problem

    def _new_client(self) -> Any:
        settings: dict[str, Any] = {
            "max_connections": self.settings.pool_size,
            "socket_timeout": self.settings.timeout,
            "socket_connect_timeout": self.settings.connect_timeout,
            **FIXED,
        }
        if self.settings.cluster:
            return cast("Callable[..., RedisCluster]", RedisCluster.from_url)(self.settings.url, **settings)
        # The store itself sends a change again: it knows whether it was applied.
        retry = Retry(NoBackoff(), 0)
        make = cast("Callable[..., _Pool]", _Pool.from_url)  # pyright: ignore[reportUnknownMemberType]
        return Redis.from_pool(make(self.settings.url, timeout=self.settings.timeout, retry=retry, **settings))

    # -- the server's settings ------------------------------------------------------------------------------------

    async def _ensure_checked(self) -> None:
        """Check the server's settings once, before anything else is sent."""
        if not self._is_checked:
            async with self._checking:
                if not self._is_checked:
                    await self._check_server_settings()
                    self._is_checked = True

    async def _check_server_settings(self) -> None:
        """Find out how durable the server's changes are, and note the risk if that is less than configured."""
        names = ("appendonly", "appendfsync", "maxmemory-policy")
        info, *replies = await self._exchange([("INFO", "server"), *(("CONFIG GET", name) for name in names)])
        self._wait_aof = False
        found = {name: value for reply in replies if isinstance(reply, dict) for name, value in _texts(reply)}
        appendonly, appendfsync, policy = (found.get(name, "") for name in names)
        self.has_aof = appendonly != "no"
        if policy.startswith("allkeys"):
            log.warning(
                "%s evicts keys when its memory is full (maxmemory-policy %s): sessions would be lost; "
                "set it to noeviction",
                self.display_name,
                policy,
            )
        if not self.settings.durable or (appendonly == "yes" and appendfsync == "always"):
            return
        # WAITAOF confirms changes of its own connection only, so not on a cluster.
        if _version(info) >= (7, 2) and appendonly != "no" and not self.settings.cluster:
            self._wait_aof = True
        elif not appendonly:
            self._risk = (
                f"{self.display_name} does not report its durability (CONFIG GET is not allowed): unknown whether a "
                "crash would lose messages; appendonly yes and appendfsync always would keep them"
            )
        else:
            self._risk = (
                f"{self.display_name} may lose acknowledged messages when it crashes (appendonly {appendonly}, "
                f"appendfsync {appendfsync or 'unknown'}): set appendonly yes and appendfsync always, or set "
                "`durability: none` if that is intended"
            )

    # -- errors ---------------------------------------------------------------------------------------------------

    def refused(self, problem: Exception) -> StoreError:
        """Return the error for an error reply."""
        quotable, advice = explain(problem)
        if quotable in ("READONLY", "MASTERDOWN"):
            # The connections would stay with this server, even once the URL leads to a master again.
            self._close_later()
        known = f" ({quotable})" if quotable else ""
        advice = advice or "nothing was changed; look into the log of the server"
        return StoreError(f"{self.display_name} refused: {type(problem).__name__}{known}; {advice}")

    def _unreachable(self, problem: Exception) -> Unreachable:
        quotable, advice = explain(problem)
        if quotable:
            return Unreachable(f"{self.display_name} refuses the connection ({quotable}); {advice}")
        advice = "check that it is running and that the URL is right, then try again"
        return Unreachable(f"{self.display_name} cannot be reached ({reason(problem)}); {advice}")

    def _close_later(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            task = asyncio.ensure_future(client.aclose())
            _TASKS.add(task)
            task.add_done_callback(_TASKS.discard)


_TASKS: set[asyncio.Future[Any]] = set()  # event loops hold their tasks weakly


async def _cluster_reply(client: Any, command: Sequence[Any]) -> Reply:
    try:
        return await client.execute_command(*command)
    except REFUSALS:
        raise
    except (errors.ClusterError, errors.ResponseError) as problem:
        return problem


def _texts(reply: Any) -> list[tuple[str, str]]:
    return [(one if isinstance(one, str) else str(one, "utf-8", "replace"), str(value)) for one, value in reply.items()]


def _version(info: Reply) -> tuple[int, int]:
    """Return the version in a reply to INFO; 0.0 if it has none."""
    text = str(cast("dict[str, Any]", info).get("redis_version", "")) if isinstance(info, dict) else ""
    parts = text.split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) >= 2 and parts[0].isdigit() and parts[1].isdigit() else (0, 0)
