"""The store in Redis keeps the contract, on a real server, each test with a key prefix of its own."""

from __future__ import annotations

import pytest

from amplifier_context_testing.store_contract import CheckContract, SoakContract, StoreContract, WriterContract
from tests.stores.server_contract_connections import ConnectionLossContract, OutageContract
from tests.stores.server_contract_leases import LeaseContract
from tests.stores.server_fixtures import OnPrivateServer, OnSharedServer
from tests.stores.servers import PrivateRedis

pytestmark = pytest.mark.redis


class OnRedis(OnSharedServer):
    backend = "redis"

    @pytest.fixture
    def name(self, prefix: str) -> str:
        return prefix


class TestRedisStore(OnRedis, StoreContract, WriterContract, CheckContract):
    pass


@pytest.mark.soak
class TestRedisStoreForLong(OnRedis, SoakContract):
    pass


class TestRedisConnectionLoss(OnRedis, ConnectionLossContract):
    pass


class TestRedisLeases(OnRedis, LeaseContract):
    pass


class TestRedisOutages(OnPrivateServer, OutageContract):
    backend, private, timeouts = "redis", PrivateRedis, "socket_timeout={seconds}&socket_connect_timeout=2"
