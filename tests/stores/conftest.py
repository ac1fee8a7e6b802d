"""A place of its own for the store of every test: a folder, a schema of PostgreSQL, or a prefix of keys in Redis."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.stores import open_store
from tests import places
from tests.stores.servers import drop_prefix, drop_schema, empty_schema, own_name, with_parameters


@pytest.fixture(scope="module")
def run() -> Generator[str]:
    """A schema of this run's own, gone afterwards."""
    places.server("postgresql")
    name = own_name()
    yield name
    drop_schema(name)


@pytest.fixture
def schema(run: str) -> Generator[str]:
    """The same schema, emptied after each test: to create one takes long."""
    yield run
    empty_schema(run)


@pytest.fixture
def prefix() -> Generator[str]:
    """A key prefix of this test's own; its keys are gone afterwards."""
    places.server("redis")
    name = own_name()
    yield name
    drop_prefix(name)


@pytest.fixture(scope="module", params=places.parameters(*places.KEPT))
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store of the backend keeps its sessions."""
    if backend not in places.SERVERS:
        return f"{backend}:{tmp_path / 'sessions'}"
    parameter = places.PARAMETERS[backend]
    return with_parameters(places.server(backend), **{parameter: request.getfixturevalue(parameter)})


@pytest.fixture
async def store(url: str) -> AsyncGenerator[Any]:
    store = open_store(url)
    yield store
    await store.close()
