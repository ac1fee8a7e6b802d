"""The store in PostgreSQL keeps the contract, on a real server, each test in an empty schema."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from amplifier_context_core.stores.postgres.store import PostgresStore
from amplifier_context_testing.store_contract import CheckContract, SoakContract, StoreContract, WriterContract

from .server_contract_connections import ConnectionLossContract, OutageContract
from .server_contract_leases import LeaseContract, WriterProcessContract
from .server_fixtures import OnPrivateServer, OnSharedServer, ServerKind
from .servers import POSTGRES, PrivatePostgres, drop_schema, empty_schema, own_name, postgres_is_there

pytestmark = pytest.mark.postgres

KIND = ServerKind(
    store=PostgresStore.from_url,
    url=POSTGRES,
    port=5432,
    parameter="schema",
    private=PrivatePostgres,
    private_url="postgresql://postgres@127.0.0.1:{port}/postgres",
    timeouts="statement_timeout={seconds}&connect_timeout=2",
)


@pytest.fixture(scope="module")
def run() -> Generator[str]:
    """A schema for the tests of this run; dropped after the last one."""
    postgres_is_there()
    name = own_name()
    yield name
    drop_schema(name)


@pytest.fixture
def name(run: str) -> Generator[str]:
    """The schema of this run, emptied after each test: to create one is slow."""
    yield run
    empty_schema(run)


class OnPostgres(OnSharedServer):
    kind = KIND


class TestPostgresStore(OnPostgres, StoreContract, WriterContract, CheckContract):
    pass


@pytest.mark.soak
class TestPostgresStoreForLong(OnPostgres, SoakContract):
    pass


class TestPostgresConnectionLoss(OnPostgres, ConnectionLossContract):
    pass


class TestPostgresLeases(OnPostgres, LeaseContract):
    pass


class TestPostgresWriterProcesses(OnPostgres, WriterProcessContract):
    pass


class TestPostgresOutages(OnPrivateServer, OutageContract):
    kind = KIND
