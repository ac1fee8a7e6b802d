"""Search of sessions in PostgreSQL: in memory, as of every store without an index; that of a former version is gone."""

from __future__ import annotations

import pytest

from amplifier_context_core import ContextManager, load_config
from amplifier_context_servers.postgres_server.schema import FORMER_VERSION, VERSION
from amplifier_context_servers.postgres_server.store import PostgresStore
from tests.messages import user
from tests.stores.servers import POSTGRES, drop_schema, own_name, with_parameters

from .tables import ask

pytestmark = pytest.mark.postgres

# What commit 37ba2a6 created besides.
FORMER_INDEX = (
    "ALTER TABLE sessions ADD COLUMN indexed bigint NOT NULL DEFAULT 0",
    "CREATE TEXT SEARCH DICTIONARY stem (TEMPLATE = snowball, Language = english)",
    "CREATE TEXT SEARCH CONFIGURATION stems (PARSER = default)",
    "CREATE TABLE search (session bigint, place integer, part integer, words tsvector)",
    "CREATE INDEX search_words ON search USING gin (words) WITH (gin_pending_list_limit = 1024)",
    "INSERT INTO search VALUES (1, 0, 0, to_tsvector('q1qsecretword'))",
)


async def test_the_index_of_a_former_version_is_dropped_and_its_sessions_are_searched() -> None:
    schema = own_name()
    url = with_parameters(POSTGRES, schema=schema)
    config = load_config({"token_counter": "heuristic"})
    store = PostgresStore.from_url(url)
    try:
        manager = ContextManager(config, session_id="s", store=store)
        await manager.add_message(user("a secretword of the heron"))
        await manager.add_message(user("a goose"))
        await manager.close()
        await store.close()
        for statement in FORMER_INDEX:
            ask(statement, schema)
        ask("UPDATE migrations SET version = %s", schema, FORMER_VERSION)
        store = PostgresStore.from_url(url)
        resumed = ContextManager(config, session_id="s", store=store)
        assert await resumed.search("herons") == ["m1"]
        assert await resumed.search("goose") == ["m2"]
        await resumed.close()
        assert ask("SELECT max(version) FROM migrations", schema) == [(VERSION,)]
        left = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relname LIKE 'search%%'"
        assert ask(left, schema, schema) == []
    finally:
        await store.close()
        drop_schema(schema)
