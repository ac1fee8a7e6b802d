"""The store in PostgreSQL keeps the contract, on a real server, each test in an empty schema."""

from __future__ import annotations

import pytest

from amplifier_context_testing.store_contract import (
    CheckContract,
    SoakContract,
    StoreContract,
    VectorContract,
    WriterContract,
)
from tests.stores.server_contract_connections import ConnectionLossContract, OutageContract
from tests.stores.server_contract_leases import LeaseContract
from tests.stores.server_fixtures import OnPrivateServer, OnSharedServer
from tests.stores.servers import PrivatePostgres

pytestmark = pytest.mark.postgres


class OnPostgres(OnSharedServer):
    backend = "postgresql"

    @pytest.fixture
    def name(self, schema: str) -> str:
        return schema


class TestPostgresStore(OnPostgres, StoreContract, WriterContract, CheckContract, VectorContract):
    pass


@pytest.mark.soak
class TestPostgresStoreForLong(OnPostgres, SoakContract):
    pass


class TestPostgresConnectionLoss(OnPostgres, ConnectionLossContract):
    pass


class TestPostgresLeases(OnPostgres, LeaseContract):
    pass


class TestPostgresOutages(OnPrivateServer, OutageContract):
    backend, private, timeouts = "postgresql", PrivatePostgres, "statement_timeout={seconds}&connect_timeout=2"
