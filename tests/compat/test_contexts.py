"""Context stores: one contract for all of them, and what is peculiar to those that use a store of the core."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, MemoryStore, Store, open_store
from amplifier_context_core.compat import (
    ContextStore,
    ImageBlock,
    MemoryContextStore,
    Message,
    StoredContext,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from amplifier_context_core.errors import ConfigError, InvalidMessage, StoreError
from amplifier_context_testing import checked
from tests.compat.samples import MESSAGES, PNG, answers, calls, dicts, says, talk, user
from tests.laws.histories import conversations, flat
from tests.messages import SIGNED

TYPED = [
    user("Look at a."),
    calls("a"),
    answers("a"),
    Message("user", [ImageBlock("image/png", PNG)]),
    Message("assistant", [TextBlock("one"), TextBlock("two")], extra={"metadata": {"model": "m"}}),
]
TOKENS = b'{"amplifier_context_compat_tokens": %s}'
WIRE: list[dict[str, Any]] = [
    {"role": "system", "content": "Be careful.", "unknown": {"kept": [1]}},
    {"role": "user", "content": "hi", "metadata": {"timestamp": "2026-01-01T00:00:00.000+00:00"}},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "tool": "read", "arguments": {}}]},
    {"role": "tool", "tool_call_id": "a", "name": "read", "content": "out"},
    {"role": "assistant", "content": [SIGNED]},
]


class Listed(ContextStore):
    """A minimal subclass: the five methods, and nothing else."""

    session_id = "mine"

    def __init__(self, session_id: str = "mine") -> None:
        self.session_id = session_id
        self._messages: list[dict[str, Any]] = []

    async def append(self, message: Message | Mapping[str, Any]) -> None:
        made = message if isinstance(message, Message) else Message.from_dict(message)
        self._messages.append(made.to_dict())

    async def get_history(self) -> list[Message]:
        return [Message.from_dict(message) for message in self._messages]

    async def clear(self) -> None:
        self._messages.clear()

    async def fork(self) -> ContextStore:
        return await Listed.from_context(self, session_id=f"{self.session_id}-fork")


class ContextStoreContract:
    @pytest.fixture
    @abstractmethod
    def context(self) -> ContextStore:
        """A new conversation."""

    async def test_changing_what_went_in_or_came_out_changes_nothing_kept(self, context: ContextStore) -> None:
        raw = {"role": "user", "content": [{"type": "text", "text": "x"}], "metadata": {"a": [1]}}
        typed = calls("a")
        await context.append(raw)
        await context.append(typed)
        raw["content"].clear()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        typed.content.clear()
        for message in await context.get_history():
            message.content.clear()
            message.extra.clear()
        use = (await context.get_history())[1].content[0]
        assert isinstance(use, ToolUseBlock)
        use.input["path"] = "changed"
        assert await context.get_history() == [Message("user", "x", extra={"metadata": {"a": [1]}}), calls("a")]

    @pytest.mark.parametrize("bad", [None, {"role": "robot"}, {"role": "tool", "content": "x"}])
    async def test_a_malformed_message_is_refused_and_nothing_stored(self, context: ContextStore, bad: Any) -> None:
        await context.append(user())
        with pytest.raises(InvalidMessage):
            await context.append(bad)
        assert await context.get_history() == [user()]

    async def test_clearing_forgets_the_messages_and_keeps_the_id(self, context: ContextStore) -> None:
        before = context.session_id
        await context.clear()
        await context.extend(TYPED)
        assert await context.search("Look")
        await context.clear()
        assert await context.get_history() == await context.search("Look") == []
        await context.append(says())
        assert await context.get_history() == [says()]
        assert context.session_id == before

    async def test_a_fork_goes_its_own_way_under_an_id_of_its_own(self, context: ContextStore) -> None:
        await context.extend([*TYPED, *WIRE])
        await context.set_context_tokens(30, 7)
        fork = await context.fork()
        assert fork.session_id != context.session_id
        assert dicts(await fork.get_history()) == dicts(await context.get_history())
        assert await fork.get_context_tokens() == (30, 7)
        await fork.append(says("in the fork"))
        await context.append(says("in the original"))
        await context.append(says("again"))
        await fork.set_context_tokens(1, 1)
        assert (await fork.get_history())[len(TYPED + WIRE) :] == [says("in the fork")]
        assert (await context.get_history())[len(TYPED + WIRE) :] == [says("in the original"), says("again")]
        assert await context.get_context_tokens() == (30, 7)
        await context.clear()
        assert len(await fork.get_history()) == len(TYPED + WIRE) + 1
        await context.close()
        await fork.close()

    async def test_a_search_returns_the_best_messages_first_as_they_were_given(self, context: ContextStore) -> None:
        answer = {"role": "assistant", "content": "The parser is in src/parser.py.", "model": "m"}
        await context.extend([user("Where is the parser?"), *talk(4), answers("p", content="class Parser: pass")])
        await context.append(answer)
        assert dicts(await context.search("parser", 1)) == [answer]
        assert answers("p", content="class Parser: pass") in await context.search('"class Parser"')
        assert await context.search("nowhere_to_be_found") == await context.search("parser", 0) == []

    @pytest.mark.parametrize("count", [-1, True])
    async def test_tokens_that_are_no_count_are_refused(self, context: ContextStore, count: Any) -> None:
        with pytest.raises(ConfigError, match=r"^input_tokens.*whole number"):
            await context.set_context_tokens(count, 0)
        assert await context.get_context_tokens() == (0, 0)


class TestInMemoryAndASubclassOfFiveMethods(ContextStoreContract):
    @pytest.fixture(params=[MemoryContextStore, Listed])
    def context(self, request: pytest.FixtureRequest) -> ContextStore:
        return request.param()


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
        second, third = StoredContext(store, "s"), StoredContext(store, "s")
        assert await second.get_context_tokens() == await third.get_context_tokens() == (12, 34)
        await second.set_context_tokens(12, 35)
        assert await third.get_context_tokens() == (12, 35)
        await second.append(user("more"))
        assert len(await second.get_history()) == len(TYPED + WIRE) + 1
        assert await second.get_context_tokens() == (12, 35)
        await second.clear()
        assert await third.get_context_tokens() == (0, 0)

    async def test_of_several_messages_all_are_stored_or_none(self, store: Store) -> None:
        context = StoredContext(store, "s")
        with pytest.raises(InvalidMessage, match=r"^messages\[2\]\.role: is missing"):
            await context.extend([user(), says(), {"content": "x"}])
        assert await context.get_history() == []
        assert await store.sessions() == []

    async def test_of_no_messages_nothing_is_made_and_a_session_is_not_begun_again(self, store: Store) -> None:
        await (await StoredContext.from_history([], store=store, session_id="s")).clear()
        assert await store.sessions() == []
        await StoredContext.from_history(TYPED, store=store, session_id="s")
        with pytest.raises(StoreError, match="'s' has a history already"):
            await StoredContext.from_history([user()], store=store, session_id="s")
        assert await StoredContext(store, "s").get_history() == TYPED

    async def test_a_managers_checkpoint_is_left_and_tokens_last_as_long_as_the_object(self, store: Store) -> None:
        context = await StoredContext.from_history(TYPED, store=store, session_id="s")
        await store.save_checkpoint("s", 2, b'{"version": 1}')
        await context.set_context_tokens(12, 34)
        assert await store.load_checkpoint("s") == b'{"version": 1}'
        assert await context.get_context_tokens() == (12, 34)
        assert await (await context.fork()).get_context_tokens() == (12, 34)
        assert await StoredContext(store, "s").get_context_tokens() == (0, 0)

    async def test_a_session_begun_here_is_gone_on_with_by_a_manager_and_here_again(self, store: Store) -> None:
        result = ToolResultBlock("a", [TextBlock("out"), ImageBlock("image/png", PNG)])
        history = [*TYPED[:2], Message("user", [result]), *TYPED[3:], user("Well?")]
        await (await StoredContext.from_history(history, store=store, session_id="s")).close()
        manager = ContextManager(store=store, session_id="s")
        view = checked(await manager.get_messages_for_request())
        assert [message["role"] for message in view] == ["user", "assistant", "tool", "user", "assistant", "user"]
        assert str(view).count("image/png") == 2
        await manager.add_message({"role": "assistant", "content": "Done."})
        await manager.close()
        assert (await StoredContext(store, "s").get_history())[-1].text == "Done."

    # A store serves all examples; each has a session of its own.
    @settings(suppress_health_check=[*HealthCheck])
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


async def test_a_session_that_another_writer_continued_is_continued_from_there() -> None:
    store = MemoryStore()
    one, other = StoredContext(store, "s"), StoredContext(store, "s")
    for n in range(3):
        await one.append(user(f"one {n}"))
        await other.append(user(f"other {n}"))
    assert [(entry.seq, entry.turn) for entry in await store.read("s")] == [(n, n) for n in range(1, 7)]


@pytest.mark.parametrize("kept", [b"\x00\xff", b"[1, 2]", TOKENS % b"[1, -2]", TOKENS % b"[1, 2, 3]"])
async def test_a_checkpoint_of_another_program_holds_no_token_counts(kept: bytes) -> None:
    store = MemoryStore()
    await store.save_checkpoint("s", 0, kept)
    assert await StoredContext(store, "s").get_context_tokens() == (0, 0)
    await store.save_checkpoint("copy", 0, b"")  # as the command `copy` does
    await StoredContext(store, "copy").set_context_tokens(12, 34)
    assert await StoredContext(store, "copy").get_context_tokens() == (12, 34)
