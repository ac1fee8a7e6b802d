"""What a store on a server must do about rows that were damaged by hand: tests to inherit."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent, Repair, Store
from amplifier_context_testing.contract.fixtures import assert_same
from amplifier_context_testing.contract.samples import entries

LEFT = [*entries(1, 1), *entries(3, 6)]


class DamageContract:
    """Damaged messages are left out and reported, and their session is not changed."""

    @pytest.fixture
    def harm(self) -> Callable[[], object]:
        """Damages the second message of session `s`."""
        raise NotImplementedError

    async def test_a_damaged_message_is_left_out_and_reported_once_and_its_session_is_not_changed(
        self, store: Store, harm: Callable[[], object]
    ) -> None:
        repairs: list[Repair] = []
        await store.append("s", entries(1, 6))
        await store.save_checkpoint("s", 5, b"five")
        await store.open("s", repairs.append)
        harm()
        assert await store.verify("s") != []  # type: ignore[attr-defined]
        for _ in range(2):
            assert_same(await store.read("s"), LEFT)
        assert [(repair.session_id, repair.lost) for repair in repairs] == [("s", 1)]
        for change in (store.append("s", entries(7, 8)), store.replace("s", 2, []), store.rewrite("s", entries(1, 1))):
            with pytest.raises(StoreError, match="damaged messages, so nothing was written"):
                await change
        assert_same(await store.read("s"), LEFT)
        assert await store.extent("s") == Extent(6, 6)
        assert await store.load_checkpoint("s") == b"five"
        await store.delete("s")
        assert await store.sessions() == []

    async def test_a_reader_leaves_damage_where_it_is(
        self, store: Store, harm: Callable[[], object], caplog: pytest.LogCaptureFixture
    ) -> None:
        await store.append("s", entries(1, 6))
        await store.close()
        harm()
        with caplog.at_level(logging.WARNING):
            assert_same(await store.read("s"), LEFT)
        assert "1 damaged" in caplog.text
        assert "content" not in caplog.text
        assert await store.extent("s") == Extent(6, 6)
