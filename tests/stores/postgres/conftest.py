"""A store in PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_servers.postgres_server.store import PostgresStore
from tests.stores.servers import POSTGRES, with_parameters


@pytest.fixture
def url(schema: str) -> str:
    return with_parameters(POSTGRES, schema=schema)


@pytest.fixture
async def store(url: str) -> Any:
    store = PostgresStore.from_url(url)
    yield store
    await store.close()
