"""Baselines: bare loops that measure the limit of the disk, the driver or the server for the same messages.

Each baseline writes one message at a time, as durably as the store that it is compared with. The baselines of databases
are asynchronous, as their users are.
"""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg import sql
from redis.asyncio import Redis

SIXTEEN = 16  # concurrent appenders


class Baseline(Protocol):
    """A bare loop over lines; `many` divides them among sixteen tasks if the driver can use that."""

    async def single(self, lines: Sequence[bytes]) -> None: ...
    async def many(self, lines: Sequence[bytes]) -> None: ...
    async def close(self) -> None: ...


class SqliteBaseline:
    """Inserts and commits each line in one thread, with the settings of the store."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "bare.db"
        self._thread = ThreadPoolExecutor(1)
        self._db = self._thread.submit(self._open).result()

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, message TEXT NOT NULL)")
        return db

    def _insert(self, line: str) -> None:
        self._db.execute("INSERT INTO messages(message) VALUES (?)", (line,))
        self._db.commit()

    async def single(self, lines: Sequence[bytes]) -> None:
        loop = asyncio.get_running_loop()
        for line in lines:
            await loop.run_in_executor(self._thread, self._insert, line.decode())

    async def many(self, lines: Sequence[bytes]) -> None:
        await shared(lines, self.single)

    async def close(self) -> None:
        self._thread.submit(self._db.close).result()
        self._thread.shutdown()


class PostgresBaseline:
    """Inserts each line in autocommit into a table with a key; each of sixteen tasks has its own connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lines: list[psycopg.AsyncConnection[Any]] = []
        self._table = f"bench_bare_{uuid.uuid4().hex[:8]}"
        self._insert = self._of("INSERT INTO {} (message) VALUES (%s)")

    def _of(self, text: str) -> bytes:
        return sql.SQL(text).format(sql.Identifier(self._table)).as_bytes(None)  # pyright: ignore[reportArgumentType]

    async def open(self) -> PostgresBaseline:
        """Connect and create the table.

        Raises:
            psycopg.Error: the server is not there, or refuses.
        """
        for _ in range(SIXTEEN):
            self._lines.append(await psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=3))
        await self._lines[0].execute(
            self._of("CREATE TABLE {} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message text NOT NULL)")
        )
        return self

    async def _over(self, connection: psycopg.AsyncConnection[Any], lines: Sequence[bytes]) -> None:
        for line in lines:
            await connection.execute(self._insert, [line.decode()])

    async def single(self, lines: Sequence[bytes]) -> None:
        await self._over(self._lines[0], lines)

    async def many(self, lines: Sequence[bytes]) -> None:
        pairs = zip(self._lines, portions(lines), strict=True)
        await asyncio.gather(*(self._over(connection, portion) for connection, portion in pairs))

    async def close(self) -> None:
        await self._lines[0].execute(self._of("DROP TABLE {}"))
        for connection in self._lines:
            await connection.close()


class RedisBaseline:
    """Sends an RPUSH per line with redis-py's client."""

    def __init__(self, url: str) -> None:
        self._client: Any = Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]
        self._key = f"bench-bare-{uuid.uuid4().hex[:8]}"

    async def open(self) -> RedisBaseline:
        """Check that the server answers.

        Raises:
            redis.RedisError, OSError: it is not.
        """
        await self._client.ping()
        return self

    async def single(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            await self._client.rpush(self._key, line)

    async def many(self, lines: Sequence[bytes]) -> None:
        await shared(lines, self.single)

    async def close(self) -> None:
        await self._client.delete(self._key)
        await self._client.aclose()


def portions(lines: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Return the lines divided into sixteen portions."""
    return [lines[number::SIXTEEN] for number in range(SIXTEEN)]


async def shared(lines: Sequence[bytes], single: Any) -> None:
    """Run sixteen tasks, each with one portion."""
    await asyncio.gather(*(single(portion) for portion in portions(lines)))
