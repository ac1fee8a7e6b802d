"""The store contract, checkpoints: opaque bytes that cover a prefix of a history."""

from __future__ import annotations

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Store

from .fixtures import StoreFixtures, assert_same, assert_unknown, whole
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

    async def test_a_session_without_a_checkpoint_has_none(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        assert await store.load_checkpoint("s") is None

    async def test_a_checkpoint_takes_the_place_of_the_one_before(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        for covered, data in ((2, b"two" * 1_000), (5, b""), (3, b"three"), (0, b"none"), (1, b"one" * 50_000)):
            await store.save_checkpoint("s", covered, data)
            assert await store.load_checkpoint("s") == data
        await store.replace("s", 1, [])
        assert await store.load_checkpoint("s") == b"one" * 50_000

    async def test_the_place_of_the_last_checkpoint_counts_not_of_one_before(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 2, b"two")
        await store.save_checkpoint("s", 5, b"five")
        await store.replace("s", 3, [])
        assert await store.load_checkpoint("s") is None

    async def test_a_checkpoint_is_kept_while_the_history_grows(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 3, b"three")
        await store.append("s", entries(4, 9))
        assert await store.load_checkpoint("s") == b"three"
        assert_same(await store.read("s"), entries(1, 9))

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

    async def test_a_checkpoint_of_an_unknown_session_raises_and_creates_nothing(self, store: Store) -> None:
        with pytest.raises(StoreError):
            await store.save_checkpoint("s", 1, b"one")
        await assert_unknown(store, "s")

    async def test_bytes_of_other_kinds_are_bytes_too(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 2, bytes(bytearray(b"two")))
        found = await store.load_checkpoint("s")
        assert type(found) is bytes
