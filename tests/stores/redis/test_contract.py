"""The store in Redis keeps the contract, on a real server, each test with a key prefix of its own."""

from __future__ import annotations

import pytest

from amplifier_context_servers.redis_server.store import RedisStore
from amplifier_context_testing.store_contract import CheckContract, SoakContract, StoreContract, WriterContract
from tests.stores.server_contract_connections import ConnectionLossContract, OutageContract
from tests.stores.server_contract_leases import LeaseContract, WriterProcessContract
from tests.stores.server_fixtures import OnPrivateServer, OnSharedServer, ServerKind
from tests.stores.servers import REDIS, PrivateRedis

pytestmark = pytest.mark.redis

KIND = ServerKind(
    store=RedisStore.from_url,
    url=REDIS,
    port=6379,
    parameter="prefix",
    private=PrivateRedis,
    private_url="redis://127.0.0.1:{port}/0",
    timeouts="socket_timeout={seconds}&socket_connect_timeout=2",
)


@pytest.fixture
def name(prefix: str) -> str:
    return prefix


class OnRedis(OnSharedServer):
    kind = KIND


class TestRedisStore(OnRedis, StoreContract, WriterContract, CheckContract):
    pass


@pytest.mark.soak
class TestRedisStoreForLong(OnRedis, SoakContract):
    pass


class TestRedisConnectionLoss(OnRedis, ConnectionLossContract):
    pass


class TestRedisLeases(OnRedis, LeaseContract):
    pass


class TestRedisWriterProcesses(OnRedis, WriterProcessContract):
    pass


class TestRedisOutages(OnPrivateServer, OutageContract):
    kind = KIND
