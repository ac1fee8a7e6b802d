"""What is peculiar to PostgreSQL: its schema and migrations, its errors, its pool, damage, and erasing."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import threading
import time
from collections.abc import Generator
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from psycopg import errors as pg
from psycopg import sql

from amplifier_context_core.errors import ConfigError, StoreError
from amplifier_context_core.stores import Extent, Repair, Store, open_store
from amplifier_context_core.stores.leased.loop_thread import LoopThread
from amplifier_context_core.stores.postgres import driver as driver_module
from amplifier_context_core.stores.postgres import pool as pool_module
from amplifier_context_core.stores.postgres.pool import PostgresPool
from amplifier_context_core.stores.postgres.schema import MIGRATIONS, PARTITIONS
from amplifier_context_core.stores.postgres.store import PostgresStore
from amplifier_context_core.stores.postgres.url import parse_store_url
from amplifier_context_core.transcript.transcript import Entry
from amplifier_context_testing.contract.append import Appending
from amplifier_context_testing.contract.fixtures import assert_same, whole
from amplifier_context_testing.contract.fork import Forking
from amplifier_context_testing.contract.replace import Replacing
from amplifier_context_testing.contract.rewrite import Rewriting
from amplifier_context_testing.contract.samples import entries, entry
from amplifier_context_testing.store_contract import MakeStore

from .servers import POSTGRES, drop_schema, empty_schema, own_name, postgres_is_there, with_parameters

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def run() -> Generator[str]:
    """A schema of this run's own, gone afterwards."""
    postgres_is_there()
    name = own_name()
    yield name
    drop_schema(name)


@pytest.fixture
def schema(run: str) -> Generator[str]:
    """The same schema, emptied after each test: to create one takes long."""
    yield run
    empty_schema(run)


@pytest.fixture
def url(schema: str) -> str:
    return with_parameters(POSTGRES, schema=schema)


@pytest.fixture
async def store(url: str) -> Any:
    store = PostgresStore.from_url(url)
    yield store
    await store.close()


def ask(query: str, schema: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows of a statement about the tables of a schema."""
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
        found = connection.execute(query.encode(), values)
        return found.fetchall() if found.description else []


class TestInPieces(Appending, Replacing, Rewriting, Forking):
    """The contract again, with statements that take three rows each."""

    @pytest.fixture
    def make_store(self, url: str, monkeypatch: pytest.MonkeyPatch) -> MakeStore:
        monkeypatch.setattr(driver_module, "_MAX_ROWS", 3)

        async def make() -> Store:
            return PostgresStore.from_url(url)

        return make


class TestSchema:
    @pytest.fixture
    def schema(self) -> Generator[str]:
        """A schema of this test's own, not made yet; gone afterwards."""
        postgres_is_there()
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
        assert ask("SELECT version FROM migrations", schema) == [(len(MIGRATIONS),)]

    async def test_a_schema_of_a_later_version_is_refused(self, store: Store, url: str, schema: str) -> None:
        await store.append("s", entries(1, 1))
        await store.close()
        ask("INSERT INTO migrations (version) VALUES (%s)", schema, len(MIGRATIONS) + 1)
        for _ in range(2):
            with pytest.raises(StoreError, match=f"at version {len(MIGRATIONS) + 1}.*update amplifier-context-core"):
                await store.read("s")
        ask("DELETE FROM migrations WHERE version = %s", schema, len(MIGRATIONS) + 1)
        assert_same(await store.read("s"), entries(1, 1))

    @pytest.mark.parametrize("odd", ['we"ird; DROP TABLE x --', "Übung", "UPPER lower", "select"])
    async def test_odd_names_of_schemas_are_names(self, schema: str, odd: str) -> None:
        name = f"{odd}{schema}"
        store = PostgresStore.from_url(with_parameters(POSTGRES, schema=quote(name)))
        try:
            await store.append("s", entries(1, 3))
            await store.replace("s", 1, entries(4, 4))
            await store.rewrite("s", [entry(1, "changed")])
            assert len(await store.read("s")) == 2
            assert ask("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema, name)
        finally:
            await store.close()
            drop_schema(name)

    async def test_a_schema_that_is_dropped_under_a_store_is_created_again(self, store: Store, schema: str) -> None:
        await store.append("s", entries(1, 1))
        drop_schema(schema)
        with pytest.raises(StoreError, match="creates it again"):
            await store.read("s")
        assert await store.read("s") == []
        await store.append("t", entries(1, 1))

    async def test_one_session_is_in_one_partition(self, store: Store, schema: str) -> None:
        for number in range(40):
            await store.append(f"s{number}", entries(1, 3))
        rows = ask("SELECT session, tableoid::regclass::text FROM entries", schema)
        assert len(set(rows)) == 40
        assert 8 < len({table for _, table in rows}) <= PARTITIONS

    async def test_appends_move_no_index_of_sessions(self, store: Store, schema: str) -> None:
        """HOT updates: what makes an append to a hot session cheap at any number of sessions."""
        await store.append("s", entries(1, 1))
        indexed = ask(
            "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
            "AND a.attnum = ANY (i.indkey) WHERE i.indrelid = 'sessions'::regclass",
            schema,
        )
        assert {name for (name,) in indexed} == {"key", "id"}

    async def test_sizes_are_those_of_the_messages(self, store: Store, schema: str) -> None:
        await store.append("s", entries(1, 40))
        await store.replace("s", 20, [entry(41, "x" * 1_000), *entries(30, 32)])
        await store.rewrite("s", [entry(1, "y" * 5_000), entry(30, "")])
        await store.fork("s", "child", 22)
        await store.append("child", entries(50, 52))
        kept = ask(
            "SELECT s.id, s.size, sum(octet_length(e.message)) FROM sessions s JOIN entries e ON e.session = s.key "
            "GROUP BY s.key",
            schema,
        )
        assert len(kept) == 2
        assert all(size == total for _, size, total in kept)
        assert {info.size for info in await store.sessions()} == {size for _, size, _ in kept}


class TestUrls:
    @pytest.mark.parametrize(
        "more",
        [
            "schema=",
            f"schema={'x' * 64}",
            "schema=pg_mine",
            "schema=per%25cent",
            "schema=a%00b",
            "schema=a&schema=b",
            "lease_ttl=soon",
            "lease_ttl=0",
            "lease_ttl=nan",
            "pool_size=0",
            "statement_timeout=-1",
            "connect_timeout=never",
            "no_such_parameter=1",
        ],
    )
    def test_parameters_that_cannot_be_are_refused_without_the_password(self, more: str) -> None:
        with pytest.raises(ConfigError) as caught:
            open_store(f"postgresql://somebody:sesame@127.0.0.1/test?{more}")
        assert "sesame" not in str(caught.value)
        assert str(caught.value).startswith("store: ")

    @pytest.mark.parametrize(
        ("more", "hint"),
        [
            ("schmea=mine", "'schmea'; did you mean 'schema'?"),
            ("sslmode=prefer&sslmod=require", "'sslmod'; did you mean 'sslmode'?"),
            (
                "bogus=1",
                "'bogus'; known are schema, lease_ttl, statement_timeout, pool_size and the parameters of libpq",
            ),
        ],
    )
    def test_an_unknown_parameter_is_named_with_the_nearest_known(self, more: str, hint: str) -> None:
        with pytest.raises(ConfigError) as caught:
            open_store(f"postgresql://somebody:sesame@127.0.0.1/test?{more}")
        assert hint in str(caught.value)
        assert "sesame" not in str(caught.value)

    @pytest.mark.parametrize("password", ["@?sesame", "@?sesame=1", "o@p?user=a&sesame=1&x", "@en?connect=1&sesame"])
    def test_a_piece_of_a_password_is_not_taken_for_a_parameter(self, password: str) -> None:
        with pytest.raises(ConfigError) as caught:
            open_store(f"postgresql://somebody:{password}@127.0.0.1/test")
        assert "sesame" not in str(caught.value)

    @pytest.mark.parametrize(
        "more", ["ssl=true", "%75ser=me", "target_session_attrs=any", "sslmode=disable&application_name=x"]
    )
    def test_what_libpq_knows_is_left_to_it(self, more: str) -> None:
        assert isinstance(open_store(f"postgresql://127.0.0.1/test?{more}"), PostgresStore)

    def test_a_url_is_not_shown_by_its_store(self) -> None:
        store = PostgresStore.from_url("postgresql://somebody:sesame@127.0.0.1/test")
        assert "sesame" not in repr(store) + repr(vars(store))

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
    def test_both_schemes_are_known(self, scheme: str) -> None:
        assert isinstance(open_store(f"{scheme}://somebody@127.0.0.1/test?sslmode=prefer"), PostgresStore)


FAILED = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: '
REFUSED = (
    FAILED.replace("5432", "%d")
    + "Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?"
)
PASSWORD = 'FATAL:  password authentication failed for user "somebody"'
# What libpq 18 and psycopg 3.3 report, and what of it the error quotes.
LIBPQ_TEXTS = {
    "refused": (
        (
            f"{REFUSED % 2}\nMultiple connection attempts failed. All failures were:\n"
            f"- host: '127.0.0.1', port: '1', hostaddr: '127.0.0.1': {REFUSED % 1}\n"
            f"- host: '127.0.0.1', port: '2', hostaddr: '127.0.0.1': {REFUSED % 2}"
        ),
        "port 2 failed: Connection refused; check that it is running and that the URL is right, then try again",
    ),
    "closed": (
        (
            f"{FAILED}server closed the connection unexpectedly\n"
            "\tThis probably means the server terminated abnormally\n"
            "\tbefore or while processing the request."
        ),
        "failed: server closed the connection unexpectedly; check that it is running and that the URL is right",
    ),
    "password": (
        f'{FAILED}{PASSWORD}\nconnection to server at "127.0.0.1", port 5432 failed: {PASSWORD}',
        f"{PASSWORD}; check user and password",
    ),
    "role": (
        f'{FAILED}FATAL:  role "somebody" does not exist',
        'role "somebody" does not exist; check user and password',
    ),
    "database": (
        f'{FAILED}FATAL:  database "nosuch" does not exist',
        'database "nosuch" does not exist; make the database',
    ),
}


class TestErrors:
    async def test_a_server_that_is_not_there_is_named_at_once_without_the_password(self) -> None:
        store = PostgresStore.from_url("postgresql://somebody:sesame@127.0.0.1:1/nowhere")
        for call in (store.append("s", entries(1, 1)), store.sessions(), store.open("s")):
            with pytest.raises(
                StoreError, match=r"127\.0\.0\.1:1, database 'nowhere' cannot be reached.*again"
            ) as caught:
                await call
            assert "sesame" not in str(caught.value) + str(caught.value.__cause__)
        await store.release("s")
        await store.close()

    async def test_a_missing_database_is_reported_as_missing(self, url: str) -> None:
        store = PostgresStore.from_url(urlsplit(url)._replace(path="/no_such_database").geturl())
        with pytest.raises(StoreError, match="make the database"):
            await store.read("s")
        await store.close()

    @pytest.mark.parametrize(("text", "quoted"), LIBPQ_TEXTS.values(), ids=LIBPQ_TEXTS)
    def test_the_line_of_libpq_with_the_reason_is_quoted(self, url: str, text: str, quoted: str) -> None:
        pool = PostgresPool(parse_store_url(url, "fsync")[0])
        assert quoted in str(pool._unreachable(psycopg.OperationalError(text)))

    async def test_of_several_hosts_that_refuse_one_is_reported(self) -> None:
        store = PostgresStore.from_url("postgresql://127.0.0.1:1,127.0.0.1:2/test")
        with pytest.raises(StoreError, match=r"port 2 failed: Connection refused; check that it is running"):
            await store.read("s")
        await store.close()

    async def test_a_change_that_waits_too_long_is_not_made(self, store: Store, url: str, schema: str) -> None:
        await store.append("s", entries(1, 2))
        await store.close()
        quick = PostgresStore.from_url(with_parameters(url, statement_timeout=2))
        await quick.open("s")
        with psycopg.connect(POSTGRES) as connection:
            name = sql.Identifier(schema, "sessions")
            connection.execute(sql.SQL("SELECT * FROM {} FOR UPDATE").format(name))
            with pytest.raises(StoreError, match=r"\?statement_timeout="):
                await quick.append("s", entries(3, 3))
            assert_same(await quick.read("s"), entries(1, 2))
        await quick.append("s", entries(3, 3))
        assert_same(await quick.read("s"), entries(1, 3))
        await quick.close()

    async def test_a_server_that_takes_no_writes_is_reported(self, store: Store, url: str) -> None:
        await store.append("s", entries(1, 2))
        await store.close()
        reader = PostgresStore.from_url(with_parameters(url, options=quote("-c default_transaction_read_only=on")))
        assert_same(await reader.read("s"), entries(1, 2))
        with pytest.raises(StoreError, match="takes no writes"):
            await reader.append("s", entries(3, 3))
        assert_same(await reader.read("s"), entries(1, 2))
        await reader.close()

    async def test_a_seq_in_use_is_refused(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        before = await whole(store)
        for change in (
            store.append("s", entries(5, 5)),
            store.append("s", entries(5, 7)),
            store.replace("s", 3, entries(2, 2)),
        ):
            with pytest.raises(StoreError, match="same seq"):
                await change
            assert not (await whole(store)).differs(before)

    async def test_one_append_that_fails_fails_no_other(self, store: Store) -> None:
        """Appends of many sessions go together."""
        names = [f"s{number}" for number in range(12)]
        for name in names:
            await store.append(name, entries(1, 1))
        made = await asyncio.gather(
            *(store.append(name, entries(1 + (name != "s7"), 2)) for name in names), return_exceptions=True
        )
        assert [name for name, one in zip(names, made, strict=True) if one is not None] == ["s7"]
        assert [len(await store.read(name)) for name in names] == [1 if name == "s7" else 2 for name in names]

    def test_every_error_of_the_driver_becomes_one_of_ours_and_quotes_no_data(self) -> None:
        pool = PostgresPool(PostgresStore.from_url("postgresql://a@127.0.0.1:1/b")._key)

        class Connection:
            closed = False

            def fileno(self) -> int:
                raise OSError

        kinds = [kind for _, kind in inspect.getmembers(pg, inspect.isclass) if issubclass(kind, psycopg.Error)]
        assert len(kinds) > 200
        for kind in kinds:
            error = pool._translated(kind('value "a secret" is no good'), Connection())  # type: ignore[arg-type]
            assert isinstance(error, StoreError)
            if issubclass(kind, (psycopg.DataError, psycopg.IntegrityError)):
                assert "secret" not in str(error)


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
        assert_same(await store.read("s"), entries(1, 2))
        await store.append("s", entries(3, 4))
        assert_same(await store.read("s"), entries(1, 4))
        assert await store.verify("s") == []

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
        assert_same(await store.read("s"), entries(1, 2))
        await store.append("s", entries(3, 4))
        assert_same(await store.read("s"), entries(1, 4))
        assert await store.verify("s") == []
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


class TestDamage:
    async def test_a_damaged_message_is_taken_out_reported_and_quarantined(self, store: Store, schema: str) -> None:
        repairs: list[Repair] = []
        await store.append("s", entries(1, 6))
        await store.save_checkpoint("s", 5, b"five")
        await store.open("s", repairs.append)
        ask('UPDATE entries SET message = \'{"role": "us\' WHERE seq IN (2, 5)', schema)
        rest = [*entries(1, 1), *entries(3, 4), *entries(6, 6)]
        assert len(await store.verify("s")) == 2  # type: ignore[attr-defined]
        assert_same(await store.read("s"), rest)
        assert await store.extent("s") == Extent(4, 6)
        assert [(repair.session_id, repair.lost) for repair in repairs] == [("s", 2)]
        assert sorted(ask("SELECT seq, message FROM damaged", schema)) == [(2, '{"role": "us'), (5, '{"role": "us')]
        assert await store.load_checkpoint("s") is None
        assert await store.verify("s") == []  # type: ignore[attr-defined]
        await store.append("s", entries(7, 8))
        assert_same(await store.read("s"), [*rest, *entries(7, 8)])
        assert len(repairs) == 1
        await store.rewrite("s", [entry(1, "changed")])
        assert ask("SELECT * FROM damaged", schema) == []

    @pytest.mark.parametrize("given", [[], [entry(2, "gone")]], ids=["nothing", "the message itself"])
    async def test_a_quarantined_message_is_erased_though_no_seq_is_known(
        self, store: Store, schema: str, given: list[Entry]
    ) -> None:
        await store.append("s", entries(1, 3))
        await store.open("s")
        ask("UPDATE entries SET message = 'no JSON' WHERE seq = 2", schema)
        assert len(await store.read("s")) == 2
        assert len(ask("SELECT * FROM damaged", schema)) == 1
        await store.rewrite("s", given)
        assert ask("SELECT * FROM damaged", schema) == []
        assert [one.seq for one in await store.read("s")] == [1, 3]

    async def test_a_missing_row_is_noticed(self, store: Store, schema: str) -> None:
        repairs: list[Repair] = []
        await store.open("s", repairs.append)
        await store.append("s", entries(1, 6))
        ask("DELETE FROM entries WHERE seq = 3", schema)
        assert len(await store.verify("s")) == 2  # type: ignore[attr-defined]
        assert_same(await store.read("s"), [*entries(1, 2), *entries(4, 6)])
        assert [repair.lost for repair in repairs] == [1]
        await store.append("s", entries(7, 7))
        assert_same(await store.read("s", -3), entries(5, 7))
        assert await store.verify("s") == []  # type: ignore[attr-defined]

    async def test_a_reader_leaves_damage_where_it_is(
        self, store: Store, url: str, schema: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        await store.append("s", entries(1, 4))
        await store.close()
        ask("UPDATE entries SET message = 'no JSON' WHERE seq = 2", schema)
        with caplog.at_level(logging.WARNING):
            assert_same(await store.read("s"), [*entries(1, 1), *entries(3, 4)])
        assert "1 damaged" in caplog.text
        assert "no JSON" not in caplog.text
        assert await store.extent("s") == Extent(4, 4)


class TestErasing:
    async def test_what_was_rewritten_is_in_no_table_and_the_tables_are_vacuumed(
        self, store: Store, schema: str
    ) -> None:
        secret = "hunter2 is the password"
        query = "SELECT coalesce(sum(vacuum_count), 0) FROM pg_stat_user_tables WHERE schemaname = %s"
        ((before,),) = ask(query, schema, schema)
        await store.append("s", [entry(1, secret), *entries(2, 3), entry(4, secret)])
        await store.replace("s", 3, [])
        await store.save_checkpoint("s", 2, secret.encode())
        await store.rewrite("s", [entry(1, "[forgotten]"), entry(4, "[forgotten]")])
        for table in ("sessions", "entries", "archive", "damaged"):
            assert secret not in repr(ask(f"SELECT * FROM {table}", schema))
            assert secret.encode().hex() not in repr(ask(f"SELECT t::text FROM {table} t", schema))
        for _ in range(3_000):
            ((count,),) = ask(query, schema, schema)
            if count >= before + 4:
                return
            await asyncio.sleep(0.02)
        pytest.fail("nothing was vacuumed")

    async def test_what_only_changed_its_count_is_not_vacuumed_for(
        self, store: Store, schema: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def never(*_: object) -> None:
            pytest.fail("vacuumed")

        monkeypatch.setattr(driver_module.PostgresDriver, "erase", never)
        await store.append("s", entries(1, 3))
        await store.rewrite("s", entries(1, 3))
