"""The pool of connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amplifier_context_servers.postgres_server.pool import Connection, PostgresPool
from amplifier_context_servers.postgres_server.store import PostgresStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries
from tests.stores.postgres.tables import ask
from tests.stores.servers import with_parameters

pytestmark = pytest.mark.postgres


class TestPool:
    def connections(self, name: str) -> int:
        (found,) = ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", "public", name)
        return int(found[0])

    async def test_stores_of_one_url_share_a_few_connections_and_leave_none(self, url: str, schema: str) -> None:
        url = with_parameters(url, application_name=schema, pool_size=3)
        stores = [PostgresStore.from_url(url) for _ in range(16)]
        await asyncio.gather(
            *(store.append(f"s{index}", entries(seq, seq)) for index, store in enumerate(stores) for seq in range(1, 6))
        )
        assert 1 <= self.connections(schema) <= 3
        for store in stores[1:]:
            await store.close()
        assert_same(await stores[0].read("s9"), entries(1, 5))
        await stores[0].close()
        for _ in range(3_000):
            if not self.connections(schema):
                return
            await asyncio.sleep(0.02)
        pytest.fail("connections are left over")

    @pytest.mark.parametrize(("durability", "setting"), [("fsync", "on"), ("flush", "off"), ("none", "off")])
    async def test_durability_is_set_on_the_server(self, url: str, durability: Any, setting: str) -> None:
        store = PostgresStore.from_url(url, durability=durability)
        pool = PostgresPool(store._key)
        await pool.loop_thread.run(pool.ask("SELECT 1", {}))
        assert await pool.loop_thread.run(pool.ask("SHOW synchronous_commit", {})) == [(setting,)]
        await pool.loop_thread.run(pool.stop())
        pool.loop_thread.stop()

    async def test_many_statements_may_take_longer_than_a_silent_server(self, url: str) -> None:
        pool = PostgresPool(PostgresStore.from_url(with_parameters(url, statement_timeout=1))._key)

        async def work(connection: Connection) -> int:
            for _ in range(5):  # 2.5 s; after 2 s of silence a server is disconnected
                await pool.execute(connection, "SELECT pg_sleep(0.5)", {})
            return 5

        assert await pool.loop_thread.run(pool.run(work)) == 5
        await pool.loop_thread.run(pool.stop())
        pool.loop_thread.stop()
