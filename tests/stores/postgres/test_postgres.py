"""What is peculiar to PostgreSQL: pool, errors, schema, erasing, statistics and vectors."""

import asyncio
import inspect
from collections.abc import Generator
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql

from amplifier_context_core.errors import NotErased, StoreError
from amplifier_context_core.stores import Store
from amplifier_context_servers.postgres_server import driver as driver_module
from amplifier_context_servers.postgres_server import vectors as vectors_module
from amplifier_context_servers.postgres_server.pool import PostgresPool
from amplifier_context_servers.postgres_server.schema import FORMER, VERSION
from amplifier_context_servers.postgres_server.store import PostgresStore
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.optional import vector_of
from amplifier_context_testing.contract.samples import entries, entry
from tests.places import server
from tests.refusals import refused
from tests.stores.servers import POSTGRES, ask, drop_schema, own_name, with_parameters


@pytest.fixture(scope="module")
def backend() -> str:
    return "postgresql"


pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(("durability", "setting"), [("fsync", "on"), ("flush", "off")])
async def test_stores_of_one_url_share_a_few_connections_of_their_durability_and_leave_none(
    url: str, schema: str, durability: Any, setting: str
) -> None:
    url = with_parameters(url, application_name=schema, pool_size=3)
    stores = [PostgresStore.from_url(url, durability=durability) for _ in range(8)]
    await asyncio.gather(*(store.append(f"s{index}", entries(1, 2)) for index, store in enumerate(stores)))
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    assert 1 <= ask(query, schema, schema)[0][0] <= 3
    for store in stores[1:]:
        await store.close()
    assert stores[0]._driver
    pool = stores[0]._driver.pool
    assert await pool.loop_thread.run(pool.ask("SHOW synchronous_commit", {})) == [(setting,)]
    await stores[0].close()
    async with asyncio.timeout(60):
        while ask(query, schema, schema)[0][0]:
            await asyncio.sleep(0.02)


async def test_a_caller_that_waits_in_vain_for_a_busy_pool_is_told_so(url: str) -> None:
    key = PostgresStore.from_url(with_parameters(url, pool_size=1, statement_timeout=1))._key
    pool, held = PostgresPool(key), asyncio.Event()

    async def hold(_: object) -> None:
        held.set()
        await asyncio.sleep(1.5)

    async def both() -> list[Any]:
        holding = asyncio.create_task(pool.run(hold))
        await held.wait()
        return [*await asyncio.gather(pool.ask("SELECT 1", {}), holding, return_exceptions=True)]

    busy, held_until_its_end = await pool.loop_thread.run(both())
    assert "all 1 connections are busy; try again, or give a larger ?pool_size=" in str(busy)
    assert isinstance(busy, StoreError)
    assert held_until_its_end is None
    assert await pool.loop_thread.run(pool.ask("SELECT 1", {})) == [(1,)]
    await pool.loop_thread.run(pool.stop())
    pool.loop_thread.stop()


async def test_a_change_that_the_server_does_not_make_in_time_or_at_all_is_reported_and_not_made(
    url: str, schema: str
) -> None:
    quick = PostgresStore.from_url(with_parameters(url, statement_timeout=2))
    await quick.append("s", entries(1, 2))
    with psycopg.connect(POSTGRES) as connection:
        connection.execute(sql.SQL("SELECT * FROM {} FOR UPDATE").format(sql.Identifier(schema, "sessions")))
        await refused(quick.append("s", entries(3, 3)), says=r"\?statement_timeout=")
        assert_same(await quick.read("s"), entries(1, 2))
    await quick.append("s", entries(3, 3))
    await quick.close()
    reader = PostgresStore.from_url(with_parameters(url, options=quote("-c default_transaction_read_only=on")))
    await refused(reader.append("s", entries(4, 4)), says="takes no writes")
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


class TestSchema:
    @pytest.fixture
    def schema(self) -> Generator[str]:
        """A schema of this test's own, not made yet; gone afterwards."""
        server("postgresql")
        name = own_name()
        yield name
        drop_schema(name)

    async def test_stores_that_start_at_once_make_one_schema(self, url: str, schema: str) -> None:
        # With different URLs, so that each has connections of its own, as another process would.
        stores = [PostgresStore.from_url(with_parameters(url, pool_size=size)) for size in range(2, 8)]
        await asyncio.gather(*(store.append(f"s{index}", entries(1, 2)) for index, store in enumerate(stores)))
        assert len(await stores[0].sessions()) == 6
        for store in stores:
            await store.close()
        assert ask("SELECT count(*), max(version) FROM migrations", schema) == [(1, VERSION)]

    async def test_a_schema_of_another_version_is_refused_and_one_that_is_dropped_is_made_again(
        self, store: Store, schema: str
    ) -> None:
        await store.append("s", entries(1, 1))
        for version, text in ((VERSION + 1, "update amplifier-"), (min(FORMER) - 1, "commit 37ba2a6")):
            await store.close()
            ask("UPDATE migrations SET version = %s", schema, version)
            for _ in range(2):
                await refused(store.read("s"), says=f"at version {version}.*{text}")
        ask("UPDATE migrations SET version = %s", schema, VERSION)
        assert_same(await store.read("s"), entries(1, 1))
        drop_schema(schema)
        await refused(store.read("s"), says="creates it again")
        assert await store.read("s") == []
        await store.append("t", entries(1, 1))


SECRET = "hunter2 is the password"
TABLES = ("sessions", "entries", "archive")


async def test_what_was_rewritten_is_in_no_table_and_the_tables_are_vacuumed(
    store: Store, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    query = "SELECT coalesce(sum(vacuum_count), 0) FROM pg_stat_user_tables WHERE schemaname = %s"
    ((before,),) = ask(query, schema, schema)
    given = [entry(1, SECRET), *entries(2, 3), entry(4, SECRET)]
    await store.append("s", given)
    await store.replace("s", 3, [])
    with monkeypatch.context() as patch:  # where nothing but counts changed
        patch.setattr(driver_module.PostgresDriver, "erase", Mock(side_effect=AssertionError("vacuumed")))
        await store.rewrite("s", [one._replace(tokens=1) for one in given])
    await store.save_checkpoint("s", 2, SECRET.encode())
    await store.rewrite("s", [entry(seq, "[forgotten]")._replace(redaction_trace="") for seq in (1, 4)])
    for table in TABLES:
        assert SECRET not in repr(ask(f"SELECT * FROM {table}", schema))
        assert SECRET.encode().hex() not in repr(ask(f"SELECT t::text FROM {table} t", schema))
    async with asyncio.timeout(60):
        while ask(query, schema, schema)[0][0] < before + 4:
            await asyncio.sleep(0.02)


async def test_a_vacuum_that_the_server_skips_is_an_error(store: Store, url: str, schema: str) -> None:
    await store.append("s", entries(1, 3))
    await store.close()
    role = own_name()
    grant = f"GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}"
    ask(f"CREATE ROLE {role}; {grant}", schema)
    other = PostgresStore.from_url(with_parameters(url, options=quote(f"-c role={role}")))
    gone = entry(1, "gone")._replace(redaction_trace="")
    try:
        await refused(other.rewrite("s", [gone, *entries(2, 3)]), says="until they are vacuumed", error=NotErased)
    finally:
        await other.close()
        ask(f"DROP OWNED BY {role}; DROP ROLE {role}", schema)
    assert_same(await store.read("s"), [gone, *entries(2, 3)])


async def test_no_text_vector_or_digest_of_a_message_is_in_statistics(store: PostgresStore, schema: str) -> None:
    for name in ("s", "t", "u"):
        history = [entry(seq, SECRET) for seq in range(1, 41)]
        await store.append(name, history)
        await store.replace(name, 20, [])
        await store.save_checkpoint(name, 20, SECRET.encode())
        await store.save_vectors(name, "m", [vector_of(one) for one in history[:3]])
    ask("UPDATE entries SET extra = message; UPDATE archive SET extra = message", schema)
    for table in (*TABLES, "vectors"):
        ask(f"ANALYZE {table}", schema)
    query = "SELECT tablename, attname, most_common_vals::text, histogram_bounds::text FROM pg_stats s"
    found = ask(f"{query} WHERE schemaname = %s", schema, schema)
    assert not [row[:2] for row in found if SECRET in repr(row) or SECRET.encode().hex() in repr(row)]
    assert {row[1] for row in found if row[0] == "vectors"} == {"session", "seq", "model"}


async def test_a_vector_of_a_message_that_is_erased_meanwhile_is_not_kept(
    store: PostgresStore, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = [entry(1, "heron"), entry(2, "secret")]
    vectors = [vector_of(one) for one in history]
    await store.append("s", history)
    await store.release("s")
    other = PostgresStore.from_url(with_parameters(POSTGRES, schema=schema, pool_size=2))
    loop, text_of = asyncio.get_running_loop(), vectors_module.text_of_message
    erased: list[Any] = []

    def slow(session_id: str, message: str) -> str:
        if not erased:
            erased.append(asyncio.run_coroutine_threadsafe(other.rewrite("s", [entry(2, "(erased)")]), loop).result(30))
        return text_of(session_id, message)

    with monkeypatch.context() as patch:
        patch.setattr(vectors_module, "text_of_message", slow)
        await store.save_vectors("s", "m", vectors)
    assert await store.vectors("s", "m") == []
    await store.save_vectors("s", "m", vectors)
    assert await store.vectors("s", "m") == vectors[:1]
    await other.close()
