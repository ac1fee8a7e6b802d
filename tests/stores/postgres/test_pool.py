"""The pool of connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import psycopg_pool
import pytest

from amplifier_context_core import StoreError
from amplifier_context_servers.postgres_server.pool import Connection, PostgresPool
from amplifier_context_servers.postgres_server.store import PostgresStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries
from tests.stores.postgres.tables import ask
from tests.stores.proxy import proxied
from tests.stores.servers import with_parameters

pytestmark = pytest.mark.postgres
Run = Callable[[Awaitable[Any]], Awaitable[Any]]


@asynccontextmanager
async def running(
    url: str, kind: type[PostgresPool] = PostgresPool, **options: Any
) -> AsyncGenerator[tuple[PostgresPool, Run]]:
    """Yield a pool, and what runs work on its thread."""
    pool = kind(PostgresStore.from_url(url, **options)._key)
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


async def test_callers_of_a_pool_that_gets_no_connection_are_told_why(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the statement timeout, for which they would wait if all connections were busy."""
    with proxied(5432) as proxy:
        at_proxy = with_parameters(url.replace(":5432", f":{proxy.port}"), statement_timeout=600)
        opened = psycopg_pool.AsyncConnectionPool.open

        async def refused(self: Any, *arguments: Any) -> None:
            proxy.refuse()
            await opened(self, *arguments)

        monkeypatch.setattr(psycopg_pool.AsyncConnectionPool, "open", refused)
        async with running(at_proxy) as (pool, run):
            with pytest.raises(StoreError, match="cannot be reached"):
                await run(pool.ask("SELECT 1", {}))
            proxy.accept()
            monkeypatch.undo()
            assert await run(pool.ask("SELECT 1", {})) == [(1,)]


class FullPool(PostgresPool):
    """The server takes two connections: one to look whether it is there, and one for the pool."""

    left, refusals = 2, 0

    async def _configure(self, connection: Connection) -> None:
        if not self.left:
            self.refusals += 1
            raise psycopg.OperationalError("too many connections")
        self.left -= 1
        await super()._configure(connection)


async def test_a_caller_waits_for_a_busy_connection_where_the_server_takes_no_other(url: str) -> None:
    held, released = asyncio.Event(), asyncio.Event()

    async def hold(connection: Connection) -> str:
        held.set()
        await released.wait()
        return "released"

    async with running(with_parameters(url, pool_size=2), FullPool) as (pool, run):

        async def both() -> list[Any]:
            holding = asyncio.create_task(pool.run(hold))
            await held.wait()
            waiting = asyncio.create_task(pool.ask("SELECT 1", {}))
            while pool.refusals < 2:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # for the pool to give up
            released.set()
            return await asyncio.gather(holding, waiting)

        assert await run(both()) == ["released", [(1,)]]
