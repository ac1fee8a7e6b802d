"""Baselines: bare loops that measure the limit of the disk, the driver or the server for the same messages.

Each baseline writes one message at a time, as durably as the store that it is compared with, and asynchronously, as its
users do.
"""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from redis.asyncio import Redis

SIXTEEN = 16  # concurrent appenders

Write = Callable[[Sequence[str], int], Awaitable[None]]
"""Writes lines of JSON, as one of sixteen appenders."""


async def write_many(write: Write, lines: Sequence[str]) -> None:
    await asyncio.gather(*(write(lines[number::SIXTEEN], number) for number in range(SIXTEEN)))


@asynccontextmanager
async def sqlite_baseline(folder: Path) -> AsyncGenerator[Write]:
    """Insert and commit each line in one thread, with the settings of the store."""
    db = sqlite3.connect(folder / "bare.db", check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, message TEXT NOT NULL)")
    loop = asyncio.get_running_loop()

    def insert(line: str) -> None:
        db.execute("INSERT INTO messages(message) VALUES (?)", (line,))
        db.commit()

    with ThreadPoolExecutor(1) as thread:

        async def write(lines: Sequence[str], appender: int) -> None:
            for line in lines:
                await loop.run_in_executor(thread, insert, line)

        yield write
    db.close()


@asynccontextmanager
async def postgres_baseline(url: str) -> AsyncGenerator[Write]:
    """Insert each line in autocommit into a table with a key; each of sixteen tasks has its own connection."""
    table = sql.Identifier(f"bench_bare_{uuid.uuid4().hex[:8]}")
    async with AsyncExitStack() as stack:
        connections: list[psycopg.AsyncConnection[Any]] = []
        for _ in range(SIXTEEN):
            connecting = psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=3)
            connections.append(await stack.enter_async_context(await connecting))
        columns = "(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message text NOT NULL)"
        await connections[0].execute(sql.SQL(f"CREATE TABLE {{}} {columns}").format(table))
        insert = sql.SQL("INSERT INTO {} (message) VALUES (%s)").format(table).as_bytes(None)

        async def write(lines: Sequence[str], appender: int) -> None:
            for line in lines:
                await connections[appender].execute(insert, [line])

        yield write
        await connections[0].execute(sql.SQL("DROP TABLE {}").format(table))


@asynccontextmanager
async def redis_baseline(url: str) -> AsyncGenerator[Write]:
    """Send an RPUSH per line with redis-py's client."""
    key = f"bench-bare-{uuid.uuid4().hex[:8]}"
    client: Any = Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]
    async with client:
        await client.ping()

        async def write(lines: Sequence[str], appender: int) -> None:
            for line in lines:
                await client.rpush(key, line)

        yield write
        await client.delete(key)
