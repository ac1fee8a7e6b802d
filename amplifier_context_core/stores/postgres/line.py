"""Connections to one PostgreSQL server: a pool, its schema, and what its errors mean.

The pool lives on one background loop; connections that wait outside of it are used from any. A connection that is found
broken makes the next caller look for the server itself, so that a server that is down is told of at once and with its
own words, and one that is back is used at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
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
from ..servers.leases import Cut, Unreachable, breathe
from ..servers.owner import Owner
from .address import PostgresAddress
from .schema import migrate

T = TypeVar("T")

log = logging.getLogger(__name__)

_ANY_LOOP = sys.platform != "win32"  # there the usual loop cannot wait for a connection of psycopg's
_CHUNK = 50  # rows that are made at once: the driver keeps all other threads waiting meanwhile
_WARM = 2  # connections kept out of the pool between two calls
_POOL = "amplifier-context"  # its name in messages of psycopg
_GRACE = 5.0  # seconds after its statement timeout (at most as long again) until a silent server is hung up on

# What to do, by the beginning of the SQLSTATE; the longest that fits counts.
_ADVICE = {
    "22": "the data cannot be stored as it is",
    "23": "an entry stands there already, under the same seq",
    "25006": "the server takes no writes (a standby?): give the address of the primary",
    "28": "check user and password in the address, and the server's pg_hba.conf",
    "3D": "make the database, or give the name of one that is there",
    "3F": "the schema is gone; it is made anew with the next call",
    "40": "try again",
    "42501": "grant the user of the address rights on the schema, or name another one (?schema=NAME)",
    "42P01": "a table of the schema is gone; it is made anew with the next call",
    "53": "the server has too little room; try again later",
    "53100": "the server's disk is full: make room there, then go on",
    "53300": "the server has too many connections: raise max_connections, or give a smaller ?pool_size=",
    "57014": "it took longer than the server may: give a larger ?statement_timeout= (seconds), or see what locks it",
    "57P03": "the server is starting or stopping: try again in a moment",
    "58": "look into the server's log",
    "XX": "look into the server's log",
}
# libpq gives no SQLSTATE for what goes wrong before there is a connection.
_PHRASES = (
    ('role "', "28"),
    ("password authentication failed", "28"),
    ("no password supplied", "28"),
    ("pg_hba.conf", "28"),
    ("does not exist", "3D"),
    ("too many", "53300"),
    ("starting up", "57P03"),
    ("shutting down", "57P03"),
)
_QUOTABLE = ("08", "25", "28", "3D", "3F", "42", "53", "54", "55", "57", "58", "XX")  # classes that quote no data


class Connection(psycopg.AsyncConnection[Any]):
    """A connection that can keep a cursor. To make one, and to learn anew how its values are sent, takes a tenth of the
    time of a small statement; but a cursor holds its last result (and, until a statement is prepared, its values).
    """

    @cached_property
    def kept(self) -> psycopg.AsyncCursor[Any]:
        """For statements whose results are small."""
        return self.cursor()


def _is_not_of_our_pool(record: logging.LogRecord) -> bool:
    """What our pool warns of is told by who meets it, as an error in words; only who looks for our bugs sees both."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    ours = any(isinstance(one, Connection) or one == _POOL for one in arguments)
    return not ours or record.levelno < logging.WARNING or log.isEnabledFor(logging.DEBUG)


logging.getLogger("psycopg.pool").addFilter(_is_not_of_our_pool)


class PostgresConnections:
    """A pool on an owner's loop. Opens nothing before the first call."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self.where = address.where
        self.owner = Owner("amplifier-context PostgreSQL")
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._ready = False
        self._down = False
        self._checking = asyncio.Lock()
        self._patience = address.statement_timeout + min(_GRACE, address.statement_timeout)
        self._warm: list[Connection] = []
        self._uses = 0
        self._waiting = 0
        self._busy: dict[Connection, float] = {}
        self._watching: Future[None] | None = None
        self._watched = False

    async def stop(self) -> None:
        """Close all connections."""
        await self._cool()
        pool, self._pool, self._ready = self._pool, None, False
        if self._watching is not None:
            self._watching.cancel()
        self._watched = False
        if pool is not None:
            await pool.close()

    async def do(self, work: Callable[[Connection], Awaitable[T]], limit: float | None = None) -> T:
        """Do something on a connection, in autocommit.

        Args:
            work: what; it must leave no transaction open.
            limit: seconds until the server is given up, if not its statement timeout and a little.
        """
        connection = self._spare() or await self._take()
        self._begin(connection, self._patience if limit is None else limit)
        try:
            return await work(connection)
        except psycopg.Error as problem:
            raise self._told(problem, connection) from problem
        finally:
            del self._busy[connection]
            await self._give_back(connection)

    async def do_slowly(self, work: Callable[[Connection], Awaitable[T]], limit: float) -> T:
        """`do`, without the statement timeout."""

        async def unhurried(connection: Connection) -> T:
            try:
                await connection.execute(b"SET statement_timeout = 0")
                return await work(connection)
            finally:
                if connection.pgconn.transaction_status == TransactionStatus.IDLE:  # or it is not used any more
                    await self._configure(connection)

        return await self.do(unhurried, limit)

    def lend(self) -> Connection | None:
        """A connection for `use` on the running loop, if one can be had at once; whoever takes it must use it."""
        return self._spare() if _ANY_LOOP else None

    async def use(self, connection: Connection, statement: bytes, values: dict[str, Any]) -> int:
        """`count` on the caller's own loop, with a connection that was lent.

        psycopg waits for a connection on whatever loop it is used, and these never have two users. When the caller is
        cancelled it has the server drop the statement first, which takes seconds where that says nothing (10 at most).
        """
        self._begin(connection, self._patience)
        try:
            return (await connection.kept.execute(statement, values)).rowcount
        except psycopg.Error as problem:
            raise self._told(problem, connection) from problem
        finally:
            del self._busy[connection]
            if not self._sound(connection):
                self.owner.start(self._put_back(connection))
            else:
                self._warm.append(connection)
                if self._waiting:  # somebody began to wait meanwhile
                    self.owner.start(self._cool())

    async def ask(self, statement: bytes, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The rows of one statement."""

        async def work(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(statement, values)
            rows = await cursor.fetchmany(_CHUNK)
            if len(rows) == _CHUNK:
                while more := await cursor.fetchmany(_CHUNK):
                    rows += more
                    breathe()
            return rows

        return await self.do(work)

    async def ask_few(self, statement: bytes, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """`ask`, where the answer is short."""

        async def work(connection: Connection) -> list[tuple[Any, ...]]:
            return await (await connection.kept.execute(statement, values)).fetchall()

        return await self.do(work)

    async def count(self, statement: bytes, values: dict[str, Any]) -> int:
        """How many rows one statement changed."""

        async def work(connection: Connection) -> int:
            return (await connection.kept.execute(statement, values)).rowcount

        return await self.do(work)

    # -- connections ----------------------------------------------------------------------------------------------

    async def _take(self) -> Connection:
        deadline = asyncio.get_running_loop().time() + self.address.statement_timeout
        while True:
            if self._down or not self._ready:
                await self._look()
            pool = self._pool
            if pool is None:
                continue
            self._waiting += 1
            try:
                if spare := self._spare():  # it came back before those who use them knew that somebody waits
                    return spare
                return await pool.getconn(self.address.connect_timeout)
            except PoolTimeout:
                self._down = True  # down, or only busy
                if asyncio.get_running_loop().time() > deadline:
                    raise Unreachable(
                        f"{self.where}: all {self.address.pool_size} connections are busy; "
                        "try again, or give a larger ?pool_size="
                    ) from None
            except PoolClosed:
                self._pool, self._ready = None, False
            finally:
                self._waiting -= 1

    async def _give_back(self, connection: Connection) -> None:
        """To the next caller directly, if that may be: the pool takes its time (locks, reset, statistics)."""
        if self._sound(connection):
            self._warm.append(connection)
        else:
            await self._put_back(connection)

    async def _put_back(self, connection: Connection) -> None:
        if self._pool is not None:
            await self._pool.putconn(connection)
        else:
            await connection.close()

    def _sound(self, connection: Connection) -> bool:
        """May it wait outside of the pool? Now and then not, so that the pool sees each again."""
        self._uses += 1
        idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        room = not self._waiting and len(self._warm) < _WARM and self._pool is not None
        return idle and room and not self._down and self._uses % 1_000 != 0

    def _spare(self) -> Connection | None:
        """A connection that waits outside of the pool. Other threads take them as well."""
        try:
            return self._warm.pop() if self._ready and not self._down else None
        except IndexError:
            return None

    async def _cool(self) -> None:
        """Give all connections that wait outside the pool back to it."""
        while True:
            try:
                connection = self._warm.pop()
            except IndexError:
                return
            await self._put_back(connection)

    def _begin(self, connection: Connection, limit: float) -> None:
        self._busy[connection] = time.monotonic() + limit
        if not self._watched:
            self._watched = True
            self._watching = self.owner.start(self._watch())

    async def _watch(self) -> None:
        """Hang up on servers that say nothing for too long, for as long as anything is asked."""
        try:
            while True:
                await asyncio.sleep(min(1.0, self.address.statement_timeout / 4))
                now = time.monotonic()
                for connection, deadline in list(self._busy.items()):
                    if now > deadline and self._busy.get(connection) == deadline:
                        _hang_up(connection)
                if not self._busy:
                    self._watched = False
                    if not self._busy:  # `_begin` may have come between; if it saw that, there are two of us: no harm
                        return
        finally:
            self._watched = False

    async def _look(self) -> None:
        """Connect once, outside the pool: is the server there, and is the schema?"""
        async with self._checking:
            if self._ready and not self._down:
                return
            try:
                connection = await Connection.connect(
                    self.address.conninfo, autocommit=True, connect_timeout=round(self.address.connect_timeout)
                )
            except psycopg.Error as problem:
                raise self._unreachable(problem) from problem
            watch = asyncio.get_running_loop().call_later(self.address.statement_timeout, _hang_up, connection)
            try:
                await self._configure(connection)
                if not self._ready:
                    await migrate(connection, self.address.schema)
                    await self._warn(connection)
            except psycopg.Error as problem:
                raise self._told(problem, connection) from problem
            finally:
                watch.cancel()
                await connection.close()
            if self._pool is None:
                self._pool = self._new_pool()
                await self._pool.open()
            elif self._down:
                await self._cool()
                await self._pool.check()
            self._ready, self._down = True, False

    def _new_pool(self) -> AsyncConnectionPool[Connection]:
        return AsyncConnectionPool(
            self.address.conninfo,
            connection_class=Connection,
            kwargs={"autocommit": True, "connect_timeout": round(self.address.connect_timeout)},
            min_size=1,
            max_size=self.address.pool_size,
            open=False,
            configure=self._configure,
            max_idle=60.0,
            # Give up at once: whoever needs a connection looks for the server himself, and the pool grows again.
            reconnect_timeout=0.05,
            name=_POOL,
        )

    async def _configure(self, connection: Connection) -> None:
        # For fsync never less than the server's own setting: that may be `remote_apply`.
        await connection.execute(
            b"SELECT set_config('statement_timeout', %s, false), set_config('synchronous_commit', CASE "
            b"WHEN NOT %s THEN 'off' WHEN current_setting('synchronous_commit') = 'off' THEN 'on' "
            b"ELSE current_setting('synchronous_commit') END, false)",
            [f"{round(self.address.statement_timeout * 1000)}ms", self.address.durable],
        )

    async def _warn(self, connection: Connection) -> None:
        found = await (await connection.execute("SELECT current_setting('fsync')")).fetchone()
        if self.address.durable and found is not None and found[0] == "off":
            log.warning(
                "%s runs with fsync = off: what is acknowledged there may be lost with power; "
                "turn it on, or say `durability: none` if that is meant",
                self.where,
            )

    # -- errors ---------------------------------------------------------------------------------------------------

    def _told(self, problem: psycopg.Error, connection: Connection) -> StoreError:
        state = problem.sqlstate or ""
        if connection.closed or isinstance(problem, (pg.SerializationFailure, pg.DeadlockDetected)):
            self._down = self._down or connection.closed
            return Cut(f"the connection to {self.where} broke before the answer came{_said(problem)}; try again")
        if state in ("42P01", "3F000"):
            self._ready = False
        if state == "25006":
            # Once the address leads to a primary again, an old connection would still not.
            _hang_up(connection)
        return StoreError(f"{self.where} refused: {_kind(problem)}{_said(problem)}; {_advice(state)}")

    def _unreachable(self, problem: psycopg.Error) -> Unreachable:
        words = str(problem)
        state = next((state for phrase, state in _PHRASES if phrase in words), problem.sqlstate or "")
        advice = _advice(state, "is it running, and is the address right? Then try again")
        return Unreachable(f"{self.where} cannot be reached{_said(problem)}; {advice}")


def _hang_up(connection: Connection) -> None:
    """End a connection from outside: whoever waits for its answer is told that it broke."""
    with contextlib.suppress(psycopg.Error, OSError):
        line = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        with line:
            line.shutdown(socket.SHUT_RDWR)


def _kind(problem: psycopg.Error) -> str:
    return f"{type(problem).__name__} ({problem.sqlstate})" if problem.sqlstate else type(problem).__name__


def _said(problem: psycopg.Error) -> str:
    """The server's own words, where they cannot quote a message."""
    if not (problem.sqlstate.startswith(_QUOTABLE) if problem.sqlstate else isinstance(problem, pg.OperationalError)):
        return ""
    # After its first line libpq says what that may mean, or what it tried besides.
    lines = (problem.diag.message_primary or str(problem)).strip().splitlines()
    return f": {lines[0].strip()[:300]}" if lines else ""


def _advice(state: str, otherwise: str = "nothing was changed") -> str:
    found = [start for start in _ADVICE if state.startswith(start)] if state else []
    return _ADVICE[max(found, key=len)] if found else otherwise
