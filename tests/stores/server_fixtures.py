"""Fixtures of the tests that every store on a server inherits: stores on a shared server, or on a private one.

A test file names the server in a `ServerKind`, and has a fixture `name`: an empty schema or an unused prefix of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from amplifier_context_core.stores import Store
from amplifier_context_servers.leased.store import LeasedStore
from amplifier_context_testing.store_contract import MakeStore
from tests.stores.server_contract_connections import MakeAt
from tests.stores.servers import PrivatePostgres, PrivateRedis, PrivateServer, own_name, private, with_parameters


@dataclass(frozen=True)
class ServerKind:
    """One kind of server.

    Attributes:
        store: opens the store of a URL.
        url: of the server that all tests share.
        port: default port of such a server.
        parameter: of a URL; names the schema, or the prefix of keys.
        private: starts a server of the test's own.
        private_url: URL of that server; `{port}` is replaced by its port.
        timeouts: parameters of a URL; `{seconds}` is replaced by the seconds until a server counts as silent.
    """

    store: Callable[[str], LeasedStore]
    url: str
    port: int
    parameter: str
    private: type[PrivatePostgres | PrivateRedis]
    private_url: str
    timeouts: str


class OnSharedServer:
    """Stores in the `name` of this test."""

    kind: ClassVar[ServerKind]

    @pytest.fixture
    def url(self, name: str) -> str:
        return with_parameters(self.kind.url, **{self.kind.parameter: name})

    @pytest.fixture
    def make_store(self, url: str) -> MakeStore:
        async def make() -> Store:
            return self.kind.store(url)

        return make

    @pytest.fixture
    def make(self, url: str) -> Callable[[float], LeasedStore]:
        return lambda ttl: self.kind.store(with_parameters(url, lease_ttl=ttl))

    @pytest.fixture
    def port(self) -> int:
        return urlsplit(self.kind.url).port or self.kind.port

    @pytest.fixture
    def at(self, url: str, port: int) -> MakeAt:
        return lambda other: self.kind.store(url.replace(f":{port}", f":{other}", 1))


class OnPrivateServer:
    """A server that the tests of a class may stop, and stores on it."""

    kind: ClassVar[ServerKind]

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Generator[PrivateServer]:
        with private(cls.kind.private) as started:
            yield started

    @pytest.fixture
    def at(self) -> MakeAt:
        return self._patient(3)

    @pytest.fixture
    def impatient(self) -> MakeAt:
        return self._patient(1)

    def _patient(self, seconds: int) -> MakeAt:
        kind = self.kind
        parameters = f"{kind.parameter}={own_name()}&{kind.timeouts.format(seconds=seconds)}"
        return lambda port: kind.store(f"{kind.private_url.format(port=port)}?{parameters}")
