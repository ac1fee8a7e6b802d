"""The pool of connections, and appends from the caller's event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Generator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Store
from amplifier_context_core.stores.leased.loop_thread import LoopThread
from amplifier_context_core.stores.postgres import pool as pool_module
from amplifier_context_core.stores.postgres.pool import PostgresPool
from amplifier_context_core.stores.postgres.store import PostgresStore
from amplifier_context_core.stores.postgres.url import parse_store_url
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries, entry
from tests.stores.postgres.tables import ask
from tests.stores.servers import POSTGRES, with_parameters

pytestmark = pytest.mark.postgres


class TestAppendsFromTheCallersLoop:
    """A message on its own goes to the server without a change of threads."""

    @pytest.fixture
    def locked(self, schema: str) -> Generator[psycopg.Connection]:
        """A connection of another client, which can keep all sessions locked."""
        with psycopg.connect(POSTGRES) as connection:
            connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
            connection.commit()
            yield connection

    async def test_one_that_is_open_here_needs_no_other_loop(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.append("s", entries(1, 1))

        def elsewhere(*_: object) -> None:
            raise AssertionError("the background loop was asked")

        with monkeypatch.context() as patched:
            patched.setattr(LoopThread, "run", elsewhere)
            for seq in range(2, 6):
                await store.append("s", entries(seq, seq))
        assert_same(await store.read("s"), entries(1, 5))

    async def reverted(self, store: PostgresStore) -> None:
        """Check that a third entry was not kept, and that others take its place."""
        assert_same(await store.read("s"), entries(1, 2))
        await store.append("s", entries(3, 4))
        assert_same(await store.read("s"), entries(1, 4))
        assert await store.verify("s") == []

    async def test_one_that_is_cancelled_is_reverted(
        self, store: PostgresStore, locked: psycopg.Connection, schema: str
    ) -> None:
        await store.append("s", entries(1, 2))
        locked.execute("SELECT * FROM sessions FOR UPDATE")
        appending = asyncio.create_task(store.append("s", entries(3, 3)))
        await self.blocked(schema, 1)
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending
        locked.rollback()
        await self.reverted(store)

    @pytest.mark.parametrize("made", [False, True], ids=["before it is made", "after"])
    async def test_one_whose_loop_ends_is_reverted(
        self, store: PostgresStore, locked: psycopg.Connection, schema: str, made: bool
    ) -> None:
        await store.append("s", entries(1, 2))
        loop = asyncio.SelectorEventLoop()
        locked.execute("SELECT * FROM sessions FOR UPDATE")
        started = loop.create_task(store.append("s", entries(3, 3)))
        await asyncio.to_thread(loop.run_until_complete, self.blocked(schema, 1))
        if made:
            locked.rollback()
            await self.blocked(schema, 0)
        loop.close()  # without a word to its tasks
        locked.rollback()
        await self.reverted(store)
        del started  # and with it a connection in the middle of a statement
        gc.collect()
        await store.append("s", entries(5, 5))

    async def test_one_that_is_sent_after_others_comes_after_them(self, store: PostgresStore) -> None:
        await store.append("s", entries(1, 1))
        await asyncio.gather(*(store.append("s", entries(seq, seq + 1)) for seq in range(2, 22, 2)))
        await asyncio.gather(store.append("s", entries(22, 300)), store.append("s", entries(301, 301)))
        await asyncio.gather(*(store.append("s", entries(seq, seq)) for seq in range(302, 330)))
        assert_same(await store.read("s"), entries(1, 329))

    async def test_one_that_is_cut_off_is_applied_once_and_before_waiting_calls(
        self, store: PostgresStore, locked: psycopg.Connection, schema: str
    ) -> None:
        await store.append("s", entries(1, 2))
        locked.execute("SELECT * FROM sessions FOR UPDATE")
        first = asyncio.create_task(store.append("s", entries(3, 3)))
        await self.blocked(schema, 1)
        second = asyncio.create_task(store.append("s", entries(4, 4)))
        await asyncio.sleep(0)
        _cut(schema)
        await self.blocked(schema, 1)
        locked.rollback()
        await asyncio.gather(first, second)
        assert_same(await store.read("s"), entries(1, 4))
        assert await store.verify("s") == []

    async def test_one_cut_off_while_its_store_closes_is_applied_and_leases_nothing(
        self, store: PostgresStore, locked: psycopg.Connection, schema: str, url: str
    ) -> None:
        await store.append("s", entries(1, 2))
        locked.execute("SELECT * FROM sessions FOR UPDATE")
        appending = asyncio.create_task(store.append("s", entries(3, 3)))
        await self.blocked(schema, 1)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0.05)
        _cut(schema)
        await self.blocked(schema, 1)
        locked.rollback()
        await asyncio.gather(appending, closing)
        other = PostgresStore.from_url(url)
        await other.append("s", entries(4, 4))  # the lease was released
        assert_same(await other.read("s"), entries(1, 4))
        await other.close()

    async def test_connections_used_so_go_back_to_the_pool_now_and_then(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.append("s", entries(1, 1))
        connections = store._driver._pool  # type: ignore[union-attr]
        returned = threading.Event()
        putconn = connections._pool.putconn

        async def put(connection: Any) -> None:
            await putconn(connection)
            returned.set()

        monkeypatch.setattr(connections._pool, "putconn", put)
        connections._uses = 998
        for seq in range(2, 6):
            await store.append("s", entries(seq, seq))
        assert await asyncio.to_thread(returned.wait, 20)

    async def test_a_watchdog_that_ends_too_early_is_followed_by_another(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disconnected = threading.Event()
        monkeypatch.setattr(pool_module, "_disconnect", lambda _: disconnected.set())
        connections = PostgresPool(parse_store_url(with_parameters(url, statement_timeout=0.2), "fsync")[0])
        connections._ready = True

        async def busy() -> None:
            time.sleep(0.05)

        await connections.loop_thread.run(asyncio.sleep(0))
        connections.loop_thread.start(busy())
        connections._watch("a connection", 60)  # type: ignore[arg-type]
        connections._deadlines.clear()
        async with asyncio.timeout(20):
            while connections._is_watched:
                await asyncio.sleep(0.01)
        connections._watch("a silent one", -1)  # type: ignore[arg-type]
        assert await asyncio.to_thread(disconnected.wait, 20)
        connections._deadlines.clear()
        await connections.loop_thread.run(connections.stop())
        connections.loop_thread.stop()

    async def blocked(self, schema: str, count: int) -> None:
        """Wait until so many statements wait for a lock."""
        async with asyncio.timeout(20):
            while _waiting(schema) != count:
                await asyncio.sleep(0.01)


def _cut(schema: str) -> None:
    """Break the connections whose statements wait for a lock."""
    query = b"""
        SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND position(%s IN query) > 0
    """
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        assert connection.execute(query, [schema]).fetchall() == [(True,)]


def _waiting(schema: str) -> int:
    query = b"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND position(%s IN query) > 0"
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        return connection.execute(query, [schema]).fetchall()[0][0]


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
