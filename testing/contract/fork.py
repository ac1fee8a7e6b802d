"""The store contract, forks: a new session that begins as another one does."""

from __future__ import annotations

import pytest

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores import Extent, Store

from .fixtures import StoreFixtures, assert_same, assert_unknown, whole
from .samples import BEYOND, entries, entry, odd_entries


class Forking(StoreFixtures):
    """A fork is a session of its own that begins as another did."""

    @pytest.mark.parametrize(("length", "held"), [(None, 5), (5, 5), (3, 3), (1, 1), (0, 0)])
    async def test_a_fork_holds_the_first_entries(self, store: Store, length: int | None, held: int) -> None:
        await store.append("s", entries(1, 5))
        await store.fork("s", "child", length)
        assert_same(await store.read("child"), entries(1, 5)[:held])
        assert (await store.extent("child")).length == held
        assert {info.session_id: info.length for info in await store.sessions()} == {"s": 5, "child": held}

    async def test_seqs_and_session_ids_inside_the_entries_stay(self, store: Store) -> None:
        given = [*odd_entries(), entry(900, session_id="child"), entry(901, session_id="another")]
        await store.append("s", given)
        await store.fork("s", "child")
        assert_same(await store.read("child"), given)
        assert {one.session_id for one in await store.read("child")} >= {"s", "child", "another"}

    async def test_seqs_of_the_session_are_not_given_again_in_the_fork(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 4, [])
        await store.fork("s", "child", 2)
        assert await store.extent("child") == Extent(2, 5)

    async def test_what_happens_to_a_fork_does_not_happen_to_the_session(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"three")
        before = await whole(store)
        await store.fork("s", "child")
        await store.append("child", entries(6, 7, session_id="child"))
        await store.replace("child", 1, [entry(8)])
        await store.rewrite("child", [entry(1, "rewritten")])
        await store.save_checkpoint("child", 1, b"one")
        assert not (await whole(store)).differs(before)
        await store.delete("child")
        assert not (await whole(store)).differs(before)

    @pytest.mark.parametrize(("length", "copied"), [(None, True), (4, True), (3, True), (2, False), (0, False)])
    async def test_the_checkpoint_is_copied_when_the_fork_holds_what_it_covers(
        self, store: Store, length: int | None, copied: bool
    ) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"\0three\xff")
        await store.fork("s", "child", length)
        assert await store.load_checkpoint("child") == (b"\0three\xff" if copied else None)

    async def test_a_session_cannot_be_forked_onto_one_that_is_there(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.append("child", entries(1, 2, session_id="child"))
        await store.append("cleared", entries(1, 2, session_id="cleared"))
        await store.replace("cleared", 0, [])
        for new_id in ("child", "cleared", "s"):
            with pytest.raises(StoreError, match=repr(new_id)):
                await store.fork("s", new_id)
        assert_same(await store.read("child"), entries(1, 2, session_id="child"))
        assert_same(await store.read("s"), entries(1, 5))

    @pytest.mark.parametrize("length", BEYOND)
    async def test_a_fork_of_more_than_there_is_raises_and_creates_nothing(self, store: Store, length: int) -> None:
        await store.append("s", entries(1, 3))
        with pytest.raises(StoreError, match="'s'"):
            await store.fork("s", "child", length)
        await assert_unknown(store, "child")
