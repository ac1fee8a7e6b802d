"""The contract of a store that is `Checkable`: looking for damage."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pytest

from amplifier_context_core.stores import Checkable, Store

from .fixtures import MakeStore, StoreFixtures, assert_same, whole
from .samples import entries, entry, odd_entries


@runtime_checkable
class CheckingStore(Store, Checkable, Protocol):
    """A store that is checkable."""


class CheckFixtures(StoreFixtures):
    """The store under test, as one that is checkable."""

    @pytest.fixture
    async def checking(self, store: Store) -> CheckingStore:
        assert isinstance(store, CheckingStore)
        return store


class Checking(CheckFixtures):
    """An undamaged session has no problems after any change."""

    async def test_an_unknown_session_has_nothing_wrong_with_it(self, checking: CheckingStore) -> None:
        assert await checking.verify("never seen") == []
        assert await checking.sessions() == []

    async def test_a_sound_session_has_nothing_wrong_with_it_after_every_kind_of_change(
        self, checking: CheckingStore
    ) -> None:
        odd = odd_entries()
        await checking.append("s", odd)
        assert await checking.verify("s") == []
        await checking.replace("s", 9, [entry(900), odd[20], odd[15], entry(901)])
        assert await checking.verify("s") == []
        await checking.rewrite("s", [entry(3, "rewritten"), entry(12, "rewritten"), entry(901, "rewritten")])
        assert await checking.verify("s") == []
        await checking.save_checkpoint("s", 7, bytes(range(256)))
        assert await checking.verify("s") == []
        await checking.fork("s", "child", 8)
        assert await checking.verify("child") == []
        await checking.replace("s", 0, [])
        assert await checking.verify("s") == []
        await checking.close()
        assert await checking.verify("s") == []
        assert await checking.verify("child") == []

    async def test_checking_changes_nothing_and_locks_nothing(
        self, checking: CheckingStore, further: MakeStore
    ) -> None:
        await checking.append("s", odd_entries())
        before = await whole(checking)
        other = await further()
        assert isinstance(other, Checkable)
        assert await other.verify("s") == []  # while the first one writes
        await checking.append("s", entries(900, 900))
        await checking.replace("s", before.extent.length, [])
        await checking.release("s")
        assert await other.verify("s") == []
        await checking.open("s")
        assert not await checking.verify("s")
        assert_same(await checking.read("s"), before.history)
