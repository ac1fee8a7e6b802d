"""What every context store of these tests promises."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import pytest

from amplifier_context_core import ConfigError, InvalidMessage
from amplifier_context_core.compat import (
    ContextStore,
    ImageBlock,
    MemoryContextStore,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from tests.messages import SIGNED

from .samples import PNG, answers, calls, dicts, says, talk, user

TYPED = [
    user("Look at a."),
    calls("a"),
    answers("a"),
    Message("user", [ImageBlock("image/png", PNG)]),
    Message("assistant", [TextBlock("one"), TextBlock("two")], extra={"metadata": {"model": "m"}}),
]
WIRE: list[dict[str, Any]] = [
    {"role": "system", "content": "Be careful.", "unknown": {"kept": [1]}},
    {"role": "user", "content": "hi", "metadata": {"timestamp": "2026-01-01T00:00:00.000+00:00"}},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "tool": "read", "arguments": {}}]},
    {"role": "tool", "tool_call_id": "a", "name": "read", "content": "out"},
    {"role": "assistant", "content": [SIGNED]},
]


class Listed(ContextStore):
    """A minimal subclass: the five methods, and nothing else."""

    def __init__(self, session_id: str = "mine") -> None:
        self._id = session_id
        self._messages: list[dict[str, Any]] = []

    @property
    def session_id(self) -> str:
        return self._id

    async def append(self, message: Message | Mapping[str, Any]) -> None:
        made = message if isinstance(message, Message) else Message.from_dict(message)
        self._messages.append(made.to_dict())

    async def get_history(self) -> list[Message]:
        return [Message.from_dict(message) for message in self._messages]

    async def clear(self) -> None:
        self._messages.clear()

    async def fork(self) -> Listed:
        return await Listed.from_context(self, session_id=f"{self._id}-fork")


class ContextStoreContract:
    """The contract of every context store."""

    @pytest.fixture
    @abstractmethod
    def context(self) -> ContextStore:
        """A new conversation."""

    async def test_dicts_are_returned_typed_and_convert_to_the_same_dicts(self, context: ContextStore) -> None:
        for message in WIRE:
            await context.append(message)
        history = await context.get_history()
        assert [message.role for message in history] == ["system", "user", "assistant", "user", "assistant"]
        assert history[2].content == [ToolUseBlock("a", "read", {})]
        assert history[3].content == [ToolResultBlock("a", "out")]
        assert dicts(history) == WIRE

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
        history = await context.get_history()
        assert history[0] == Message("user", "x", extra={"metadata": {"a": [1]}})
        assert history[1] == calls("a")

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
        await context.clear()
        assert await context.get_history() == []
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
        await context.extend(
            [user("Where is the parser?"), *talk(4), calls("parser"), answers("parser", content="class Parser: pass")]
        )
        await context.append({"role": "assistant", "content": "The parser is in src/parser.py.", "model": "m"})
        found = await context.search("parser.py", 2)
        assert [message.to_dict() for message in found[:1]] == [
            {"role": "assistant", "content": "The parser is in src/parser.py.", "model": "m"}
        ]
        assert len(found) == 2
        assert answers("parser", content="class Parser: pass") in await context.search('"class Parser"')
        assert await context.search("nowhere_to_be_found") == []
        assert await context.search("parser", 0) == []
        assert await context.search("") == []

    async def test_what_was_cleared_is_not_found(self, context: ContextStore) -> None:
        await context.append(user("the secret word"))
        await context.search("secret")
        await context.clear()
        assert await context.search("secret") == []

    @pytest.mark.parametrize(
        ("tokens", "name"),
        [
            ((-1, 0), "input_tokens"),
            ((True, 0), "input_tokens"),
        ],
    )
    async def test_tokens_that_are_no_count_are_refused(self, context: ContextStore, tokens: Any, name: str) -> None:
        with pytest.raises(ConfigError, match=f"^{name}.*whole number"):
            await context.set_context_tokens(*tokens)
        assert await context.get_context_tokens() == (0, 0)

    async def test_closing_twice_is_a_no_op_and_a_closed_conversation_can_be_gone_on_with(
        self, context: ContextStore
    ) -> None:
        await context.append(user())
        await context.close()
        await context.close()
        await context.append(says())
        assert await context.get_history() == [user(), says()]

    async def test_another_context_is_made_from_this_one(self, context: ContextStore) -> None:
        await context.extend([*TYPED, *WIRE])
        await context.set_context_tokens(3, 4)
        other = await MemoryContextStore.from_context(context)
        assert dicts(await other.get_history()) == dicts(await context.get_history())
        assert await other.get_context_tokens() == (3, 4)
        assert other.session_id != context.session_id
        await other.clear()
        assert len(await context.get_history()) == len(TYPED + WIRE)
