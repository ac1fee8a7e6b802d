"""The pool of connections."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import psycopg
import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Store
from amplifier_context_core.stores.postgres.pool import PostgresPool
from amplifier_context_core.stores.postgres.store import PostgresStore
from amplifier_context_core.stores.postgres.url import parse_store_url
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.postgres.tables import ask
from tests.stores.servers import POSTGRES, with_parameters

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
        await pool.loop_thread.run(pool.ask(b"SELECT 1", {}))
        assert await pool.loop_thread.run(pool.ask(b"SHOW synchronous_commit", {})) == [(setting,)]
        await pool.loop_thread.run(pool.stop())
        pool.loop_thread.stop()

    async def test_work_without_timeout_restores_the_statement_timeout(self, url: str) -> None:
        pool = PostgresPool(parse_store_url(with_parameters(url, statement_timeout=7), "fsync")[0])

        async def shown(connection: Any) -> Any:
            return await (await connection.execute("SHOW statement_timeout")).fetchone(), connection.info.backend_pid

        async def fails(connection: Any) -> None:
            await connection.execute("SELECT 1/0")

        (before, first), (during, second) = (
            await pool.loop_thread.run(pool.run(shown)),
            await pool.loop_thread.run(pool.run_without_timeout(shown, 60)),
        )
        with pytest.raises(StoreError, match="DivisionByZero"):
            await pool.loop_thread.run(pool.run_without_timeout(fails, 60))
        after, third = await pool.loop_thread.run(pool.run(shown))
        assert (before, during, after) == (("7s",), ("0",), ("7s",))
        assert first == second == third
        await pool.loop_thread.run(pool.stop())
        pool.loop_thread.stop()

    async def test_rewriting_keeps_its_connection(self, store: Store, schema: str, url: str) -> None:
        own = PostgresStore.from_url(with_parameters(url, application_name=schema))
        pids = "SELECT array_agg(pid) FROM pg_stat_activity WHERE application_name = %s"
        await own.append("s", entries(1, 3))
        before = ask(pids, "public", schema)
        await own.rewrite("s", [entry(1, "[forgotten]")])
        assert ask(pids, "public", schema) == before
        await own.close()

    async def test_warnings_of_the_pool_are_not_logged_beside_the_error(
        self, store: Store, schema: str, url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        own = PostgresStore.from_url(with_parameters(url, application_name=schema))
        await own.append("s", entries(1, 3))
        ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", "public", schema)
        await own.append("s", entries(4, 4))
        await own.close()
        assert [record.getMessage() for record in caplog.records if record.name == "psycopg.pool"] == []

    async def test_warnings_of_other_pools_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        pool_log = logging.getLogger("psycopg.pool")
        for name in ("amplifier-context", "theirs"):
            pool_log.warning("error connecting in %r: %s", name, "connection refused")
        async with await psycopg.AsyncConnection.connect(POSTGRES) as theirs:
            pool_log.warning("discarding closed connection: %s", theirs)
        assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == ["theirs", theirs]
