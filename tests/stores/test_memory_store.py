"""The reference store keeps the contract."""

from __future__ import annotations

import pytest

from amplifier_context_core.stores import MemoryStore, Store
from amplifier_context_testing.store_contract import MakeStore, StoreContract


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
