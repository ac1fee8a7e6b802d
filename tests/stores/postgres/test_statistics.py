"""ANALYZE copies no text of a message into statistics, and a schema of an older version loses such copies."""

from __future__ import annotations

from collections.abc import Generator

import psycopg
import pytest
from psycopg import sql

from amplifier_context_core.stores import Store
from amplifier_context_servers.postgres_server.schema import MIGRATIONS
from amplifier_context_servers.postgres_server.store import PostgresStore
from amplifier_context_testing.contract.samples import entry
from tests.stores.servers import POSTGRES, drop_schema, own_name, postgres_is_there, with_parameters

from .tables import ask

pytestmark = pytest.mark.postgres

SECRET = "hunter2 is the password"
BEFORE_STATISTICS = 3  # migrations of a schema that let ANALYZE copy messages


def texts_in_statistics(schema: str) -> list[tuple[str, str]]:
    """Columns whose statistics hold the secret, as text or as the bytes of a checkpoint."""
    query = "SELECT tablename, attname, most_common_vals::text, histogram_bounds::text FROM pg_stats s"
    found = ask(f"{query} WHERE schemaname = %s", schema, schema)
    return [row[:2] for row in found if SECRET in repr(row) or SECRET.encode().hex() in repr(row)]


def layout(schema: str) -> list[tuple[object, ...]]:
    """Files of the tables and their indexes, and how columns are compressed."""
    return ask(
        "SELECT c.oid, relfilenode, attname, attcompression, attstorage FROM pg_class c "
        "JOIN pg_attribute a ON attrelid = c.oid "
        "WHERE relnamespace = quote_ident(%s)::regnamespace AND relname <> ALL ('{migrations,migrations_pkey}') "
        "ORDER BY c.oid, attnum",
        schema,
        schema,
    )


async def test_no_text_of_a_message_is_in_statistics(store: Store, schema: str) -> None:
    for name in ("s", "t", "u"):
        await store.append(name, [entry(seq, SECRET) for seq in range(1, 41)])
        await store.replace(name, 20, [])
        await store.save_checkpoint(name, 20, SECRET.encode())
    ask("UPDATE entries SET extra = message; UPDATE archive SET extra = message", schema)
    ask("INSERT INTO damaged (session, seq, message, extra) SELECT session, seq, message, extra FROM entries", schema)
    for table in ("sessions", "entries", "archive", "damaged"):
        ask(f"ANALYZE {table}", schema)
    assert texts_in_statistics(schema) == []


@pytest.fixture
def older() -> Generator[str]:
    """A schema whose statistics hold a message; gone afterwards."""
    postgres_is_there()
    name = own_name()
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {0}").format(sql.Identifier(name)))
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(name)))
        connection.execute("CREATE TABLE migrations (version integer PRIMARY KEY, applied timestamptz DEFAULT now())")
        for number, migration in enumerate(MIGRATIONS[:BEFORE_STATISTICS], 1):
            connection.execute(migration.encode())
            connection.execute("INSERT INTO migrations (version) VALUES (%s)", [number])
        connection.execute(
            "INSERT INTO sessions (id, length, last_seq, size, change, updated) VALUES ('s', 9, 9, 400, 5, now())"
        )
        connection.execute(
            "INSERT INTO entries (session, seq, turn, tokens, place, message) SELECT key, n, 1, 9, n - 1, "
            f'\'{{"role":"user","content":"{SECRET}"}}\' FROM sessions, generate_series(1, 9) n'
        )
        connection.execute("ANALYZE entries")
    yield name
    drop_schema(name)


async def test_a_schema_of_an_older_version_loses_its_statistics_of_messages_without_a_copy(older: str) -> None:
    before = layout(older)
    assert ("entries", "message") in texts_in_statistics(older)
    store = PostgresStore.from_url(with_parameters(POSTGRES, schema=older))
    assert [one.message["content"] for one in await store.read("s")] == [SECRET] * 9
    await store.close()
    assert texts_in_statistics(older) == []
    ask("ANALYZE entries", older)
    assert texts_in_statistics(older) == []
    assert layout(older) == before
