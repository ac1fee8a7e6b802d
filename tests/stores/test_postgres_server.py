"""What is peculiar to PostgreSQL: its schema and migrations, its errors, its pool, damage, and forgetting."""

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
from amplifier_context_core.stores.postgres import line as line_module
from amplifier_context_core.stores.postgres import store as module
from amplifier_context_core.stores.postgres.address import read_address
from amplifier_context_core.stores.postgres.line import PostgresConnections
from amplifier_context_core.stores.postgres.schema import MIGRATIONS, PARTITIONS
from amplifier_context_core.stores.postgres.store import PostgresStore
from amplifier_context_core.stores.servers.owner import Owner
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
    """The same, and empty again after each test: to make one takes its time."""
    yield run
    empty_schema(run)


@pytest.fixture
def address(schema: str) -> str:
    return with_parameters(POSTGRES, schema=schema)


@pytest.fixture
async def store(address: str) -> Any:
    store = PostgresStore.from_address(address)
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
    def make_store(self, address: str, monkeypatch: pytest.MonkeyPatch) -> MakeStore:
        monkeypatch.setattr(module, "_MOST_ROWS", 3)

        async def make() -> Store:
            return PostgresStore.from_address(address)

        return make


class TestSchema:
    @pytest.fixture
    def schema(self) -> Generator[str]:
        """A schema of this test's own, not made yet; gone afterwards."""
        postgres_is_there()
        name = own_name()
        yield name
        drop_schema(name)

    async def test_stores_that_start_at_once_make_one_schema(self, address: str, schema: str) -> None:
        # Of different addresses, so that each has connections of its own, as another process would.
        stores = [PostgresStore.from_address(with_parameters(address, pool_size=size)) for size in range(2, 8)]
        await asyncio.gather(*(store.append(f"s{index}", entries(1, 2)) for index, store in enumerate(stores)))
        assert len(await stores[0].sessions()) == 6
        for store in stores:
            await store.close()
        assert ask("SELECT version FROM migrations", schema) == [(len(MIGRATIONS),)]

    async def test_a_schema_of_a_later_version_is_refused(self, store: Store, address: str, schema: str) -> None:
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
        store = PostgresStore.from_address(with_parameters(POSTGRES, schema=quote(name)))
        try:
            await store.append("s", entries(1, 3))
            await store.replace("s", 1, entries(4, 4))
            await store.rewrite("s", [entry(1, "anew")])
            assert len(await store.read("s")) == 2
            assert ask("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema, name)
        finally:
            await store.close()
            drop_schema(name)

    async def test_a_schema_that_is_dropped_under_a_store_is_made_anew(self, store: Store, schema: str) -> None:
        await store.append("s", entries(1, 1))
        drop_schema(schema)
        with pytest.raises(StoreError, match="made anew"):
            await store.read("s")
        assert await store.read("s") == []
        await store.append("t", entries(1, 1))

    async def test_one_session_stands_in_one_partition(self, store: Store, schema: str) -> None:
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


class TestAddresses:
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
        ("more", "said"),
        [
            ("schmea=mine", "'schmea' that nobody knows; did you mean 'schema'?"),
            ("sslmode=prefer&sslmod=require", "'sslmod' that nobody knows; did you mean 'sslmode'?"),
            ("bogus=1", "'bogus' that nobody knows; ours are schema, lease_ttl, statement_timeout, pool_size"),
        ],
    )
    def test_a_parameter_nobody_knows_is_named_with_the_nearest_known(self, more: str, said: str) -> None:
        with pytest.raises(ConfigError) as caught:
            open_store(f"postgresql://somebody:sesame@127.0.0.1/test?{more}")
        assert said in str(caught.value)
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

    def test_an_address_is_not_shown_by_its_store(self) -> None:
        store = PostgresStore.from_address("postgresql://somebody:sesame@127.0.0.1/test")
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
# What libpq 18 and psycopg 3.3 say, and what is told of it.
SAID = {
    "refused": (
        (
            f"{REFUSED % 2}\nMultiple connection attempts failed. All failures were:\n"
            f"- host: '127.0.0.1', port: '1', hostaddr: '127.0.0.1': {REFUSED % 1}\n"
            f"- host: '127.0.0.1', port: '2', hostaddr: '127.0.0.1': {REFUSED % 2}"
        ),
        "port 2 failed: Connection refused; is it running, and is the address right? Then try again",
    ),
    "closed": (
        (
            f"{FAILED}server closed the connection unexpectedly\n"
            "\tThis probably means the server terminated abnormally\n"
            "\tbefore or while processing the request."
        ),
        "failed: server closed the connection unexpectedly; is it running, and is the address right? Then try again",
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
        store = PostgresStore.from_address("postgresql://somebody:sesame@127.0.0.1:1/nowhere")
        for call in (store.append("s", entries(1, 1)), store.sessions(), store.open("s")):
            with pytest.raises(
                StoreError, match=r"127\.0\.0\.1:1, database 'nowhere' cannot be reached.*again"
            ) as caught:
                await call
            assert "sesame" not in str(caught.value) + str(caught.value.__cause__)
        await store.release("s")
        await store.close()

    async def test_a_database_that_is_not_there_is_said_to_be_missing(self, address: str) -> None:
        store = PostgresStore.from_address(urlsplit(address)._replace(path="/no_such_database").geturl())
        with pytest.raises(StoreError, match="make the database"):
            await store.read("s")
        await store.close()

    @pytest.mark.parametrize(("words", "told"), SAID.values(), ids=SAID)
    def test_of_what_libpq_says_the_line_with_the_reason_is_told(self, address: str, words: str, told: str) -> None:
        line = PostgresConnections(read_address(address, "fsync")[0])
        assert told in str(line._unreachable(psycopg.OperationalError(words)))

    async def test_of_several_addresses_that_refuse_one_is_told(self) -> None:
        store = PostgresStore.from_address("postgresql://127.0.0.1:1,127.0.0.1:2/test")
        with pytest.raises(StoreError, match=r"port 2 failed: Connection refused; is it running"):
            await store.read("s")
        await store.close()

    async def test_a_change_that_waits_too_long_is_not_made(self, store: Store, address: str, schema: str) -> None:
        await store.append("s", entries(1, 2))
        await store.close()
        quick = PostgresStore.from_address(with_parameters(address, statement_timeout=2))
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

    async def test_a_server_that_takes_no_writes_says_so(self, store: Store, address: str) -> None:
        await store.append("s", entries(1, 2))
        await store.close()
        reader = PostgresStore.from_address(
            with_parameters(address, options=quote("-c default_transaction_read_only=on"))
        )
        assert_same(await reader.read("s"), entries(1, 2))
        with pytest.raises(StoreError, match="takes no writes"):
            await reader.append("s", entries(3, 3))
        assert_same(await reader.read("s"), entries(1, 2))
        await reader.close()

    async def test_a_seq_that_stands_there_is_not_given_again(self, store: Store) -> None:
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

    async def test_one_append_that_fails_takes_no_other_with_it(self, store: Store) -> None:
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
        line = PostgresConnections(PostgresStore.from_address("postgresql://a@127.0.0.1:1/b")._key)

        class Connection:
            closed = False

            def fileno(self) -> int:
                raise OSError

        kinds = [kind for _, kind in inspect.getmembers(pg, inspect.isclass) if issubclass(kind, psycopg.Error)]
        assert len(kinds) > 200
        for kind in kinds:
            told = line._told(kind('value "a secret" is no good'), Connection())  # type: ignore[arg-type]
            assert isinstance(told, StoreError)
            if issubclass(kind, (psycopg.DataError, psycopg.IntegrityError)):
                assert "secret" not in str(told)


class TestAppendsFromTheCallersLoop:
    """A message on its own goes to the server without a change of threads."""

    @pytest.fixture
    def locked(self, schema: str) -> Generator[psycopg.Connection]:
        """Somebody else's connection, which can keep all sessions locked."""
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
            patched.setattr(Owner, "run", elsewhere)
            for seq in range(2, 6):
                await store.append("s", entries(seq, seq))
        assert_same(await store.read("s"), entries(1, 5))

    async def test_one_that_is_cancelled_is_taken_back(
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
    async def test_one_whose_loop_ends_is_taken_back(
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

    async def test_one_that_is_cut_off_is_made_once_and_before_what_waits(
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

    async def test_one_that_is_cut_off_while_its_store_is_closed_is_made_and_claims_nothing_anew(
        self, store: PostgresStore, locked: psycopg.Connection, schema: str, address: str
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
        other = PostgresStore.from_address(address)
        await other.append("s", entries(4, 4))  # nobody holds it
        assert_same(await other.read("s"), entries(1, 4))
        await other.close()

    async def test_connections_used_so_go_back_to_the_pool_now_and_then(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.append("s", entries(1, 1))
        connections = store._line._connections  # type: ignore[union-attr]
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

    async def test_a_watch_that_comes_too_late_is_followed_by_another(
        self, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hung_up = threading.Event()
        monkeypatch.setattr(line_module, "_hang_up", lambda _: hung_up.set())
        connections = PostgresConnections(read_address(with_parameters(address, statement_timeout=0.2), "fsync")[0])
        connections._ready = True

        async def busy() -> None:
            time.sleep(0.05)

        await connections.owner.run(asyncio.sleep(0))
        connections.owner.start(busy())
        connections._begin("a connection", 60)  # type: ignore[arg-type]
        connections._busy.clear()
        async with asyncio.timeout(20):
            while connections._watched:
                await asyncio.sleep(0.01)
        connections._begin("a silent one", -1)  # type: ignore[arg-type]
        assert await asyncio.to_thread(hung_up.wait, 20)
        connections._busy.clear()
        await connections.owner.run(connections.stop())
        connections.owner.stop()

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

    async def test_stores_of_one_address_share_a_few_connections_and_leave_none(
        self, address: str, schema: str
    ) -> None:
        address = with_parameters(address, application_name=schema, pool_size=3)
        stores = [PostgresStore.from_address(address) for _ in range(16)]
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
    async def test_what_acknowledged_means_is_asked_of_the_server(
        self, address: str, durability: Any, setting: str
    ) -> None:
        store = PostgresStore.from_address(address, durability=durability)
        line = PostgresConnections(store._key)
        await line.owner.run(line.ask(b"SELECT 1", {}))
        assert await line.owner.run(line.ask(b"SHOW synchronous_commit", {})) == [(setting,)]
        await line.owner.run(line.stop())
        line.owner.stop()

    async def test_slow_work_has_no_statement_timeout_and_leaves_the_one_there_was(self, address: str) -> None:
        line = PostgresConnections(read_address(with_parameters(address, statement_timeout=7), "fsync")[0])

        async def shown(connection: Any) -> Any:
            return await (await connection.execute("SHOW statement_timeout")).fetchone(), connection.info.backend_pid

        async def fails(connection: Any) -> None:
            await connection.execute("SELECT 1/0")

        (before, first), (during, second) = (
            await line.owner.run(line.do(shown)),
            await line.owner.run(line.do_slowly(shown, 60)),
        )
        with pytest.raises(StoreError, match="DivisionByZero"):
            await line.owner.run(line.do_slowly(fails, 60))
        after, third = await line.owner.run(line.do(shown))
        assert (before, during, after) == (("7s",), ("0",), ("7s",))
        assert first == second == third
        await line.owner.run(line.stop())
        line.owner.stop()

    async def test_forgetting_keeps_its_connection(self, store: Store, schema: str, address: str) -> None:
        line = PostgresStore.from_address(with_parameters(address, application_name=schema))
        pids = "SELECT array_agg(pid) FROM pg_stat_activity WHERE application_name = %s"
        await line.append("s", entries(1, 3))
        before = ask(pids, "public", schema)
        await line.rewrite("s", [entry(1, "[forgotten]")])
        assert ask(pids, "public", schema) == before
        await line.close()

    async def test_what_the_pool_warns_of_is_not_said_beside_our_own_error(
        self, store: Store, schema: str, address: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        cut = PostgresStore.from_address(with_parameters(address, application_name=schema))
        await cut.append("s", entries(1, 3))
        ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", "public", schema)
        await cut.append("s", entries(4, 4))
        await cut.close()
        assert [record.getMessage() for record in caplog.records if record.name == "psycopg.pool"] == []

    async def test_what_other_pools_warn_of_is_heard(self, caplog: pytest.LogCaptureFixture) -> None:
        pool_log = logging.getLogger("psycopg.pool")
        for name in ("amplifier-context", "theirs"):
            pool_log.warning("error connecting in %r: %s", name, "connection refused")
        async with await psycopg.AsyncConnection.connect(POSTGRES) as theirs:
            pool_log.warning("discarding closed connection: %s", theirs)
        assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == ["theirs", theirs]


class TestDamage:
    async def test_a_damaged_message_is_taken_out_told_and_kept_aside(self, store: Store, schema: str) -> None:
        told: list[Repair] = []
        await store.append("s", entries(1, 6))
        await store.save_checkpoint("s", 5, b"five")
        await store.open("s", told.append)
        ask('UPDATE entries SET message = \'{"role": "us\' WHERE seq IN (2, 5)', schema)
        rest = [*entries(1, 1), *entries(3, 4), *entries(6, 6)]
        assert len(await store.verify("s")) == 2  # type: ignore[attr-defined]
        assert_same(await store.read("s"), rest)
        assert await store.extent("s") == Extent(4, 6)
        assert [(repair.session_id, repair.lost) for repair in told] == [("s", 2)]
        assert sorted(ask("SELECT seq, message FROM damaged", schema)) == [(2, '{"role": "us'), (5, '{"role": "us')]
        assert await store.load_checkpoint("s") is None
        assert await store.verify("s") == []  # type: ignore[attr-defined]
        await store.append("s", entries(7, 8))
        assert_same(await store.read("s"), [*rest, *entries(7, 8)])
        assert len(told) == 1
        await store.rewrite("s", [entry(1, "anew")])
        assert ask("SELECT * FROM damaged", schema) == []

    @pytest.mark.parametrize("given", [[], [entry(2, "gone")]], ids=["nothing", "the message itself"])
    async def test_a_damaged_message_that_was_put_aside_is_erased_though_no_seq_is_known(
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
        told: list[Repair] = []
        await store.open("s", told.append)
        await store.append("s", entries(1, 6))
        ask("DELETE FROM entries WHERE seq = 3", schema)
        assert len(await store.verify("s")) == 2  # type: ignore[attr-defined]
        assert_same(await store.read("s"), [*entries(1, 2), *entries(4, 6)])
        assert [repair.lost for repair in told] == [1]
        await store.append("s", entries(7, 7))
        assert_same(await store.read("s", -3), entries(5, 7))
        assert await store.verify("s") == []  # type: ignore[attr-defined]

    async def test_who_only_reads_leaves_damage_where_it_is(
        self, store: Store, address: str, schema: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        await store.append("s", entries(1, 4))
        await store.close()
        ask("UPDATE entries SET message = 'no JSON' WHERE seq = 2", schema)
        with caplog.at_level(logging.WARNING):
            assert_same(await store.read("s"), [*entries(1, 1), *entries(3, 4)])
        assert "1 damaged" in caplog.text
        assert "no JSON" not in caplog.text
        assert await store.extent("s") == Extent(4, 4)


class TestForgetting:
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

        monkeypatch.setattr(module.PostgresLine, "erase", never)
        await store.append("s", entries(1, 3))
        await store.rewrite("s", entries(1, 3))
