"""The SQLite store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from amplifier_context_core.stores import Store
from amplifier_context_core.stores.sqlite.store import SqliteStore
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


class OnSqliteStore(StoreFixtures):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        async def make() -> Store:
            return SqliteStore(tmp_path / "sessions.db")

        return make


class TestSqliteStore(OnSqliteStore, StoreContract, WriterContract, CheckContract, SearchContract, VectorContract):
    pass


@pytest.mark.soak
class TestSqliteStoreForLong(OnSqliteStore, SoakContract):
    pass


class TestSqliteStoreWithoutArchive(Editing, MatchesReference):
    archives = False
    examples = 10

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        async def make() -> Store:
            return SqliteStore(tmp_path / "sessions.db", archive=False, durability="flush")

        return make
