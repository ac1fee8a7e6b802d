"""The store in Redis keeps the contract, on a real server, each test with a key prefix of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator
from urllib.parse import urlsplit

import pytest

from amplifier_context_core.stores import Store
from amplifier_context_core.stores.redis.store import RedisStore
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
from .servers import REDIS, PrivateRedis, PrivateServer, drop_prefix, own_name, private, redis_is_there, with_parameters

pytestmark = pytest.mark.redis


@pytest.fixture
def prefix() -> Generator[str]:
    """A key prefix of this test's own; its keys are gone afterwards."""
    redis_is_there()
    name = own_name()
    yield name
    drop_prefix(name)


@pytest.fixture(scope="module")
def server() -> Generator[PrivateServer]:
    """A server of these tests' own."""
    with private(PrivateRedis) as server:
        yield server


def at_port(port: int, prefix: str, **parameters: object) -> RedisStore:
    address = REDIS.replace(f":{urlsplit(REDIS).port}", f":{port}")
    return RedisStore.from_address(with_parameters(address, prefix=prefix, **parameters))


class OnRedisStore(StoreFixtures):
    @pytest.fixture
    def make_store(self, prefix: str) -> MakeStore:
        async def make() -> Store:
            return RedisStore.from_address(with_parameters(REDIS, prefix=prefix))

        return make


class TestRedisStore(OnRedisStore, StoreContract, WriterContract, CheckContract):
    pass


@pytest.mark.soak
class TestRedisStoreForLong(OnRedisStore, SoakContract):
    pass


class TestRedisCuts(Cuts):
    @pytest.fixture
    def port(self) -> int:
        return urlsplit(REDIS).port or 6379

    @pytest.fixture
    def at(self, prefix: str) -> MakeAt:
        return lambda port: at_port(port, prefix)


class TestRedisLeases(Leases):
    @pytest.fixture
    def make(self, prefix: str) -> Callable[[float], LeasedStore]:
        return lambda ttl: RedisStore.from_address(with_parameters(REDIS, prefix=prefix, lease_ttl=ttl))


class TestRedisOutages(Outages):
    @pytest.fixture
    def at(self) -> MakeAt:
        return self.patient(3)

    @pytest.fixture
    def impatient(self) -> MakeAt:
        return self.patient(1)

    @staticmethod
    def patient(seconds: int) -> MakeAt:
        own = f"prefix={own_name()}&socket_timeout={seconds}&socket_connect_timeout=2"
        return lambda port: RedisStore.from_address(f"redis://127.0.0.1:{port}/0?{own}")


class TestRedisProcesses(Processes):
    @pytest.fixture
    def address(self, prefix: str) -> str:
        return with_parameters(REDIS, prefix=prefix)
