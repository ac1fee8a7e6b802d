"""Connections to one Redis server (or cluster), and what its errors mean.

Commands are sent over a pool's connections rather than by the client's `execute_command`, so that it is known whether a
command that failed was ever sent: a change may be sent twice only because it bears a name (see `leases`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from redis import exceptions as errors
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import parse_url

from ...errors import ConfigError, StoreError
from ..protocol import Durability
from ..servers.address import number, take_parameters, whole_number
from ..servers.batches import Batches
from ..servers.leases import Cut, Unconfirmed, Unreachable
from ..servers.owner import Owner
from .scripts import Script

log = logging.getLogger(__name__)

Reply = Any
_WARM = 4  # connections kept out of the pool between two calls
_LARGE = 256_000  # bytes; a change with more goes alone
_OWN = ("prefix", "cluster", "lease_ttl", "pool_size", "socket_timeout", "socket_connect_timeout")
_FIXED: dict[str, Any] = {"protocol": 2, "decode_responses": False}  # how replies are read here

# What to do, by the word an error begins with.
_ADVICE = {
    "LOADING": "the server is still loading its data: try again in a moment",
    "READONLY": "the server takes no writes (a replica?): give the address of the master",
    "OOM": "the server has no memory left: raise maxmemory, or delete what nobody needs",
    "MISCONF": "the server cannot write to its disk: make room there, then go on",
    "NOREPLICAS": "the server has too few replicas: bring them back, or lower min-replicas-to-write",
    "NOAUTH": "give user and password in the address",
    "WRONGPASS": "check user and password in the address",
    "NOPERM": "grant the user of the address these rights (ACL SETUSER)",
    "MOVED": "this is a node of a cluster, which holds only some of the keys: add ?cluster=true to the address",
    "CLUSTERDOWN": "the cluster is not whole: look after its nodes",
    "MASTERDOWN": "the master is down: wait for it, or for its successor",
    "BUSY": "a script keeps the server busy: try again",
    "TRYAGAIN": "the cluster moves the session's keys: try again",
    "WRONGTYPE": "somebody else wrote to a key of this session: rename or delete that key, then open the session again",
    "DENIED": "the server takes connections of its own machine only: give it a password, or work there",
}
# The same, by words of an error that has no such word of its own, or a misleading one. They quote nothing.
_SAID = {
    "DB index is out of range": "the server has no database of this number: give another in the address, as in /0",
    "invalid DB index": "give the number of a database in the address, as in /0",
    "SELECT is not allowed in cluster mode": "a cluster has database 0 only: leave the number out of the address",
    "Cluster mode is not enabled": "this is no node of a cluster: leave cluster=true out of the address",
    "cluster support disabled": "this is no node of a cluster: leave cluster=true out of the address",
    "max number of clients reached": "raise maxclients of the server, or lower pool_size in the address",
    "without any password configured": "the server asks for no password: leave it out of the address",
    "no password is set": "the server asks for no password: leave it out of the address",
    "Authentication required": _ADVICE["NOAUTH"],
    "ACL failure in script": _ADVICE["NOPERM"],
    "can't run this command": _ADVICE["NOPERM"],
    "unknown command": "the server lacks a command that is needed (was it renamed?), or is no Redis",
}
_CODES: dict[type[Exception], str] = {
    errors.BusyLoadingError: "LOADING",
    errors.ReadOnlyError: "READONLY",
    errors.OutOfMemoryError: "OOM",
    errors.NoPermissionError: "NOPERM",
    errors.AuthenticationError: "WRONGPASS",
    errors.AuthorizationError: "NOAUTH",
    errors.MovedError: "MOVED",
    errors.TryAgainError: "TRYAGAIN",
    errors.ClusterDownError: "CLUSTERDOWN",
    errors.MasterDownError: "MASTERDOWN",
}

_NUMBER = re.compile(r"[0-9]{1,10}")
_LARGEST_DATABASE = 2**31 - 1  # a server's setting `databases` is an int

_COMMAND = re.compile(r"'([a-z|]{1,40})' command")  # in what the server says of a right that is missing

# Replies that the client takes for broken connections.
REFUSALS = (
    errors.BusyLoadingError,
    errors.AuthenticationError,
    errors.AuthorizationError,
    errors.MaxConnectionsError,
)


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a line goes. Stores with equal ones share a line.

    Attributes:
        url: for the client, password included: never shown.
        where: for people: host, port and database.
    """

    url: str = field(repr=False)
    where: str
    prefix: str = "amplifier-context"
    cluster: bool = False
    durable: bool = True
    connect_timeout: float = 5.0
    timeout: float = 30.0
    pool_size: int = 16


def read_address(address: str, durability: Durability) -> tuple[RedisAddress, float]:
    """An address, and seconds until a claim that is not renewed expires (`lease_ttl`).

    Raises:
        ConfigError: it cannot be used.
    """
    plain, own = take_parameters(address, (*_OWN, *_FIXED))
    prefix = own.get("prefix", "amplifier-context")
    if not prefix or not prefix.isprintable() or len(prefix) > 100:
        raise ConfigError("store", "prefix must be 1 to 100 printable characters")
    cluster = own.get("cluster", "false")
    if cluster not in ("true", "false"):
        raise ConfigError("store", "cluster must be true or false")
    _check_place(plain)
    try:
        told = dict(parse_url(plain))
        _pool_of(plain).make_connection()  # opens nothing; refuses what it does not know
    except (errors.RedisError, ValueError, TypeError):
        raise ConfigError(  # without the text: it may quote the address
            "store", "is no address Redis can use; it looks like redis://user:password@host:6379/0?prefix=name"
        ) from None
    if cluster == "true" and told.get("db"):
        raise ConfigError("store", f"names database {told['db']}; {_SAID['SELECT is not allowed in cluster mode']}")
    where = f"Redis at {told.get('host', 'localhost')}:{told.get('port', 6379)}, database {told.get('db', 0)}"
    made = RedisAddress(
        plain,
        where,
        prefix,
        cluster == "true",
        durability == "fsync",
        number(own, "socket_connect_timeout", 5, 0.1, 600),
        number(own, "socket_timeout", 30, 0.1, 86_400),
        whole_number(own, "pool_size", 16, 1, 1_000),
    )
    return made, number(own, "lease_ttl", 30, 0.2, 86_400)


def _check_place(address: str) -> None:
    """Check what the client does not: of a path that is no number it makes database 0, of no host this machine.

    Raises:
        ConfigError: the host is missing, or the database is not given once at the most, as a number.
    """
    parts = urlsplit(address)
    if not parts.hostname:
        raise ConfigError("store", "names no server; it looks like redis://user:password@host:6379/0?prefix=name")
    databases = [parts.path.removeprefix("/")] if parts.path not in ("", "/") else []
    databases += [pair[3:] for pair in parts.query.split("&") if pair.startswith("db=")]
    if len(databases) > 1:
        raise ConfigError("store", "gives the number of the database twice")
    if any(not _NUMBER.fullmatch(one) or int(one) > _LARGEST_DATABASE for one in databases):
        raise ConfigError(
            "store", "names a database that is none; Redis numbers them from 0, as in redis://host:6379/0?prefix=name"
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    script: Script
    keys: Sequence[str]
    arguments: tuple[Any, ...]

    def by_name(self) -> tuple[Any, ...]:
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.arguments)

    def by_source(self) -> tuple[Any, ...]:
        return ("EVAL", self.script.source, len(self.keys), *self.keys, *self.arguments)


class RedisConnections:
    """A pool on an owner's loop, to one server. Opens nothing before the first call."""

    def __init__(self, address: RedisAddress) -> None:
        self.address = address
        self.where = address.where
        self.owner = Owner("amplifier-context Redis")
        self._pool: BlockingConnectionPool | None = None
        self._looking = asyncio.Lock()
        self._looked = False
        self._wait_aof = False
        self.appends = True  # does the server write an append-only file, as far as is known?
        self._warm: list[Any] = []
        self._waiting = 0
        self._changes: Batches[_Asked, Reply] = Batches(self._change_all)

    async def stop(self) -> None:
        """Close all connections."""
        await self._cool()
        pool, self._pool, self._looked = self._pool, None, False
        if pool is not None:
            await pool.disconnect()

    async def call(self, *command: Any) -> Reply:
        """The reply to one command."""
        (reply,) = await self.exchange([command])
        if isinstance(reply, Exception):
            raise self.refused(reply) from reply
        return reply

    async def run(self, script: Script, keys: Sequence[str], *arguments: Any) -> Reply:
        """The reply of a script."""
        (reply,) = await self.run_all(script, [keys], *arguments)
        return reply

    async def run_all(self, script: Script, keys: Sequence[Sequence[str]], *arguments: Any) -> list[Reply]:
        """The replies of one script for several sessions, asked for at once."""
        asked = [_Asked(script, one, arguments) for one in keys]
        replies = await self.exchange([one.by_name() for one in asked])
        for index, reply in enumerate(replies):
            if isinstance(reply, errors.NoScriptError):  # restarted, or its scripts were flushed: this loads it again
                reply = replies[index] = (await self.exchange([asked[index].by_source()]))[0]
            if isinstance(reply, Exception):
                raise self.refused(reply) from reply
        return replies

    async def change(self, script: Script, keys: Sequence[str], *arguments: Any) -> Reply:
        """The reply of a script that changes something, once that is as durable as was promised."""
        asked = _Asked(script, keys, arguments)
        if sum(len(one) for one in arguments if isinstance(one, bytes)) > _LARGE:
            (reply,) = await self._change_all([asked])  # it keeps nobody else waiting
        else:
            reply = await self._changes.add(asked)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _change_all(self, batch: Sequence[_Asked]) -> list[Reply]:
        await self._look_once()
        wait = [("WAITAOF", 1, 0, round(self.address.timeout * 1000))] if self._wait_aof else []
        replies = await self.exchange([*(asked.by_name() for asked in batch), *wait])
        if any(isinstance(reply, errors.NoScriptError) for reply in replies):
            unknown = [index for index, reply in enumerate(replies) if isinstance(reply, errors.NoScriptError)]
            again = await self.exchange([*(batch[index].by_source() for index in unknown), *wait])
            for index, reply in zip(unknown, again, strict=False):
                replies[index] = reply
            replies[len(batch) :] = again[len(unknown) :]
        unsaved = self._unsaved(replies.pop()) if wait else None
        return [
            self.refused(reply) if isinstance(reply, Exception) else (reply and unsaved) or reply for reply in replies
        ]

    def _unsaved(self, synced: Reply) -> Unconfirmed | None:
        """What the server says about its disk, where that is not what was asked for."""
        if isinstance(synced, Exception):
            self._wait_aof = False
            log.warning("%s has no append-only file: what is acknowledged may be lost with it (WAITAOF)", self.where)
            return None
        if cast("list[int]", synced)[0] >= 1:
            return None
        return Unconfirmed(f"{self.where} did not say in {self.address.timeout:g} s that the change is on its disk")

    async def exchange(self, commands: Sequence[Sequence[Any]]) -> list[Reply]:
        """The replies to some commands, sent at once; an error reply is an exception among them."""
        await self._look_once()
        return await self._exchange(commands)

    async def _exchange(self, commands: Sequence[Sequence[Any]]) -> list[Reply]:
        connection = self._warm.pop() if self._warm else await self._take()
        try:
            async with asyncio.timeout(self.address.timeout):
                packed = (
                    connection.pack_command(*commands[0]) if len(commands) == 1 else connection.pack_commands(commands)
                )
                await connection.send_packed_command(packed, check_health=False)
                return [await _reply(connection) for _ in commands]
        except REFUSALS as problem:
            await connection.disconnect(nowait=True)  # there may be more replies on their way
            raise self.refused(problem) from problem
        except (errors.RedisError, OSError) as problem:  # TimeoutError is an OSError
            await connection.disconnect(nowait=True)
            await self._cool()  # if one is broken, the others may be
            raise Cut(f"the connection to {self.where} broke before the answer came; try again") from problem
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await self._give_back(connection)

    async def _take(self) -> Any:
        if self._pool is None:
            self._pool = self._new_pool()
        pool = self._pool
        self._waiting += 1
        try:
            connection = await cast("Callable[[], Awaitable[Any]]", pool.get_connection)()  # pyright: ignore[reportUnknownMemberType]
            connection.socket_timeout = None  # `exchange` keeps the time: the client would make a task of each write
            return connection
        except (errors.RedisError, OSError) as problem:
            raise self._unreachable(problem) from problem
        finally:
            self._waiting -= 1

    async def _give_back(self, connection: Any) -> None:
        """To the next caller directly, if that may be: the pool takes its time (locks, a look at the socket)."""
        if connection.is_connected and not self._waiting and len(self._warm) < _WARM:
            self._warm.append(connection)
        else:
            await self._put_back(connection)

    async def _put_back(self, connection: Any) -> None:
        connection.socket_timeout = self.address.connect_timeout
        if self._pool is not None:
            await self._pool.release(connection)
        else:
            await connection.disconnect(nowait=True)

    async def _cool(self) -> None:
        """Give all connections that wait outside the pool back to it; it looks at them before it lends them again."""
        while self._warm:
            await self._put_back(self._warm.pop())

    async def scan(self, pattern: str) -> list[bytes]:
        """All keys that match a pattern. Asks for every key of the server."""
        cursor: Any = b"0"
        found: list[bytes] = []
        while True:
            cursor, keys = await self.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1_000)
            found += keys
            if int(cursor) == 0:
                return found

    async def _look_once(self) -> None:
        """Before anything else is asked: what the server promises."""
        if not self._looked:
            async with self._looking:
                if not self._looked:
                    await self._look()
                    self._looked = True

    def _new_pool(self) -> BlockingConnectionPool:
        return _pool_of(
            self.address.url,
            max_connections=self.address.pool_size,
            timeout=self.address.timeout,
            socket_timeout=self.address.connect_timeout,  # of the first words, which `connect_timeout` does not cover
            socket_connect_timeout=self.address.connect_timeout,
            **_FIXED,
        )

    # -- what the server promises ---------------------------------------------------------------------------------

    async def _look(self) -> None:
        """What the server keeps of what it acknowledged; says so once, where that is less than was asked for."""
        told = await self._exchange(
            [
                ("INFO", "server"),
                *(("CONFIG", "GET", name) for name in ("appendonly", "appendfsync", "maxmemory-policy")),
            ]
        )
        self._wait_aof = False
        appendonly, appendfsync, policy = (_setting(reply) for reply in told[1:])
        self.appends = appendonly != "no"
        if policy.startswith("allkeys"):
            log.warning(
                "%s evicts keys when its memory is full (maxmemory-policy %s): histories would lose parts; "
                "set it to noeviction",
                self.where,
                policy,
            )
        if not self.address.durable or (appendonly == "yes" and appendfsync == "always"):
            return
        version = _version(told[0])
        if version >= (7, 2) and appendonly != "no" and not self.address.cluster:  # it is asked on the same connection
            self._wait_aof = True
        elif not appendonly:
            log.warning(
                "%s does not say whether it keeps what it acknowledged (CONFIG GET is not allowed): unknown whether a "
                "crash would lose messages; appendonly yes and appendfsync always would keep them",
                self.where,
            )
        else:
            log.warning(
                "%s may lose acknowledged messages when it crashes (appendonly %s, appendfsync %s): "
                "set appendonly yes and appendfsync always, or say `durability: none` if that is meant",
                self.where,
                appendonly,
                appendfsync or "unknown",
            )

    # -- errors ---------------------------------------------------------------------------------------------------

    def refused(self, problem: Exception) -> StoreError:
        """What an error reply means."""
        said, advice = _meaning(problem)
        if said in ("READONLY", "MASTERDOWN") and self._pool is not None:
            # Once the address leads to a master again, the old connections would still not.
            self.owner_task(self._pool.disconnect(inuse_connections=False))
        known = f" ({said})" if said else ""
        advice = advice or "nothing was changed; look into the log of the server"
        return StoreError(f"{self.where} refused: {type(problem).__name__}{known}; {advice}")

    def _unreachable(self, problem: Exception) -> Unreachable:
        said, advice = _meaning(problem)
        if said:
            return Unreachable(f"{self.where} refuses to be used ({said}); {advice}")
        advice = "is it running, and is the address right? Then try again"
        return Unreachable(f"{self.where} cannot be reached ({_reason(problem)}); {advice}")

    def owner_task(self, work: Any) -> None:
        """Do something in the background of the loop we are on."""
        task = asyncio.ensure_future(work)
        _BACKGROUND.add(task)
        task.add_done_callback(_BACKGROUND.discard)


def _pool_of(url: str, **settings: Any) -> BlockingConnectionPool:
    make = cast("Callable[..., BlockingConnectionPool]", BlockingConnectionPool.from_url)  # pyright: ignore[reportUnknownMemberType]
    return make(url, **settings)


_BACKGROUND: set[asyncio.Future[Any]] = set()  # loops hold their tasks weakly


async def _reply(connection: Any) -> Reply:
    try:
        return await connection.read_response()
    except errors.ResponseError as problem:
        return problem


def _meaning(problem: Exception) -> tuple[str, str]:
    """What an error says, as far as that quotes nothing, and what to do; both empty where that is not known."""
    text = str(problem)
    for words, advice in _SAID.items():
        if words in text:
            return words, advice
    kinds = (code for kind, code in _CODES.items() if isinstance(problem, kind))
    code = next(kinds, text.split(" ", 1)[0])
    if code == "NOPERM" and (command := _COMMAND.search(text)):
        return f"NOPERM: {command[1]}", _ADVICE[code]
    return (code, _ADVICE[code]) if code in _ADVICE else ("", "")


def _reason(problem: Exception) -> str:
    """Why a connection could not be made, in few words and without the address."""
    cause = problem.__cause__ or problem.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return type(problem).__name__


def _setting(reply: Reply) -> str:
    """The value in a reply to CONFIG GET; empty when it was refused."""
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
