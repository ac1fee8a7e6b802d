"""Context stores: one contract for all of them, and what is peculiar to those that use a store of the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from amplifier_context_core.compat import ContextStore, MemoryContextStore, Message
from tests.compat.context_contract import ContextStoreContract, Listed


class TestMemoryContextStore(ContextStoreContract):
    @pytest.fixture
    def context(self) -> ContextStore:
        return MemoryContextStore()


class TestASubclassOfFiveMethods(ContextStoreContract):
    @pytest.fixture
    def context(self) -> ContextStore:
        return Listed()

    def test_a_class_that_lacks_one_cannot_be_made(self) -> None:
        class Half(ContextStore):
            async def append(self, message: Message | Mapping[str, Any]) -> None: ...

        with pytest.raises(TypeError, match="get_history"):
            Half()  # pyright: ignore[reportAbstractUsage]
