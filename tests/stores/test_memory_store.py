"""The reference store keeps the contract."""

from __future__ import annotations

import pytest

from amplifier_context_core.stores import MemoryStore, Store
from amplifier_context_testing.store_contract import MakeStore, SoakContract, StoreContract, StoreFixtures


class InMemory(StoreFixtures):
    persistent = False
    tick = 0.0
    examples = 60

    @pytest.fixture
    def make_store(self) -> MakeStore:
        only = MemoryStore()

        async def make() -> Store:
            return only

        return make


class TestMemoryStore(InMemory, StoreContract):
    pass


@pytest.mark.soak
class TestMemoryStoreForLong(InMemory, SoakContract):
    pass
