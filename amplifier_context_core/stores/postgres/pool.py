"""A pool of connections to one PostgreSQL server: it creates the schema and translates errors.

The pool belongs to one background loop. When a connection turns out to be broken, the next caller probes the server
before it uses the pool. So a server that is down is reported at once and in its own words, and one that is back is used
at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import cached_property
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from ...errors import StoreError
from ..leased.loop_thread import LoopThread
from ..leased.protocol import ConnectionLost, Unreachable
from ..yielding import yield_gil
from .errors import advice, name_of, server_text, state_before_connection
from .schema import migrate
from .url import PostgresSettings

T = TypeVar("T")

log = logging.getLogger(__name__)

_FETCH_ROWS = 50  # rows made at once: the driver blocks all other threads meanwhile
_MAX_SPARE = 2  # connections kept outside of the pool between two calls
_POOL_NAME = "amplifier-context"  # in messages of psycopg
_GRACE = 5.0  # seconds after the statement timeout (at most as long again) until a silent server is disconnected


class PooledConnection(psycopg.AsyncConnection[Any]):
    """A connection that can keep a cursor.

    To make a cursor, and to adapt its values for the first time, takes a tenth of the time of a small statement. But a
    cursor holds its last result and, until a statement is prepared, its values.
    """

    @cached_property
    def cached_cursor(self) -> psycopg.AsyncCursor[Any]:
        """The kept cursor, for statements with small results."""
        return self.cursor()


def _is_not_of_our_pool(record: logging.LogRecord) -> bool:
    """Filter warnings of this module's pool, unless this module logs at DEBUG: each caller gets them as an error."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    is_ours = any(isinstance(one, PooledConnection) or one == _POOL_NAME for one in arguments)
    return not is_ours or record.levelno < logging.WARNING or log.isEnabledFor(logging.DEBUG)


logging.getLogger("psycopg.pool").addFilter(_is_not_of_our_pool)


class PostgresPool:
    """A pool on a loop thread. Opens nothing before the first call."""

    def __init__(self, settings: PostgresSettings) -> None:
        self.settings = settings
        self.display_name = settings.display_name
        self.loop_thread = LoopThread("amplifier-context PostgreSQL")
        self._pool: AsyncConnectionPool[PooledConnection] | None = None
        self._ready = False
        self._down = False
        self._probing = asyncio.Lock()
        self._max_silence = settings.statement_timeout + min(_GRACE, settings.statement_timeout)  # seconds
        self._spares: list[PooledConnection] = []
        self._uses = 0
        self._waiting = 0
        self._deadlines: dict[PooledConnection, float] = {}  # of connections in use, by the monotonic clock
        self._watchdog: Future[None] | None = None
        self._is_watched = False

    async def stop(self) -> None:
        """Close all connections."""
        await self._return_spares()
        pool, self._pool, self._ready = self._pool, None, False
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._is_watched = False
        if pool is not None:
            await pool.close()

    async def run(self, work: Callable[[PooledConnection], Awaitable[T]], limit: float | None = None) -> T:
        """Run work on a connection in autocommit, and return its result.

        Args:
            work: it must leave no transaction open.
            limit: seconds until a silent server is disconnected; None for its statement timeout and some grace.
        """
        connection = self._take_spare() or await self._take()
        self._watch(connection, self._max_silence if limit is None else limit)
        try:
            return await work(connection)
        except psycopg.Error as problem:
            raise self._translated(problem, connection) from problem
        finally:
            del self._deadlines[connection]
            await self._give_back(connection)

    async def run_without_timeout(self, work: Callable[[PooledConnection], Awaitable[T]], limit: float) -> T:
        """`run`, without the statement timeout."""

        async def without_timeout(connection: PooledConnection) -> T:
            try:
                await connection.execute(b"SET statement_timeout = 0")
                return await work(connection)
            finally:
                if connection.pgconn.transaction_status == TransactionStatus.IDLE:  # otherwise it is not used again
                    await self._configure(connection)

        return await self.run(without_timeout, limit)

    async def ask(self, statement: bytes, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Return the rows of one statement."""

        async def work(connection: PooledConnection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(statement, values)
            rows = await cursor.fetchmany(_FETCH_ROWS)
            if len(rows) == _FETCH_ROWS:
                while more := await cursor.fetchmany(_FETCH_ROWS):
                    rows += more
                    yield_gil()
            return rows

        return await self.run(work)

    async def ask_few(self, statement: bytes, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """`ask`, for a short answer."""

        async def work(connection: PooledConnection) -> list[tuple[Any, ...]]:
            return await (await connection.cached_cursor.execute(statement, values)).fetchall()

        return await self.run(work)

    async def count(self, statement: bytes, values: dict[str, Any]) -> int:
        """Return how many rows one statement changed."""

        async def work(connection: PooledConnection) -> int:
            return (await connection.cached_cursor.execute(statement, values)).rowcount

        return await self.run(work)

    # -- connections ----------------------------------------------------------------------------------------------

    async def _take(self) -> PooledConnection:
        deadline = asyncio.get_running_loop().time() + self.settings.statement_timeout
        while True:
            if self._down or not self._ready:
                await self._probe()
            pool = self._pool
            if pool is None:
                continue
            self._waiting += 1
            try:
                if spare := self._take_spare():  # its user gave it back before it could see that this caller waits
                    return spare
                return await pool.getconn(self.settings.connect_timeout)
            except PoolTimeout:
                self._down = True  # down, or only busy
                if asyncio.get_running_loop().time() > deadline:
                    raise Unreachable(
                        f"{self.display_name}: all {self.settings.pool_size} connections are busy; "
                        "try again, or give a larger ?pool_size="
                    ) from None
            except PoolClosed:
                self._pool, self._ready = None, False
            finally:
                self._waiting -= 1

    async def _give_back(self, connection: PooledConnection) -> None:
        """Keep a connection as a spare if possible: the pool spends time on locks, reset and statistics."""
        if self._can_be_spare(connection):
            self._spares.append(connection)
        else:
            await self._return(connection)

    async def _return(self, connection: PooledConnection) -> None:
        if self._pool is not None:
            await self._pool.putconn(connection)
        else:
            await connection.close()

    def _can_be_spare(self, connection: PooledConnection) -> bool:
        """True if a connection may be kept outside of the pool. Every 1,000th is returned, for the pool to check it."""
        self._uses += 1
        is_idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        has_room = not self._waiting and len(self._spares) < _MAX_SPARE and self._pool is not None
        return is_idle and has_room and not self._down and self._uses % 1_000 != 0

    def _take_spare(self) -> PooledConnection | None:
        """Return a spare connection, or None."""
        return self._spares.pop() if self._spares and self._ready and not self._down else None

    async def _return_spares(self) -> None:
        """Return all spare connections to the pool."""
        while self._spares:
            await self._return(self._spares.pop())

    def _watch(self, connection: PooledConnection, limit: float) -> None:
        """Disconnect a connection if the server stays silent for `limit` seconds."""
        self._deadlines[connection] = time.monotonic() + limit
        if not self._is_watched:
            self._is_watched = True
            self._watchdog = self.loop_thread.start(self._disconnect_silent())

    async def _disconnect_silent(self) -> None:
        """Disconnect from a server that stays silent for too long; runs while any connection is in use."""
        try:
            while True:
                await asyncio.sleep(min(1.0, self.settings.statement_timeout / 4))
                now = time.monotonic()
                for connection, deadline in list(self._deadlines.items()):
                    if now > deadline and self._deadlines.get(connection) == deadline:
                        _disconnect(connection)
                if not self._deadlines:
                    self._is_watched = False
                    if not self._deadlines:  # `_watch` may have run meanwhile and started a second watchdog: harmless
                        return
        finally:
            self._is_watched = False

    async def _probe(self) -> None:
        """Connect once, outside of the pool, to see that the server answers; migrate the schema on first use."""
        async with self._probing:
            if self._ready and not self._down:
                return
            try:
                connection = await PooledConnection.connect(
                    self.settings.conninfo, autocommit=True, connect_timeout=round(self.settings.connect_timeout)
                )
            except psycopg.Error as problem:
                raise self._unreachable(problem) from problem
            timer = asyncio.get_running_loop().call_later(self.settings.statement_timeout, _disconnect, connection)
            try:
                await self._configure(connection)
                if not self._ready:
                    await migrate(connection, self.settings.schema)
                    await self._warn(connection)
            except psycopg.Error as problem:
                raise self._translated(problem, connection) from problem
            finally:
                timer.cancel()
                await connection.close()
            if self._pool is None:
                self._pool = self._new_pool()
                await self._pool.open()
            elif self._down:
                await self._return_spares()
                await self._pool.check()
            self._ready, self._down = True, False

    def _new_pool(self) -> AsyncConnectionPool[PooledConnection]:
        return AsyncConnectionPool(
            self.settings.conninfo,
            connection_class=PooledConnection,
            kwargs={"autocommit": True, "connect_timeout": round(self.settings.connect_timeout)},
            min_size=1,
            max_size=self.settings.pool_size,
            open=False,
            configure=self._configure,
            max_idle=60.0,
            # Give up at once: a caller that needs a connection probes the server itself, and the pool grows again.
            reconnect_timeout=0.05,
            name=_POOL_NAME,
        )

    async def _configure(self, connection: PooledConnection) -> None:
        # For fsync never less than the server's own setting: that may be `remote_apply`.
        await connection.execute(
            b"SELECT set_config('statement_timeout', %s, false), set_config('synchronous_commit', CASE "
            b"WHEN NOT %s THEN 'off' WHEN current_setting('synchronous_commit') = 'off' THEN 'on' "
            b"ELSE current_setting('synchronous_commit') END, false)",
            [f"{round(self.settings.statement_timeout * 1000)}ms", self.settings.durable],
        )

    async def _warn(self, connection: PooledConnection) -> None:
        found = await (await connection.execute("SELECT current_setting('fsync')")).fetchone()
        if self.settings.durable and found is not None and found[0] == "off":
            log.warning(
                "%s runs with fsync = off: a power failure may lose acknowledged messages; "
                "turn it on, or set `durability: none` if that is intended",
                self.display_name,
            )

    # -- errors ---------------------------------------------------------------------------------------------------

    def _translated(self, problem: psycopg.Error, connection: PooledConnection) -> StoreError:
        state = problem.sqlstate or ""
        text = server_text(problem)
        if connection.closed or isinstance(problem, (pg.SerializationFailure, pg.DeadlockDetected)):
            self._down = self._down or connection.closed
            return ConnectionLost(
                f"the connection to {self.display_name} broke before the answer came{text}; try again"
            )
        if state in ("42P01", "3F000"):
            self._ready = False
        if state == "25006":
            # An old connection would stay with the standby, even once the URL leads to a primary again.
            _disconnect(connection)
        return StoreError(f"{self.display_name} refused: {name_of(problem)}{text}; {advice(state)}")

    def _unreachable(self, problem: psycopg.Error) -> Unreachable:
        hint = advice(
            state_before_connection(problem), "check that it is running and that the URL is right, then try again"
        )
        return Unreachable(f"{self.display_name} cannot be reached{server_text(problem)}; {hint}")


def _disconnect(connection: PooledConnection) -> None:
    """Shut a connection's socket down from outside: a caller that waits for its answer gets an error."""
    with contextlib.suppress(psycopg.Error, OSError):
        duplicate = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        with duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
