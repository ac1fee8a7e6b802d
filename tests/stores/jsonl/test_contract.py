"""The store of files keeps the contract."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from amplifier_context_core.stores import Store
from amplifier_context_core.stores.jsonl.store import JsonlStore
from amplifier_context_testing.store_contract import (
    CheckContract,
    MakeStore,
    SearchContract,
    StoreContract,
    VectorContract,
    WriterContract,
)
from tests.stores.jsonl.files import fast_folder


class TestJsonlStore(StoreContract, WriterContract, CheckContract, SearchContract, VectorContract):
    @pytest.fixture
    def make_store(self) -> Generator[MakeStore]:
        with fast_folder() as root:

            async def make() -> Store:
                return JsonlStore(root / "sessions")

            yield make
