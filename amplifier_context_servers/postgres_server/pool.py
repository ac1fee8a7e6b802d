"""The connections to one PostgreSQL server: a pool of psycopg on a loop thread, the schema, and errors in words.

A pool one of whose connections broke is not used again: its other connections may be broken too. Nor is one that has no
connection and gets none. The next call connects once by itself, so that a server that is down is reported in its own
words, and then opens another pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

import psycopg
from psycopg import errors as pg
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from amplifier_context_core.errors import StoreError

from ..leased.loop_thread import LoopThread
from ..leased.protocol import ConnectionLost, Unreachable
from .errors import advice, name_of, server_text
from .queries import rendered
from .schema import create
from .url import PostgresSettings

T = TypeVar("T")
Connection = psycopg.AsyncConnection[Any]
Row = tuple[Any, ...]

_GRACE = 5.0  # seconds after the statement timeout (at most as long again) until a silent server is disconnected
_RETRY = 0.2  # seconds after which a pool tries a refused connection once more, and then no more
_GONE = ("42P01", "3F000", "25006")  # SQLSTATEs: a table or the schema is gone; a connection to a standby


class PostgresPool:
    """Connections to a server, on a loop thread. Opens nothing before the first call."""

    def __init__(self, settings: PostgresSettings) -> None:
        self.settings = settings
        self.display_name = settings.display_name
        self.loop_thread = LoopThread("amplifier-context PostgreSQL")
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._watched: dict[Connection, tuple[float, asyncio.TimerHandle]] = {}  # in use, and when each is cut off
        self._kwargs: dict[str, Any] = {"autocommit": True, "connect_timeout": round(settings.connect_timeout)}
        self._max_silence = settings.statement_timeout + min(_GRACE, settings.statement_timeout)  # seconds

    async def stop(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run work on a connection in autocommit, and return its result. It must leave no transaction open."""
        pool = self._pool or await self._open()
        try:
            async with pool.connection(self.settings.statement_timeout) as connection:
                return await self._limited(connection, work, self._max_silence)
        except PoolClosed:  # another caller found it broken
            self._pool = None if self._pool is pool else self._pool
            return await self.run(work)
        except PoolTimeout:
            await (await self._connect()).close()  # raises why, if the server takes no connections
            raise Unreachable(
                f"{self.display_name}: all {self.settings.pool_size} connections are busy; "
                "try again, or give a larger ?pool_size="
            ) from None

    async def run_alone(self, work: Callable[[Connection], Awaitable[T]], limit: float) -> T:
        """Run work on a connection of its own, whose statements may take `limit` seconds each."""
        async with await self._connect() as connection:
            await connection.execute(b"SET statement_timeout = 0")
            return await self._limited(connection, work, limit)

    async def ask(self, query: str, values: Mapping[str, Any]) -> list[Row]:
        async def work(connection: Connection) -> list[Row]:
            return await (await self.execute(connection, query, values)).fetchall()

        return await self.run(work)

    async def count(self, query: str, values: Mapping[str, Any]) -> int:
        async def work(connection: Connection) -> int:
            return (await self.execute(connection, query, values)).rowcount

        return await self.run(work)

    async def execute(self, connection: Connection, query: str, values: Mapping[str, Any]) -> psycopg.AsyncCursor[Any]:
        """Execute a query of `queries`.

        Numbers are sent as text: psycopg would choose a type by their size, and the server plan again for each type.
        """
        self._watch(connection, self._watched[connection][0])
        sent = {name: _sent(one) for name, one in values.items()}
        return await connection.execute(rendered(query, self.settings.schema), sent)

    # -- connections ----------------------------------------------------------------------------------------------

    async def _limited(self, connection: Connection, work: Callable[[Connection], Awaitable[T]], limit: float) -> T:
        """Run work, and disconnect if one of its statements takes longer than `limit` seconds."""
        self._watch(connection, limit)
        try:
            return await work(connection)
        except psycopg.Error as problem:
            if connection.closed or problem.sqlstate in _GONE:
                self._close_later()
            raise self._translated(problem, connection) from problem
        finally:
            self._watched.pop(connection)[1].cancel()

    def _watch(self, connection: Connection, limit: float) -> None:
        """Disconnect in `limit` seconds, unless this is called again or the work ends."""
        if former := self._watched.get(connection):
            former[1].cancel()
        self._watched[connection] = limit, asyncio.get_running_loop().call_later(limit, _disconnect, connection)

    def _close_later(self) -> None:
        """Close the pool without waiting for it: its workers may be connecting to a server that does not answer."""
        pool, self._pool = self._pool, None
        if pool is not None:
            task = asyncio.get_running_loop().create_task(pool.close())
            self._closing.add(task)  # event loops hold their tasks weakly
            task.add_done_callback(self._closing.discard)

    async def _close_without_connections(self, refused: AsyncConnectionPool[Any]) -> None:
        """Close the pool that was refused a connection, if it has no other: its callers begin again."""
        if self._pool is refused and refused.get_stats()["pool_size"] == 0:
            self._close_later()

    async def _open(self) -> AsyncConnectionPool[Connection]:
        async with self._opening:
            if self._pool is None:
                async with await self._connect() as connection:
                    make = partial(create, schema=self.settings.schema)
                    await self._limited(connection, make, self.settings.statement_timeout)
                pool = AsyncConnectionPool(
                    self.settings.url,
                    kwargs=self._kwargs,
                    min_size=1,
                    max_size=self.settings.pool_size,
                    open=False,
                    configure=self._configure,
                    max_idle=60.0,
                    reconnect_timeout=_RETRY,  # by default it tries for minutes, more and more seldom
                    reconnect_failed=self._close_without_connections,
                    name="amplifier-context",
                )
                await pool.open()
                self._pool = cast("AsyncConnectionPool[Connection]", pool)
            return self._pool

    async def _connect(self) -> Connection:
        try:
            connection = await psycopg.AsyncConnection.connect(self.settings.url, **self._kwargs)
        except psycopg.Error as problem:
            raise self._unreachable(problem) from problem
        await self._limited(connection, self._configure, self.settings.statement_timeout)
        return connection

    async def _configure(self, connection: Connection) -> None:
        # For fsync never less than the server's own setting: that may be `remote_apply`.
        await connection.execute(
            b"SELECT set_config('statement_timeout', %s, false), set_config('synchronous_commit', CASE "
            b"WHEN NOT %s THEN 'off' WHEN current_setting('synchronous_commit') = 'off' THEN 'on' "
            b"ELSE current_setting('synchronous_commit') END, false)",
            [f"{round(self.settings.statement_timeout * 1000)}ms", self.settings.durable],
        )

    # -- errors ---------------------------------------------------------------------------------------------------

    def _translated(self, problem: psycopg.Error, connection: Connection) -> StoreError:
        text = server_text(problem)
        if connection.closed or isinstance(problem, (pg.SerializationFailure, pg.DeadlockDetected)):
            return ConnectionLost(
                f"the connection to {self.display_name} broke before the answer came{text}; try again"
            )
        return StoreError(f"{self.display_name} refused: {name_of(problem)}{text}; {advice(problem.sqlstate or '')}")

    def _unreachable(self, problem: psycopg.Error) -> Unreachable:
        text = server_text(problem)
        return Unreachable(f"{self.display_name} cannot be reached{text}; check server and URL, then try again")


def _sent(value: object) -> object:
    if type(value) in (int, float):
        return str(value)
    if isinstance(value, list):
        items = cast("list[object]", value)
        return items if items and isinstance(items[0], (str, bytes)) else "{" + ",".join(map(str, items)) + "}"
    return value


def _disconnect(connection: Connection) -> None:
    """Shut a connection's socket down from outside: a caller that waits for its answer gets an error."""
    with contextlib.suppress(psycopg.Error, OSError):
        duplicate = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        with duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
