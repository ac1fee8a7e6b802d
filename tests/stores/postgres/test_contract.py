"""The store in PostgreSQL keeps the contract, on a real server, each test in an empty schema."""

from __future__ import annotations

import pytest

from amplifier_context_servers.postgres_server.store import PostgresStore
from amplifier_context_testing.store_contract import (
    CheckContract,
    SoakContract,
    StoreContract,
    VectorContract,
    WriterContract,
)
from tests.stores.server_contract_connections import ConnectionLossContract, OutageContract
from tests.stores.server_contract_leases import LeaseContract, WriterProcessContract
from tests.stores.server_fixtures import OnPrivateServer, OnSharedServer, ServerKind
from tests.stores.servers import POSTGRES, PrivatePostgres

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


@pytest.fixture
def name(schema: str) -> str:
    return schema


class OnPostgres(OnSharedServer):
    kind = KIND


class TestPostgresStore(OnPostgres, StoreContract, WriterContract, CheckContract, VectorContract):
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
