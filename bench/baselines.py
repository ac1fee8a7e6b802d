"""Baselines: bare loops that measure the limit of the disk, the driver or the server for the same messages.

Each baseline writes one message at a time, as durably as the store that it is compared with, and asynchronously, as its
users do.
"""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg import sql
from redis.asyncio import Redis

SIXTEEN = 16  # concurrent appenders


class Baseline(Protocol):
    """A bare loop over lines of JSON, as one of sixteen appenders."""

    async def write(self, lines: Sequence[str], appender: int = 0) -> None: ...

    async def close(self) -> None: ...


async def write_many(baseline: Baseline, lines: Sequence[str]) -> None:
    tasks: list[Awaitable[None]] = [baseline.write(lines[number::SIXTEEN], number) for number in range(SIXTEEN)]
    await asyncio.gather(*tasks)


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

    async def write(self, lines: Sequence[str], appender: int = 0) -> None:
        loop = asyncio.get_running_loop()
        for line in lines:
            await loop.run_in_executor(self._thread, self._insert, line)

    async def close(self) -> None:
        self._thread.submit(self._db.close).result()
        self._thread.shutdown()


class PostgresBaseline:
    """Inserts each line in autocommit into a table with a key; each of sixteen tasks has its own connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connections: list[psycopg.AsyncConnection[Any]] = []
        self._table = f"bench_bare_{uuid.uuid4().hex[:8]}"
        self._insert = self._of("INSERT INTO {} (message) VALUES (%s)")

    def _of(self, text: str) -> bytes:
        return sql.SQL(text).format(sql.Identifier(self._table)).as_bytes(None)  # pyright: ignore[reportArgumentType]

    async def open(self) -> PostgresBaseline:
        """Connect and create the table; raise `psycopg.Error` if the server is not there, or refuses."""
        for _ in range(SIXTEEN):
            opened = await psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=3)
            self._connections.append(opened)
        await self._connections[0].execute(
            self._of("CREATE TABLE {} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message text NOT NULL)")
        )
        return self

    async def write(self, lines: Sequence[str], appender: int = 0) -> None:
        for line in lines:
            await self._connections[appender].execute(self._insert, [line])

    async def close(self) -> None:
        await self._connections[0].execute(self._of("DROP TABLE {}"))
        for connection in self._connections:
            await connection.close()


class RedisBaseline:
    """Sends an RPUSH per line with redis-py's client."""

    def __init__(self, url: str) -> None:
        self._client: Any = Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]
        self._key = f"bench-bare-{uuid.uuid4().hex[:8]}"

    async def open(self) -> RedisBaseline:
        """Check that the server answers; raise `redis.RedisError` or `OSError` if it does not."""
        await self._client.ping()
        return self

    async def write(self, lines: Sequence[str], appender: int = 0) -> None:
        for line in lines:
            await self._client.rpush(self._key, line)

    async def close(self) -> None:
        await self._client.delete(self._key)
        await self._client.aclose()
