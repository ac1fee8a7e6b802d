"""Fixtures of the tests that every store on a server inherits: stores on a shared server, or on a private one.

A test file has a fixture `name`: an empty schema or an unused prefix of keys.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from amplifier_context_core.stores import Store, open_store
from amplifier_context_servers.leased.store import LeasedStore
from amplifier_context_testing.store_contract import MakeStore
from tests.places import PARAMETERS, server
from tests.stores.server_contract_connections import MakeAt
from tests.stores.servers import PrivatePostgres, PrivateRedis, PrivateServer, own_name, private, with_parameters


def opened(url: str) -> LeasedStore:
    store = open_store(url)
    assert isinstance(store, LeasedStore)
    return store


class OnSharedServer:
    """Stores in the `name` of this test.

    Attributes:
        backend: one of `tests.places.SERVERS`.
    """

    backend: ClassVar[str]

    @pytest.fixture
    def url(self, name: str) -> str:
        return with_parameters(server(self.backend), **{PARAMETERS[self.backend]: name})

    @pytest.fixture
    def make_store(self, url: str) -> MakeStore:
        async def make() -> Store:
            return open_store(url)

        return make

    @pytest.fixture
    def make(self, url: str) -> Callable[[float], LeasedStore]:
        return lambda ttl: opened(with_parameters(url, lease_ttl=ttl))

    @pytest.fixture
    def port(self, url: str) -> int:
        return urlsplit(url).port or {"postgresql": 5432, "redis": 6379}[self.backend]

    @pytest.fixture
    def at(self, url: str, port: int) -> MakeAt:
        return lambda other: opened(url.replace(f":{port}", f":{other}", 1))


class OnPrivateServer:
    """A server that the tests of a class may stop, and stores on it.

    Attributes:
        private: starts such a server.
        timeouts: parameters of a URL; `{seconds}` is replaced by the seconds until a server counts as silent.
    """

    private: ClassVar[type[PrivatePostgres | PrivateRedis]]
    backend: ClassVar[str]
    timeouts: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Generator[PrivateServer]:
        with private(cls.private) as started:
            yield started

    @pytest.fixture(params=[3])
    async def store(self, server: PrivateServer, request: pytest.FixtureRequest) -> AsyncGenerator[LeasedStore]:
        timeouts = self.timeouts.format(seconds=request.param)
        store = opened(f"{server.url}?{PARAMETERS[self.backend]}={own_name()}&{timeouts}")
        yield store
        server.thaw()
        await store.close()
