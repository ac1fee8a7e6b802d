"""A schema of its own for every test of the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from amplifier_context_servers.postgres_server.store import PostgresStore
from tests.stores.servers import POSTGRES, drop_schema, empty_schema, own_name, postgres_is_there, with_parameters


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
