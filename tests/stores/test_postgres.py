"""The store in PostgreSQL keeps the contract, on a real server, each test in an empty schema."""

from __future__ import annotations

from collections.abc import Callable, Generator
from urllib.parse import urlsplit

import pytest

from amplifier_context_core.stores import Store
from amplifier_context_core.stores.postgres.store import PostgresStore
from amplifier_context_core.stores.servers.leased_store import LeasedStore
from amplifier_context_testing.store_contract import (
    CheckContract,
    MakeStore,
    SoakContract,
    StoreContract,
    StoreFixtures,
    WriterContract,
)

from .server_claims import Cuts, Leases, MakeAt, Outages, Processes
from .servers import (
    POSTGRES,
    PrivatePostgres,
    PrivateServer,
    drop_schema,
    empty_schema,
    own_name,
    postgres_is_there,
    private,
    with_parameters,
)

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


@pytest.fixture(scope="module")
def server() -> Generator[PrivateServer]:
    """A server of these tests' own."""
    with private(PrivatePostgres) as server:
        yield server


def at_port(port: int, schema: str, **parameters: object) -> PostgresStore:
    address = POSTGRES.replace(f":{urlsplit(POSTGRES).port}", f":{port}")
    return PostgresStore.from_address(with_parameters(address, schema=schema, **parameters))


class OnPostgresStore(StoreFixtures):
    @pytest.fixture
    def make_store(self, schema: str) -> MakeStore:
        async def make() -> Store:
            return PostgresStore.from_address(with_parameters(POSTGRES, schema=schema))

        return make


class TestPostgresStore(OnPostgresStore, StoreContract, WriterContract, CheckContract):
    pass


@pytest.mark.soak
class TestPostgresStoreForLong(OnPostgresStore, SoakContract):
    pass


class TestPostgresCuts(Cuts):
    @pytest.fixture
    def port(self) -> int:
        return urlsplit(POSTGRES).port or 5432

    @pytest.fixture
    def at(self, schema: str) -> MakeAt:
        return lambda port: at_port(port, schema)


class TestPostgresLeases(Leases):
    @pytest.fixture
    def make(self, schema: str) -> Callable[[float], LeasedStore]:
        return lambda ttl: PostgresStore.from_address(with_parameters(POSTGRES, schema=schema, lease_ttl=ttl))


class TestPostgresOutages(Outages):
    @pytest.fixture
    def at(self) -> MakeAt:
        return self.patient(3)

    @pytest.fixture
    def impatient(self) -> MakeAt:
        return self.patient(1)

    @staticmethod
    def patient(seconds: int) -> MakeAt:
        own = f"schema={own_name()}&statement_timeout={seconds}&connect_timeout=2"
        return lambda port: PostgresStore.from_address(f"postgresql://postgres@127.0.0.1:{port}/postgres?{own}")


class TestPostgresProcesses(Processes):
    @pytest.fixture
    def address(self, schema: str) -> str:
        return with_parameters(POSTGRES, schema=schema)
