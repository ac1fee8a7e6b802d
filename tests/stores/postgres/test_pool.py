"""The pool of connections; errors of PostgreSQL and of its driver become ours, with advice and no content."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql

from amplifier_context_core.errors import StoreError
from amplifier_context_servers.postgres_server.pool import Connection, PostgresPool
from amplifier_context_servers.postgres_server.store import PostgresStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries
from tests.stores.servers import POSTGRES, ask, with_parameters

pytestmark = pytest.mark.postgres
Run = Callable[[Awaitable[Any]], Awaitable[Any]]


@asynccontextmanager
async def running(url: str, **options: Any) -> AsyncGenerator[tuple[PostgresPool, Run]]:
    """Yield a pool, and what runs work on its thread."""
    pool = PostgresPool(PostgresStore.from_url(url, **options)._key)
    async with asyncio.timeout(60):
        yield pool, pool.loop_thread.run
    await pool.loop_thread.run(pool.stop())
    pool.loop_thread.stop()


def connections(name: str) -> int:
    (found,) = ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", "public", name)
    return int(found[0])


async def test_stores_of_one_url_share_a_few_connections_and_leave_none(url: str, schema: str) -> None:
    url = with_parameters(url, application_name=schema, pool_size=3)
    stores = [PostgresStore.from_url(url) for _ in range(16)]
    await asyncio.gather(
        *(store.append(f"s{index}", entries(seq, seq)) for index, store in enumerate(stores) for seq in range(1, 6))
    )
    assert 1 <= connections(schema) <= 3
    for store in stores[1:]:
        await store.close()
    assert_same(await stores[0].read("s9"), entries(1, 5))
    await stores[0].close()
    async with asyncio.timeout(60):
        while connections(schema):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("durability", "setting"), [("fsync", "on"), ("flush", "off"), ("none", "off")])
async def test_durability_is_set_on_the_server(url: str, durability: Any, setting: str) -> None:
    async with running(url, durability=durability) as (pool, run):
        await run(pool.ask("SELECT 1", {}))
        assert await run(pool.ask("SHOW synchronous_commit", {})) == [(setting,)]


async def test_many_statements_may_take_longer_than_a_silent_server(url: str) -> None:
    async with running(with_parameters(url, statement_timeout=1)) as (pool, run):

        async def work(connection: Connection) -> int:
            for _ in range(5):  # 2.5 s; after 2 s of silence a server is disconnected
                await pool.execute(connection, "SELECT pg_sleep(0.5)", {})
            return 5

        assert await run(pool.run(work)) == 5


async def test_a_missing_database_is_reported_as_missing_and_of_several_hosts_one(url: str) -> None:
    hosts = "postgresql://127.0.0.1:1,127.0.0.1:2/test"
    for at, text in (
        (urlsplit(url)._replace(path="/no_such_database").geturl(), "make the database"),
        (hosts, r"port 2 failed: Connection refused; check that it is running"),
    ):
        store = PostgresStore.from_url(at)
        with pytest.raises(StoreError, match=text):
            await store.read("s")
        await store.close()


async def test_a_change_that_the_server_does_not_make_in_time_or_at_all_is_reported_and_not_made(
    url: str, schema: str
) -> None:
    quick = PostgresStore.from_url(with_parameters(url, statement_timeout=2))
    await quick.append("s", entries(1, 2))
    with psycopg.connect(POSTGRES) as connection:
        connection.execute(sql.SQL("SELECT * FROM {} FOR UPDATE").format(sql.Identifier(schema, "sessions")))
        with pytest.raises(StoreError, match=r"\?statement_timeout="):
            await quick.append("s", entries(3, 3))
        assert_same(await quick.read("s"), entries(1, 2))
    await quick.append("s", entries(3, 3))
    await quick.close()
    reader = PostgresStore.from_url(with_parameters(url, options=quote("-c default_transaction_read_only=on")))
    with pytest.raises(StoreError, match="takes no writes"):
        await reader.append("s", entries(4, 4))
    assert_same(await reader.read("s"), entries(1, 3))
    await reader.close()


def test_every_error_of_the_driver_becomes_one_of_ours_and_quotes_no_data() -> None:
    pool = PostgresPool(PostgresStore.from_url("postgresql://a@127.0.0.1:1/b")._key)

    class Connection:
        closed = False

    kinds = [kind for _, kind in inspect.getmembers(pg, inspect.isclass) if issubclass(kind, psycopg.Error)]
    assert len(kinds) > 200
    for kind in kinds:
        error = pool._translated(kind('value "a secret" is no good'), Connection())  # type: ignore[arg-type]
        assert isinstance(error, StoreError)
        if issubclass(kind, (psycopg.DataError, psycopg.IntegrityError)):
            assert "secret" not in str(error)
