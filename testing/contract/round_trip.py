"""The store contract, round trips: every entry comes back unchanged."""

from __future__ import annotations

from amplifier_context_core.stores import Store
from amplifier_context_core.transcript.entry import Entry

from ..checks.corpus import conversations
from .fixtures import MakeStore, StoreFixtures, assert_same
from .samples import entry, odd_entries


class RoundTrips(StoreFixtures):
    """Entries of every shape come back alike: every type, every key's place, every character."""

    async def test_odd_messages_appended_one_by_one_come_back_as_they_were(
        self, store: Store, further: MakeStore
    ) -> None:
        given = odd_entries()
        for one in given:
            await store.append("s", [one])
            assert_same(await store.read("s", -1), [one])
        await self.assert_found(store, further, given)

    async def test_odd_conversations_come_back_as_they_were(self, store: Store, further: MakeStore) -> None:
        for talk in conversations():
            given = [entry(seq, message, session_id=talk.name) for seq, message in enumerate(talk.messages, 1)]
            await store.append(talk.name, given)
            assert_same(await store.read(talk.name), given)
        await store.close()
        other = await further()
        for talk in conversations():
            given = [entry(seq, message, session_id=talk.name) for seq, message in enumerate(talk.messages, 1)]
            assert_same(await other.read(talk.name), given)

    async def test_what_was_archived_or_rewritten_comes_back_as_it_was(self, store: Store) -> None:
        given = odd_entries()
        await store.append("s", [entry(one.seq) for one in given])
        await store.rewrite("s", given)
        assert_same(await store.read("s"), given)
        await store.replace("s", 0, [])
        assert_same(await store.archived("s"), given if self.archives else [])

    async def test_a_text_of_5_mb_comes_back_whole(self, store: Store, further: MakeStore) -> None:
        given = [entry(1, "0123456789 line\n" * 320_000), entry(2, "読" * 200_000), entry(3)]
        await self.assert_kept(store, further, given)

    async def assert_kept(self, store: Store, further: MakeStore, given: list[Entry]) -> None:
        """Appended, these come back alike: at once, by range, by seq, with more after them, and elsewhere."""
        await store.append("s", given)
        await self.assert_found(store, further, given)

    async def assert_found(self, store: Store, further: MakeStore, given: list[Entry]) -> None:
        """The history is these entries: at once, by range, by seq, with more after them, and elsewhere."""
        assert_same(await store.read("s"), given)
        assert_same(await store.read("s", -2), given[-2:])
        assert_same(await store.find("s", [one.seq for one in given]), given)
        after = entry(10**6)
        await store.append("s", [after])
        await store.close()
        assert_same(await (await further()).read("s"), [*given, after])
