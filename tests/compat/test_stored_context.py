"""A context on a store keeps the contract, and survives refusals and other writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, InvalidMessage, MemoryStore, Store, StoreError, open_store
from amplifier_context_core.compat import (
    ContextStore,
    ImageBlock,
    MemoryContextStore,
    Message,
    StoredContext,
    TextBlock,
    ToolResultBlock,
)
from amplifier_context_core.messages.tokens import count_message_tokens
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_testing import check_request
from tests.compat.context_contract import TYPED, WIRE, ContextStoreContract

from ..laws.histories import conversations, flat
from .samples import MESSAGES, PNG, answers, calls, dicts, law, says, talk, user


class FullDisk(MemoryStore):
    """A store that refuses to write once its disk is full."""

    full = False

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        if self.full:
            raise StoreError("no space left on the device")
        await super().append(session_id, entries)


@pytest.mark.parametrize("scheme", ["memory", "jsonl", "sqlite"])
class TestStoredContext(ContextStoreContract):
    @pytest.fixture
    async def store(self, scheme: str, tmp_path: Path) -> AsyncIterator[Store]:
        store = open_store("memory:" if scheme == "memory" else f"{scheme}:{tmp_path / 'sessions'}")
        yield store
        await store.close()

    @pytest.fixture
    def context(self, store: Store) -> ContextStore:
        return StoredContext(store, "mine")

    async def test_a_session_is_gone_on_with_by_another_object(self, store: Store) -> None:
        first = await StoredContext.from_history([*TYPED, *WIRE], store=store, session_id="s")
        await first.set_context_tokens(12, 34)
        await first.close()
        second = StoredContext(store, "s")
        third = StoredContext(store, "s")
        assert await second.get_context_tokens() == (12, 34)
        assert await third.get_context_tokens() == (12, 34)
        await second.set_context_tokens(12, 35)
        assert await third.get_context_tokens() == (12, 35)
        await second.append(user("more"))
        assert len(await second.get_history()) == len(TYPED + WIRE) + 1
        assert await second.get_context_tokens() == (12, 35)

    async def test_a_copy_of_a_session_without_tokens_keeps_later_ones(self, store: Store) -> None:
        await store.save_checkpoint("copied", 0, b"")  # as the command `copy` does
        await StoredContext(store, "copied").set_context_tokens(12, 34)
        assert await StoredContext(store, "copied").get_context_tokens() == (12, 34)

    async def test_entries_are_as_the_core_makes_them(self, store: Store) -> None:
        context = StoredContext(store, "s", clock=lambda: "2026-02-03T04:05:06.000+00:00")
        await context.extend([user("one"), calls("a"), answers("a")])
        await context.append({**WIRE[1], "content": "two"})
        await context.append({"role": "assistant", "content": "done", "model": "m-1"})
        entries = await store.read("s")
        assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5]
        assert [entry.turn for entry in entries] == [1, 1, 1, 2, 2]
        assert [entry.human for entry in entries] == [True, False, False, True, False]
        assert entries[1].call_ids == ("a",)
        assert entries[2].answered_ids == ("a",)
        assert [entry.tokens for entry in entries] == [count_message_tokens(entry.message) for entry in entries]
        assert [entry.created for entry in entries[2:4]] == [
            "2026-02-03T04:05:06.000+00:00",
            "2026-01-01T00:00:00.000+00:00",
        ]
        assert entries[4].response is not None
        assert entries[4].response.model == "m-1"

    async def test_of_several_messages_all_are_stored_or_none(self, store: Store) -> None:
        context = StoredContext(store, "s")
        with pytest.raises(InvalidMessage, match=r"^messages\[2\]\.role: is missing"):
            await context.extend([user(), says(), {"content": "x"}])
        assert await context.get_history() == []
        assert await store.sessions() == []

    async def test_clearing_sets_the_tokens_to_zero(self, store: Store) -> None:
        context = await StoredContext.from_history(TYPED, store=store, session_id="s")
        await context.set_context_tokens(12, 34)
        await context.clear()
        assert await context.get_context_tokens() == (0, 0)
        assert await StoredContext(store, "s").get_context_tokens() == (0, 0)

    async def test_nothing_is_made_of_no_messages(self, store: Store) -> None:
        context = await StoredContext.from_history([], store=store, session_id="s")
        await context.get_history()
        await context.clear()
        assert await store.sessions() == []

    async def test_a_session_that_is_there_is_not_begun_again(self, store: Store) -> None:
        await StoredContext.from_history(TYPED, store=store, session_id="s")
        with pytest.raises(StoreError, match="'s' has a history already"):
            await StoredContext.from_history([user()], store=store, session_id="s")
        assert await StoredContext(store, "s").get_history() == TYPED

    async def test_a_managers_checkpoint_is_left_alone_and_tokens_last_as_long_as_the_object(
        self, store: Store
    ) -> None:
        context = await StoredContext.from_history(TYPED, store=store, session_id="s")
        await store.save_checkpoint("s", 2, b'{"version": 1}')
        await context.set_context_tokens(12, 34)
        assert await store.load_checkpoint("s") == b'{"version": 1}'
        assert await context.get_context_tokens() == (12, 34)
        assert await (await context.fork()).get_context_tokens() == (12, 34)
        assert await StoredContext(store, "s").get_context_tokens() == (0, 0)

    async def test_a_session_begun_here_is_gone_on_with_by_a_manager_and_shown_as_every_provider_takes_it(
        self, store: Store
    ) -> None:
        result = ToolResultBlock("a", [TextBlock("out"), ImageBlock("image/png", PNG)])
        context = await StoredContext.from_history(
            [*TYPED[:2], Message("user", [result]), *TYPED[3:], user("Well?")], store=store, session_id="s"
        )
        await context.close()
        manager = ContextManager(store=store, session_id="s")
        view = await manager.get_messages_for_request()
        assert check_request(view) == []
        assert [message["role"] for message in view] == ["user", "assistant", "tool", "user", "assistant", "user"]
        images = [block for message in view for block in message["content"] if block["type"] == "image"]
        assert len(images) == 2
        await manager.add_message({"role": "assistant", "content": "Done."})
        await manager.close()
        assert (await StoredContext(store, "s").get_history())[-1].text == "Done."

    async def test_a_session_of_a_manager_is_gone_on_with_here(self, store: Store) -> None:
        manager = ContextManager(store=store, session_id="s")
        for message in WIRE:
            await manager.add_message(message)
        written = await manager.get_messages()
        await manager.close()
        context = StoredContext(store, "s")
        assert dicts(await context.get_history()) == written
        await context.append(user("more"))
        assert [entry.seq for entry in await store.read("s")] == list(range(1, len(WIRE) + 2))

    @law
    @given(st.data())
    async def test_any_history_is_read_as_it_was_written(self, store: Store, data: st.DataObject) -> None:
        wire = flat(data.draw(conversations(max_steps=5)))
        typed = data.draw(st.lists(MESSAGES, max_size=3))
        given: Iterable[Message | dict[str, Any]] = [*wire, *typed]
        context = await StoredContext.from_history(given, store=store)
        history = await context.get_history()
        assert dicts(history[: len(wire)]) == wire
        assert history[len(wire) :] == typed
        assert dicts(await (await context.fork()).get_history()) == dicts(history)


async def test_a_refused_message_is_not_in_the_history_and_later_ones_are() -> None:
    store = FullDisk()
    context = StoredContext(store, "s")
    await context.append(user("one"))
    store.full = True
    with pytest.raises(StoreError, match="no space left"):
        await context.append(user("lost"))
    store.full = False
    await context.append(user("two"))
    assert [message.text for message in await context.get_history()] == ["one", "two"]
    assert [(entry.seq, entry.turn) for entry in await store.read("s")] == [(1, 1), (2, 2)]


async def test_a_session_that_another_writer_continued_is_continued_from_there() -> None:
    store = MemoryStore()
    one, other = StoredContext(store, "s"), StoredContext(store, "s")
    for n in range(3):
        await one.append(user(f"one {n}"))
        await other.append(user(f"other {n}"))
    assert [entry.seq for entry in await store.read("s")] == [1, 2, 3, 4, 5, 6]
    assert [entry.turn for entry in await store.read("s")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "kept",
    [
        b"",
        b"\x00\xff",
        b"[1, 2]",
        b'{"amplifier_context_compat_tokens": [1, -2]}',
        b'{"amplifier_context_compat_tokens": [1, 2, 3]}',
    ],
)
async def test_a_checkpoint_of_another_program_holds_no_token_counts(kept: bytes) -> None:
    store = MemoryStore()
    await store.save_checkpoint("s", 0, kept)
    assert await StoredContext(store, "s").get_context_tokens() == (0, 0)


async def test_a_large_history_does_not_block_the_event_loop() -> None:
    context = await MemoryContextStore.from_history(talk(10_000))
    beats = 0

    async def heart() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(heart())
    assert len(await context.get_history()) == 10_000
    beating.cancel()
    assert beats >= 5
