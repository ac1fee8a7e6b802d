"""Row sizes and rates on the servers here, from which docs/reports/scale.md extrapolates: ``python -m bench.scale``.

Small on purpose: some thousands of sessions, a minute. Sizes of rows are those of any number of them; rates are those
of this machine, and say which part of the work costs what.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import islice
from time import perf_counter
from typing import Any

import psycopg
from psycopg import sql
from redis import RedisError
from redis.asyncio import Redis
from redis.crc import key_slot
from rich.console import Console

from amplifier_context_core import ContextManager, HeuristicTokenCounter, load_config
from amplifier_context_core.stores import Store, open_store
from amplifier_context_core.stores.codec import message_json

from .sessions import BUDGET, Message, messages
from .stores import POSTGRES, REDIS
from .stores_entries import entries_of

Figures = dict[str, float]

SESSIONS = 2_000  # short ones
SHORT = 20  # messages of each
LONG = (200, 2_000)  # messages of single long ones
_AT_ONCE = 16
_SAVES = 20
_RENEWED = 1_000
_WAL = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"


class Absent(Exception):
    """The server does not answer."""


async def measure(which: list[str]) -> dict[str, Figures]:
    """Return the figures of the named servers; by default of all servers that answer."""
    measured: dict[str, Figures] = {}
    for name, work in (("postgresql", _postgres), ("redis", _redis)):
        if which and name not in which:
            continue
        try:
            measured[name] = await work(f"bench_{uuid.uuid4().hex[:8]}")
        except Absent as problem:
            Console(stderr=True).print(f"{name} is left out: {problem}")
    return measured


async def fill(store: Store, texts: list[Message]) -> Figures:
    """Create many short sessions message by message, and single long ones; return the times."""

    async def one(number: int) -> None:
        session_id = f"short-{number:08d}"
        for entry in entries_of(session_id, ({**text} for text in texts[:SHORT])):
            await store.append(session_id, [entry])

    async def some(first: int) -> None:
        for number in range(first, SESSIONS, _AT_ONCE):
            await one(number)

    started = perf_counter()
    await asyncio.gather(*(some(first) for first in range(_AT_ONCE)))
    appending = perf_counter() - started
    for length in LONG:
        session_id = f"long-{length}"
        await store.append(session_id, list(entries_of(session_id, ({**text} for text in islice(texts, length)))))
    return {"appends a second, 16 at once": SESSIONS * SHORT / appending}


async def rates(store: Store) -> Figures:
    """Return the times of reading, saving, releasing and deleting."""
    names = [f"short-{number:08d}" for number in range(200)]

    async def open_and_read(name: str) -> None:
        await store.open(name)
        await store.load_checkpoint(name)
        await store.read(name, -SHORT)

    return {
        "ms to release a session": await _each(names, store.release),
        "ms to open a session and read 20 messages": await _each(names, open_and_read),
        "ms to delete a session of 20 messages": await _each(names, store.delete),
    }


async def checkpoint(store: Store) -> tuple[str, bytes]:
    """Return a manager's checkpoint of the longest session, and the id of the session."""
    session_id = f"long-{max(LONG)}"
    config = load_config({"max_tokens": BUDGET})
    manager = ContextManager(config, session_id=session_id, store=store, counter=HeuristicTokenCounter())
    await manager.get_messages_for_request()
    data = await store.load_checkpoint(session_id)
    assert data, "no checkpoint was made"
    return session_id, data


async def _each(names: list[str], work: Callable[[str], Awaitable[object]]) -> float:
    started = perf_counter()
    for name in names:
        await work(name)
    return (perf_counter() - started) / len(names) * 1000


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


async def _postgres(schema: str) -> Figures:
    texts = list(messages(max(LONG)))
    try:
        connection = await psycopg.AsyncConnection.connect(POSTGRES, autocommit=True, connect_timeout=3)
    except psycopg.OperationalError as problem:
        raise Absent(str(problem).partition("\n")[0]) from problem
    store = open_store(f"{POSTGRES}{'&' if '?' in POSTGRES else '?'}schema={schema}")
    async with connection:
        ask = _asking(connection, schema)
        try:
            await store.sessions()  # makes the tables
            wal = await ask(_WAL)
            figures = await fill(store, texts)
            count = SESSIONS * SHORT + sum(LONG)
            figures["bytes of a message as JSON"] = sum(len(message_json(text)) for text in texts) / len(texts)
            figures["WAL bytes a message"] = (await ask(_WAL) - wal) / count
            figures |= await _sizes(ask, count)
            figures |= await _updates(connection, ask)
            wal = await ask(_WAL)
            figures["ms to renew 1,000 leases"] = await _renewing(connection, schema)
            figures["  WAL bytes a lease"] = (await ask(_WAL) - wal) / _RENEWED
            figures |= await _checkpoints(store, ask)
            figures |= await rates(store)
            await store.close()
            figures |= await _vacuuming(connection, ask, schema)
            return figures
        finally:
            await store.close()
            await connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


Asking = Callable[[str], Awaitable[float]]


def _asking(connection: psycopg.AsyncConnection[Any], schema: str) -> Asking:
    async def ask(text: str) -> float:
        row = await (await connection.execute(text.replace("SCHEMA", f'"{schema}"').encode())).fetchone()
        return float(row[0] or 0) if row else 0.0

    return ask


async def _sizes(ask: Asking, count: int) -> Figures:
    parts = "FROM pg_partition_tree('SCHEMA.entries') WHERE isleaf"
    heap = await ask(f"SELECT sum(pg_relation_size(relid)) {parts}")
    table = await ask(f"SELECT sum(pg_table_size(relid)) {parts}")
    index = await ask(f"SELECT sum(pg_indexes_size(relid)) {parts}")
    sessions = SESSIONS + len(LONG)
    return {
        "bytes of a message's row and index": (table + index) / count,
        "  in the table": heap / count,
        "  in TOAST": (table - heap) / count,
        "  in its two indexes": index / count,
        "  message as kept": await ask("SELECT avg(pg_column_size(message)) FROM SCHEMA.entries"),
        "bytes of a session's row": await ask("SELECT avg(pg_column_size(s.*)) FROM SCHEMA.sessions s"),
        "bytes of sessions, a session": await ask("SELECT pg_table_size('SCHEMA.sessions')") / sessions,
        "bytes of its indexes, a session": await ask("SELECT pg_indexes_size('SCHEMA.sessions')") / sessions,
    }


async def _checkpoints(store: Store, ask: Asking) -> Figures:
    session_id, data = await checkpoint(store)
    wal = await ask(_WAL)
    took = await _each([session_id] * _SAVES, lambda name: store.save_checkpoint(name, LONG[0], data))
    wal = await ask(_WAL) - wal
    return {
        "bytes of a checkpoint": len(data),
        "  as kept": await ask(f"SELECT pg_column_size(checkpoint) FROM SCHEMA.sessions WHERE id = '{session_id}'"),  # noqa: S608
        "  WAL bytes to save it": wal / _SAVES,
        "  ms to save it": took,
    }


async def _updates(connection: psycopg.AsyncConnection[Any], ask: Asking) -> Figures:
    await asyncio.sleep(11)  # idle connections report their statistics after ten seconds
    await connection.execute(b"SELECT pg_stat_clear_snapshot()")
    statistics = "FROM pg_stat_all_tables WHERE relid = 'SCHEMA.sessions'::regclass"
    updates = await ask(f"SELECT n_tup_upd {statistics}")
    return {
        "updates of session rows": updates,
        "  of them HOT, %": await ask(f"SELECT n_tup_hot_upd {statistics}") / max(1, updates) * 100,
        "  dead rows left": await ask(f"SELECT n_dead_tup {statistics}"),
    }


async def _renewing(connection: psycopg.AsyncConnection[Any], schema: str) -> float:
    from amplifier_context_servers.postgres_server.queries import RENEW, rendered

    name = sql.Identifier(schema, "sessions")
    found = await connection.execute(
        sql.SQL("SELECT key, fence FROM {} WHERE fence IS NOT NULL LIMIT %s").format(name), [_RENEWED]
    )
    rows = await found.fetchall()
    values = {"keys": [row[0] for row in rows], "fences": [row[1] for row in rows], "ttl": 30.0}
    started = perf_counter()
    await connection.execute(rendered(RENEW, schema), values)
    return (perf_counter() - started) * 1000 * _RENEWED / len(rows)


async def _vacuuming(connection: psycopg.AsyncConnection[Any], ask: Asking, schema: str) -> Figures:
    started = perf_counter()
    await connection.execute(sql.SQL("VACUUM {}").format(sql.Identifier(schema, "entries")))
    return {"ms to vacuum entries after 10 % were deleted": (perf_counter() - started) * 1000}


# -- Redis ------------------------------------------------------------------------------------------------------------


async def _redis(prefix: str) -> Figures:
    texts = list(messages(max(LONG)))
    client: Any = Redis.from_url(REDIS)  # pyright: ignore[reportUnknownMemberType]
    try:
        await client.ping()
    except (RedisError, OSError) as problem:
        raise Absent(str(problem)) from problem
    store = open_store(f"{REDIS}{'&' if '?' in REDIS else '?'}prefix={prefix}")
    try:
        figures = await fill(store, texts)
        figures |= await _usage(client, prefix, texts)
        directory = await client.execute_command("MEMORY", "USAGE", f"{prefix}:sessions", "SAMPLES", 0)
        figures["bytes in the directory, a session"] = directory / (SESSIONS + len(LONG))
        figures["ms to renew 1,000 leases"] = await _renewing_redis(client, prefix)
        session_id, data = await checkpoint(store)
        figures["bytes of a checkpoint"] = len(data)
        figures["  ms to save it"] = await _each(
            [session_id] * _SAVES, lambda name: store.save_checkpoint(name, LONG[0], data)
        )
        figures |= await rates(store)
        slots = Counter(key_slot(f"{{{prefix}:{uuid.UUID(int=number)}}}".encode()) for number in range(1_000_000))
        figures["sessions in the fullest of 16,384 slots, of 1M"] = max(slots.values())
        figures["sessions in the emptiest"] = min(slots[slot] for slot in range(16_384))
        return figures
    finally:
        await store.close()
        async for key in client.scan_iter(match=f"*{prefix}*", count=5_000):
            await client.delete(key)
        await client.aclose()


async def _usage(client: Any, prefix: str, texts: list[Message]) -> Figures:
    figures: Figures = {}
    for session_id, length in (("short-00000000", SHORT), *((f"long-{length}", length) for length in LONG)):
        key = f"{{{prefix}:{session_id}}}:session"
        size = await client.execute_command("MEMORY", "USAGE", key, "SAMPLES", 0) or 0
        text = sum(len(message_json(text)) for text in texts[:length])
        figures[f"bytes of a message, of {length:,}"] = size / length
        figures["  above its JSON" + f", of {length:,}"] = (size - text) / length
    return figures


async def _renewing_redis(client: Any, prefix: str) -> float:
    from amplifier_context_servers.redis_server.scripts import RENEW

    names = [f"short-{number:08d}" for number in range(_RENEWED)]
    started = perf_counter()
    for name in names:
        keys = [f"{{{prefix}:{name}}}:{part}" for part in ("session", "staged", "meta")]
        await client.eval(RENEW.source, len(keys), *keys, "nobody", 30_000, 60_000)
    return (perf_counter() - started) * 1000


def main() -> None:
    """Measure, and print."""
    measured = asyncio.run(measure([name for name in sys.argv[1:] if not name.startswith("-")]))
    if "--json" in sys.argv:
        print(json.dumps(measured, indent=1))
        return
    for name, figures in measured.items():
        print(f"{name}: {SESSIONS:,} sessions of {SHORT} messages, and one each of {LONG[0]} and {LONG[1]:,}")
        for what, value in figures.items():
            print(f"  {what:<58}{value:>12,.1f}")


if __name__ == "__main__":
    main()
