"""Context stores: one contract for all of them, and what is peculiar to those that use a store of the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from amplifier_context_core.compat import (
    ContextStore,
    MemoryContextStore,
    Message,
)
from tests.compat.context_contract import TYPED, WIRE, ContextStoreContract, Listed

from .samples import dicts


class TestMemoryContextStore(ContextStoreContract):
    @pytest.fixture
    def context(self) -> ContextStore:
        return MemoryContextStore()

    async def test_it_is_made_from_messages_of_both_kinds(self) -> None:
        context = await MemoryContextStore.from_history([*TYPED, *WIRE], session_id="mine")
        assert context.session_id == "mine"
        assert (await context.get_history())[: len(TYPED)] == TYPED
        assert dicts(await context.get_history())[len(TYPED) :] == WIRE

    async def test_two_have_different_ids(self) -> None:
        assert len({MemoryContextStore().session_id for _ in range(100)}) == 100

    async def test_a_fork_is_a_memory_context_that_keeps_nothing_of_the_original_alive(self) -> None:
        context = await MemoryContextStore.from_history(TYPED)
        fork = await context.fork()
        assert type(fork) is MemoryContextStore
        assert fork._store is not context._store  # pyright: ignore[reportPrivateUsage]


class TestASubclassOfFiveMethods(ContextStoreContract):
    @pytest.fixture
    def context(self) -> ContextStore:
        return Listed()

    def test_a_class_that_lacks_one_cannot_be_made(self) -> None:
        class Half(ContextStore):
            async def append(self, message: Message | Mapping[str, Any]) -> None: ...

        with pytest.raises(TypeError, match="get_history"):
            Half()  # pyright: ignore[reportAbstractUsage]
