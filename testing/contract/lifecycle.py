"""The store contract, the life of a store object: opening, releasing, closing, reopening."""

from __future__ import annotations

from amplifier_context_core.stores import Extent, Store

from .fixtures import MakeStore, StoreFixtures, assert_same, whole
from .samples import entries, entry, odd_entries


class Lifecycle(StoreFixtures):
    """Opening, releasing, closing, and coming back."""

    async def test_it_is_a_store(self, store: Store) -> None:
        assert isinstance(store, Store)

    async def test_opening_says_how_long_a_session_is(self, store: Store) -> None:
        assert await store.open("s") == Extent()
        await store.append("s", entries(1, 5))
        await store.replace("s", 2, [])
        assert await store.open("s") == Extent(2, 5)

    async def test_a_sound_session_needs_no_repair(self, store: Store) -> None:
        repairs: list[object] = []
        await store.open("s", repairs.append)
        await store.append("s", odd_entries())
        await store.save_checkpoint("s", 3, b"three")
        await store.close()
        await store.open("s", repairs.append)
        await whole(store)
        assert repairs == []

    async def test_closing_twice_is_a_no_op_and_a_later_call_opens_again(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 2, b"two")
        before = await whole(store)
        for _ in range(3):
            await store.close()
            await store.close()
            assert not (await whole(store)).differs(before)
        await store.close()
        await store.append("s", entries(4, 4))
        assert_same(await store.read("s"), entries(1, 4))

    async def test_another_store_object_shows_the_same(self, store: Store, further: MakeStore) -> None:
        """For stores that persist; the memory store's other object is the same one."""
        await store.append("s", odd_entries())
        await store.replace("s", 9, [entry(900), *odd_entries()[12:20], entry(901)])
        await store.rewrite(
            "s", [entry(3, "rewritten"), entry(11, "rewritten in the archive"), entry(901, "rewritten at the end")]
        )
        await store.save_checkpoint("s", 7, bytes(range(256)))
        await store.append("s", entries(902, 905))
        await store.fork("s", "child", 8)
        await store.append("cleared", entries(1, 3))
        await store.replace("cleared", 0, [])
        await store.append("deleted", entries(1, 3))
        await store.delete("deleted")
        ids = ["s", "child", "cleared", "deleted"]
        before = [await whole(store, session_id) for session_id in ids]
        listed = [(info.session_id, info.length) for info in await store.sessions()]
        await store.close()
        other = await further()
        for session_id, was in zip(ids, before, strict=True):
            problem = (await whole(other, session_id)).differs(was)
            assert not problem, f"{session_id}: {problem}"
        assert sorted((info.session_id, info.length) for info in await other.sessions()) == sorted(listed)
        assert await other.open("s") == before[0].extent
        await other.append("s", entries(906, 907))
        assert_same(await other.read("s", -2), entries(906, 907))
        assert_same((await other.read("s"))[:-2], before[0].history)
