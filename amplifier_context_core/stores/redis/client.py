"""A client of one Redis server (or cluster): it sends commands and scripts, and translates errors.

Commands are sent over a pool's connections instead of the client's `execute_command`, so that it is known whether a
command that failed was ever sent. A change may be sent twice only because it has a revision (see `..leased.protocol`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import exceptions as errors
from redis.asyncio import BlockingConnectionPool

from ...errors import StoreError
from ..leased.batching import MicroBatcher
from ..leased.loop_thread import LoopThread
from ..leased.protocol import ConnectionLost, NotDurable, Unreachable
from .errors import REFUSALS, explain, reason
from .scripts import Script
from .url import FIXED, RedisSettings, pool_of

log = logging.getLogger(__name__)

Reply = Any
_MAX_SPARE = 4  # connections kept outside of the pool between two calls
_MAX_BATCHED_BYTES = 256_000  # of a change; a larger one is sent alone
_LOOP_TASKS: set[asyncio.Future[Any]] = set()  # event loops hold their tasks weakly


@dataclass(frozen=True, slots=True)
class _ScriptCall:
    script: Script
    keys: Sequence[str]
    arguments: tuple[Any, ...]

    def by_name(self) -> tuple[Any, ...]:
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.arguments)

    def by_source(self) -> tuple[Any, ...]:
        return ("EVAL", self.script.source, len(self.keys), *self.keys, *self.arguments)


class RedisClient:
    """A client of one server, on a loop thread. Opens nothing before the first call.

    Attributes:
        has_aof: False if the server is known to write no append-only file.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self.display_name = settings.display_name
        self.loop_thread = LoopThread("amplifier-context Redis")
        self._pool: BlockingConnectionPool | None = None
        self._checking = asyncio.Lock()
        self._checked = False
        self._wait_aof = False
        self._risk = ""  # what a crash of the server may lose, for the log at the first change: a reader loses nothing
        self.has_aof = True
        self._spares: list[Any] = []
        self._waiting = 0
        self._changes: MicroBatcher[_ScriptCall, Reply] = MicroBatcher(self._change_all)

    async def stop(self) -> None:
        """Close all connections."""
        await self._return_spares()
        pool, self._pool, self._checked = self._pool, None, False
        if pool is not None:
            await pool.disconnect()

    async def call(self, *command: Any) -> Reply:
        """Return the reply to one command."""
        (reply,) = await self.exchange([command])
        if isinstance(reply, Exception):
            raise self.refused(reply) from reply
        return reply

    async def run(self, script: Script, keys: Sequence[str], *arguments: Any) -> Reply:
        """Return the reply of a script."""
        (reply,) = await self.run_all(script, [keys], *arguments)
        return reply

    async def run_all(self, script: Script, keys: Sequence[Sequence[str]], *arguments: Any) -> list[Reply]:
        """Run one script for several sessions in one exchange, and return the replies."""
        calls = [_ScriptCall(script, one, arguments) for one in keys]
        replies = await self.exchange([call.by_name() for call in calls])
        for index, reply in enumerate(replies):
            if isinstance(reply, errors.NoScriptError):  # restarted, or its scripts were flushed: this loads it again
                reply = replies[index] = (await self.exchange([calls[index].by_source()]))[0]
            if isinstance(reply, Exception):
                raise self.refused(reply) from reply
        return replies

    async def change(self, script: Script, keys: Sequence[str], *arguments: Any) -> Reply:
        """Return the reply of a script that changes something, once that is as durable as promised."""
        call = _ScriptCall(script, keys, arguments)
        if sum(len(one) for one in arguments if isinstance(one, bytes)) > _MAX_BATCHED_BYTES:
            (reply,) = await self._change_all([call])  # alone: it would delay the others
        else:
            reply = await self._changes.add(call)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _change_all(self, batch: Sequence[_ScriptCall]) -> list[Reply]:
        await self._ensure_checked()
        if risk := self._risk:
            self._risk = ""
            log.warning("%s", risk)
        wait = [("WAITAOF", 1, 0, round(self.settings.timeout * 1000))] if self._wait_aof else []
        replies = await self.exchange([*(call.by_name() for call in batch), *wait])
        if any(isinstance(reply, errors.NoScriptError) for reply in replies):
            unknown = [index for index, reply in enumerate(replies) if isinstance(reply, errors.NoScriptError)]
            again = await self.exchange([*(batch[index].by_source() for index in unknown), *wait])
            for index, reply in zip(unknown, again, strict=False):
                replies[index] = reply
            replies[len(batch) :] = again[len(unknown) :]
        not_durable = self._not_durable(replies.pop()) if wait else None
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

    async def exchange(self, commands: Sequence[Sequence[Any]]) -> list[Reply]:
        """Send commands together, and return their replies; an error reply is an exception among them."""
        await self._ensure_checked()
        return await self._exchange(commands)

    async def _exchange(self, commands: Sequence[Sequence[Any]]) -> list[Reply]:
        connection = self._spares.pop() if self._spares else await self._take()
        try:
            async with asyncio.timeout(self.settings.timeout):
                packed = (
                    connection.pack_command(*commands[0]) if len(commands) == 1 else connection.pack_commands(commands)
                )
                await connection.send_packed_command(packed, check_health=False)
                return [await _read_reply(connection) for _ in commands]
        except REFUSALS as problem:
            await connection.disconnect(nowait=True)  # more replies may follow
            raise self.refused(problem) from problem
        except (errors.RedisError, OSError) as problem:  # TimeoutError is an OSError
            await connection.disconnect(nowait=True)
            await self._return_spares()  # if one is broken, the others may be
            raise self._connection_lost() from problem
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await self._give_back(connection)

    # -- connections ----------------------------------------------------------------------------------------------

    async def _take(self) -> Any:
        if self._pool is None:
            self._pool = self._new_pool()
        pool = self._pool
        self._waiting += 1
        try:
            connection = await cast("Callable[[], Awaitable[Any]]", pool.get_connection)()  # pyright: ignore[reportUnknownMemberType]
            connection.socket_timeout = None  # `_exchange` has its own timeout; the client would make a task per write
            return connection
        except (errors.RedisError, OSError) as problem:
            raise self._unreachable(problem) from problem
        finally:
            self._waiting -= 1

    async def _give_back(self, connection: Any) -> None:
        """Keep a connection as a spare if possible: the pool spends time on locks and on checking the socket."""
        if connection.is_connected and not self._waiting and len(self._spares) < _MAX_SPARE:
            self._spares.append(connection)
        else:
            await self._return(connection)

    async def _return(self, connection: Any) -> None:
        connection.socket_timeout = self.settings.connect_timeout
        if self._pool is not None:
            await self._pool.release(connection)
        else:
            await connection.disconnect(nowait=True)

    async def _return_spares(self) -> None:
        """Return all spare connections to the pool, which checks them before it hands them out again."""
        while self._spares:
            await self._return(self._spares.pop())

    async def scan(self, pattern: str) -> list[bytes]:
        """Return all keys that match a pattern. Visits every key of the server."""
        cursor: Any = b"0"
        found: list[bytes] = []
        while True:
            cursor, keys = await self.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1_000)
            found += keys
            if int(cursor) == 0:
                return found

    def _new_pool(self) -> BlockingConnectionPool:
        return pool_of(
            self.settings.url,
            max_connections=self.settings.pool_size,
            timeout=self.settings.timeout,
            socket_timeout=self.settings.connect_timeout,  # of the handshake, which `connect_timeout` does not cover
            socket_connect_timeout=self.settings.connect_timeout,
            **FIXED,
        )

    # -- the server's settings ------------------------------------------------------------------------------------

    async def _ensure_checked(self) -> None:
        """Check the server's settings once, before anything else is sent."""
        if not self._checked:
            async with self._checking:
                if not self._checked:
                    await self._check_server_settings()
                    self._checked = True

    async def _check_server_settings(self) -> None:
        """Find out how durable the server's changes are, and note the risk if that is less than configured."""
        replies = await self._exchange(
            [
                ("INFO", "server"),
                *(("CONFIG", "GET", name) for name in ("appendonly", "appendfsync", "maxmemory-policy")),
            ]
        )
        self._wait_aof = False
        appendonly, appendfsync, policy = (_setting(reply) for reply in replies[1:])
        self.has_aof = appendonly != "no"
        if policy.startswith("allkeys"):
            log.warning(
                "%s evicts keys when its memory is full (maxmemory-policy %s): histories would lose parts; "
                "set it to noeviction",
                self.display_name,
                policy,
            )
        if not self.settings.durable or (appendonly == "yes" and appendfsync == "always"):
            return
        version = _version(replies[0])
        # WAITAOF confirms changes of its own connection only, so not on a cluster.
        if version >= (7, 2) and appendonly != "no" and not self.settings.cluster:
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
        if quotable in ("READONLY", "MASTERDOWN") and self._pool is not None:
            # The old connections would stay with this server, even once the URL leads to a master again.
            self._start_task(self._pool.disconnect(inuse_connections=False))
        known = f" ({quotable})" if quotable else ""
        advice = advice or "nothing was changed; look into the log of the server"
        return StoreError(f"{self.display_name} refused: {type(problem).__name__}{known}; {advice}")

    def _connection_lost(self) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self.display_name} broke before the answer came; try again")

    def _unreachable(self, problem: Exception) -> Unreachable:
        quotable, advice = explain(problem)
        if quotable:
            return Unreachable(f"{self.display_name} refuses the connection ({quotable}); {advice}")
        advice = "check that it is running and that the URL is right, then try again"
        return Unreachable(f"{self.display_name} cannot be reached ({reason(problem)}); {advice}")

    def _start_task(self, work: Any) -> None:
        """Start work on the running loop without waiting for it."""
        task = asyncio.ensure_future(work)
        _LOOP_TASKS.add(task)
        task.add_done_callback(_LOOP_TASKS.discard)


async def _read_reply(connection: Any) -> Reply:
    try:
        return await connection.read_response()
    except errors.ResponseError as problem:
        return problem


def _setting(reply: Reply) -> str:
    """Return the value in a reply to CONFIG GET; empty if it was refused."""
    if isinstance(reply, list) and len(cast("list[Any]", reply)) >= 2:
        return str(cast("list[bytes]", reply)[1], "utf-8", "replace")
    return ""


def _version(reply: Reply) -> tuple[int, int]:
    if isinstance(reply, bytes):
        for line in reply.decode("utf-8", "replace").splitlines():
            if line.startswith("redis_version:"):
                parts = line.partition(":")[2].split(".")
                if len(parts) >= 2 and parts[0].isdigit() and parts[1].isdigit():
                    return int(parts[0]), int(parts[1])
    return 0, 0
