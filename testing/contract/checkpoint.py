"""The store contract, checkpoints: opaque bytes that cover a prefix of a history."""

from __future__ import annotations

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Store

from .fixtures import StoreFixtures, whole
from .samples import BEYOND, entries

CHECKPOINTS = {
    "empty": b"",
    "a NUL": b"\0",
    "every byte": bytes(range(256)) * 3,
    "no UTF-8": b"\xff\xfe\xc3\x28",
    "line ends": b"\n\r\n\n",
    "JSON": b'{"role": "user"}\n',
    "zeros": bytes(70_000),
    "3 MB": bytes(range(251)) * 12_000,
}


class Checkpoints(StoreFixtures):
    """A checkpoint: opaque bytes that cover a prefix of the history."""

    @pytest.mark.parametrize("data", CHECKPOINTS.values(), ids=CHECKPOINTS)
    async def test_a_checkpoint_comes_back_byte_for_byte(self, store: Store, data: bytes) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 2, data)
        assert await store.load_checkpoint("s") == data

    @pytest.mark.parametrize("covered", BEYOND)
    async def test_a_checkpoint_for_more_than_there_is_raises_and_changes_nothing(
        self, store: Store, covered: int
    ) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 2, b"two")
        before = await whole(store)
        with pytest.raises(StoreError, match="'s'"):
            await store.save_checkpoint("s", covered, b"too much")
        assert not (await whole(store)).differs(before)
