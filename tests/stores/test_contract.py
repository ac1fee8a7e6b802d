"""Every store keeps the contract, which asks every method and is not fooled."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from amplifier_context_core import Entry, MemoryStore, Store, open_store
from amplifier_context_servers.postgres_server import driver as postgres_driver
from amplifier_context_servers.redis_server import driver as redis_driver
from amplifier_context_testing.contract.edits import Editing
from amplifier_context_testing.contract.reference import MatchesReference
from amplifier_context_testing.store_contract import (
    CheckContract,
    MakeStore,
    SearchContract,
    SoakContract,
    StoreContract,
    StoreFixtures,
    VectorContract,
    WriterContract,
)
from tests.places import SERVERS, parameters


class AppendsOneByOne(MemoryStore):
    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        for entry in entries:
            await super().append(session_id, [entry])
            await asyncio.sleep(0)


async def test_a_store_that_appends_one_by_one_fails_the_claim_that_it_breaks() -> None:
    async def same() -> Store:
        return store

    contract, store = StoreContract(), AppendsOneByOne()
    with pytest.raises(AssertionError):
        await contract.test_a_cancelled_append_is_there_whole_or_not_at_all(store, same, 0)


def test_no_claim_of_the_contract_hides_another() -> None:
    parts = {*StoreContract.__mro__, *WriterContract.__mro__}
    claims = [name for part in parts for name in vars(part) if name.startswith("test_")]
    assert len(claims) == len(set(claims)) > 20


class TestMemoryStore(StoreContract):
    persistent = False
    tick = 0.0
    examples = 1  # it is what histories are compared with

    @pytest.fixture
    def make_store(self) -> MakeStore:
        only = MemoryStore()

        async def make() -> Store:
            return only

        return make


class OnEachStore(StoreFixtures):
    @pytest.fixture
    def make_store(self, url: str) -> MakeStore:
        async def make() -> Store:
            return open_store(url)

        return make


class TestStores(OnEachStore, StoreContract, WriterContract, CheckContract):
    @pytest.fixture(autouse=True)
    def few_on_servers(self, backend: str) -> None:
        """A server takes a second for each history; `TestStoresForLong` draws many."""
        if backend in SERVERS:
            self.examples = 10


@pytest.mark.parametrize("backend", parameters("jsonl", "sqlite"), indirect=True)
class TestSearchableStores(OnEachStore, SearchContract):
    pass


@pytest.mark.parametrize("backend", parameters("jsonl", "sqlite", "postgresql"), indirect=True)
class TestStoresThatKeepVectors(OnEachStore, VectorContract):
    pass


@pytest.mark.soak
@pytest.mark.parametrize("backend", parameters("sqlite", "postgresql", "redis"), indirect=True)
class TestStoresForLong(OnEachStore, SoakContract):
    pass


class TestStoresWithoutArchive(Editing, MatchesReference):
    archives = False
    examples = 10

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        async def make() -> Store:
            return open_store(f"sqlite:{tmp_path / 'sessions.db'}", archive=False, durability="flush")

        return make


PIECES = {"postgresql": (postgres_driver, "_MAX_ROWS", 3), "redis": (redis_driver, "_WINDOW", 7)}


@pytest.mark.parametrize("backend", parameters(*PIECES), indirect=True)
class TestInPieces(OnEachStore, MatchesReference):
    """Statements that take three rows each, and rows that are read seven at a time."""

    examples = 8

    @pytest.fixture(autouse=True)
    def pieces(self, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(*PIECES[backend])
