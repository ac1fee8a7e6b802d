"""The store contract, rewriting: entries are replaced by entries of the same seq, in history and archive."""

from __future__ import annotations

from typing import Any

from amplifier_context_core.stores import Extent, Store
from amplifier_context_core.transcript.entry import Entry

from .fixtures import StoreFixtures, assert_same, whole
from .samples import entries, entry


def _message(seq: int, text: str, **more: Any) -> Entry:
    return entry(seq, {"role": "assistant", "content": text}, **more)


class Rewriting(StoreFixtures):
    """Entries replace the entries of the same seqs; the former messages are erased."""

    async def test_all_of_an_entry_is_rewritten(self, store: Store) -> None:
        await store.append("s", entries(1, 2))
        new = _message(2, "rewritten", turn=9, tokens=99, session_id="other", created="then", completed="later")
        await store.rewrite("s", [new])
        assert_same(await store.read("s", 1), [new])

    async def test_entries_are_rewritten_in_the_archive_too(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.replace("s", 2, entries(6, 6))
        new = [_message(2, "two"), _message(3, "three"), _message(5, "five"), _message(6, "six")]
        await store.rewrite("s", new)
        assert_same(await store.read("s"), [*entries(1, 1), new[0], new[3]])
        archived = [new[1], *entries(4, 4), new[2]] if self.archives else []
        assert_same(await store.archived("s"), archived)

    async def test_a_rewritten_entry_can_be_longer_or_shorter(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        for text in ("x" * 300_000, "", "y" * 40):
            await store.rewrite("s", [_message(2, text)])
            assert_same(await store.read("s"), [*entries(1, 1), _message(2, text), *entries(3, 3)])
            await store.append("s", entries(4, 4))
            await store.replace("s", 3, [])

    async def test_a_changed_message_drops_the_checkpoint(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 3, b"the first three")
        await store.rewrite("s", [_message(2, "rewritten")])
        assert await store.load_checkpoint("s") is None

    async def test_a_message_changed_in_the_archive_drops_the_checkpoint(self, store: Store) -> None:
        """What it quotes may be what has to be forgotten."""
        if not self.archives:
            return
        await store.append("s", entries(1, 5))
        await store.replace("s", 4, [])
        await store.save_checkpoint("s", 3, b"the first three")
        await store.rewrite("s", [_message(5, "rewritten")])
        assert await store.load_checkpoint("s") is None

    async def test_where_only_tokens_differ_the_checkpoint_stays(self, store: Store) -> None:
        await store.append("s", entries(1, 5))
        await store.save_checkpoint("s", 5, b"five")
        recounted = [one._replace(tokens=one.tokens + 1_000) for one in entries(2, 4)]
        await store.rewrite("s", recounted)
        assert await store.load_checkpoint("s") == b"five"
        assert_same(await store.read("s", 1, 4), recounted)

    async def test_seqs_that_are_kept_nowhere_are_left_out(self, store: Store) -> None:
        await store.append("s", entries(1, 3))
        await store.save_checkpoint("s", 3, b"three")
        before = await whole(store)
        await store.rewrite("s", [_message(4, "no"), _message(10**9, "no")])
        assert not (await whole(store)).differs(before)
        await store.rewrite("s", [_message(4, "no"), _message(2, "yes")])
        assert_same(await store.read("s"), [*entries(1, 1), _message(2, "yes"), *entries(3, 3)])
        assert await store.extent("s") == Extent(3, 3)
