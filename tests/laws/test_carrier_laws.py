"""Law of carriers: the newest one that the model reads is first, as it was stored, without what it replaces beside it.

A model that reads none gets the originals, and no carrier. What no carrier replaces is not lost. All that through any
number of compactions, resumes, forks and changes of the model.
"""

import asyncio
import re
from types import SimpleNamespace
from typing import Any

from amplifier_core.llm_errors import ContextLengthError
from hypothesis import given, settings
from hypothesis import strategies as st

from amplifier_context_core.stores import MemoryStore
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import check_request
from tests.managers import feed
from tests.messages import carrier, result, says, user

from .managers import counting
from .operations import Driver, Message, Operation

MODELS = {
    "anthropic": ("anthropic", "claude-opus-5"),
    "other anthropic": ("anthropic", "claude-opus-4-8"),
    "openai": ("openai", "gpt-5.6"),
    "gemini": ("gemini", "gemini-2.5-pro"),
}
EXAMPLES = settings().max_examples  # see tests/conftest.py
LABEL = carrier("")["content"]
OTHERS = ["resume", "child", "compact", "hook", "pin", "late", "explain", "retain"]
TURNS = st.tuples(st.just("turn"), st.tuples(st.integers(0, 3), st.integers(1, 50)))
MAKERS = st.sampled_from(["anthropic", "other anthropic", "openai"])
STEPS = st.one_of(
    TURNS,
    TURNS,
    st.tuples(st.just("carrier"), st.tuples(MAKERS, st.integers(1, 60))),
    st.tuples(st.just("model"), st.sampled_from(sorted(MODELS))),
    st.tuples(st.sampled_from(OTHERS), st.integers(1, 30)),
)


class Session(Driver):
    """A loop whose provider sometimes compacts; each request is judged."""

    def __init__(self, budget: int) -> None:
        self.store = MemoryStore()
        self.budget = budget
        self.model = "anthropic"
        self.count = 0
        self.carriers: list[tuple[int, str, Message]] = []  # number of the last message before it, model, message
        self.late: list[str] = []  # calls whose results come later
        super().__init__(lambda: self.store, "s", (budget, budget), {"max_tokens": budget})

    def _text(self, size: int) -> str:
        self.count += 1
        return f"item {self.count};" + " word" * size

    def _provider(self) -> Any:
        return SimpleNamespace(**dict(zip(("name", "default_model"), MODELS[self.model], strict=True)))

    async def _turn(self, argument: tuple[int, int]) -> None:
        rounds, size = argument
        await self.manager.add_message(user(self._text(size)))
        for number in range(rounds + 1):
            await self._requested()
            message = says(self._text(size))
            called = f"c-{self.count}"
            more = [result(called, self._text(size * 3))] if number < rounds else []
            if more:
                message["tool_calls"] = [{"id": called, "tool": "read", "arguments": {}}]
            await feed(self.manager, [message, *more])

    async def _late(self, size: int) -> None:
        """A call whose result comes after what follows."""
        if self.late:
            await self.manager.add_message(result(self.late.pop(), self._text(size)))
            return
        message = says(self._text(size))
        self.late.append(f"c-{self.count}")
        await self.manager.add_message(
            message | {"tool_calls": [{"id": self.late[-1], "tool": "read", "arguments": {}}]}
        )

    async def _carrier(self, argument: tuple[str, int]) -> None:
        model, size = argument
        provider, name = MODELS[model]
        message = carrier(f"compaction {len(self.carriers)};" + " word" * size, provider, name)
        await self.manager.add_message(message)
        self.carriers.append((self.count, model, message))

    async def _pin(self, place: int) -> None:
        await self.manager.load()
        entry = self.manager.snapshot().find(place)
        if entry is not None and entry.role == "user":
            await self.manager.pin(entry.mark)

    async def _retain(self, place: int) -> None:
        """A request that must have what a person wrote, although a carrier may replace it."""
        await self.manager.load()
        people = [entry.message["content"] for entry in self.manager.snapshot() if entry.human]
        if not people:
            return
        wanted = people[place % len(people)]
        given = {"retain_contents": [wanted], "provider": self._provider()}
        try:
            if place % 2:
                view = await self.manager.request_retention(**given)
            else:
                measured = await self.manager.measured_request_view(**given, count_view=counting())
                view = measured["base_view"]
                assert await measured["transaction"].commit()
        except ContextLengthError:
            return  # too much for the budget
        assert not check_request(view)
        assert [message["content"] for message in view].count(wanted) == 1
        readable = [message for _, maker, message in self.carriers if maker == self.model]
        assert not readable or next(message for message in view if message["role"] != "system") == readable[-1]

    async def _child(self, _: Any) -> None:
        """It begins with its parent's history, as hosts make it."""
        messages = await self.manager.get_messages()
        await self.manager.close()
        self.store = MemoryStore()
        self.manager = self._new_manager()
        await self.manager.set_messages(messages)

    async def _requested(self) -> None:
        view = await self.manager.get_messages_for_request(None, self._provider())
        assert not check_request(view)
        await self.manager.load()
        people = [entry.message["content"].split()[1] for entry in self.manager.snapshot() if entry.human]
        assert any(f"item {people[-1]}" in str(message["content"]) for message in view) or self._is_carried(people[-1])
        conversation = [message for message in view if message["role"] != "system"]
        shown = [message for message in view if _state(message)]
        readable = [(count, message) for count, maker, message in self.carriers if maker == self.model]
        self._nothing_lost(view, readable[-1][1] if readable else None)
        if not readable:
            assert not shown
            assert not self.carriers or self.carriers[0][0] == 0 or all(m["content"] != LABEL for m in view)
            return
        before, carrier = readable[-1]
        assert shown == [carrier] == conversation[:1]
        assert all("compaction " not in str(message["content"]) for message in conversation[1:])
        (seq,) = [one.seq for one in self.manager.snapshot() if _state(one.message) == _state(carrier)]
        assert all(mark > seq for message in conversation for mark in _marks(message)[:1])
        self._nothing_beside(conversation[1:], before)

    def _nothing_lost(self, view: list[Message], carrier: Message | None) -> None:
        """Every message that no carrier replaces is there, a result perhaps cleared, or its round is in a chapter."""
        if self.budget < 1_000:
            return  # the oldest chapters may have to go
        history = list(self.manager.snapshot())
        states = [_state(entry.message) for entry in history]
        begins = 0 if carrier is None else states.index(_state(carrier))
        answered = {message.get("tool_call_id") for message in view}
        shown = {number for message in view for number in _numbers(message)}
        folded = {seq for message in view for seq in _marks(message)}
        callers = {call: entry.seq for entry in history for call in entry.call_ids}
        for entry in history[begins:]:
            heads = {entry.seq, *(callers.get(call, 0) for call in entry.answered_ids)}
            if not answered.intersection(entry.answered_ids) and not heads & folded:
                assert shown.issuperset(_numbers(entry.message)), f"{entry.mark} is lost"

    def _is_carried(self, number: str) -> bool:
        """True if the newest carrier that the model reads came after this message."""
        return any(maker == self.model and count >= int(number.strip(";")) for count, maker, _ in self.carriers)

    def _nothing_beside(self, messages: list[Message], before: int) -> None:
        """Messages from before the carrier are there only as calls whose results came after it."""
        answered: dict[str, list[int]] = {}
        for message in messages:
            if message["role"] == "tool":
                answered.setdefault(message["tool_call_id"], []).extend(_numbers(message))
        for message in messages:
            numbers = _numbers(message)
            if "chapter" in message.get("metadata", {}) or not numbers or max(numbers) > before:
                continue
            calls = [call["id"] for call in message.get("tool_calls", ())]
            assert any(number > before for call in calls for number in answered.get(call, ())), message


def _numbers(message: Message) -> list[int]:
    """The number of a message's text, of a late result that is quoted too."""
    text = message["content"] if isinstance(message["content"], str) else ""
    found = re.search(r"item (\d+);", text) if text.startswith(("item ", "<quoted_output>")) else None
    return [int(found[1])] if found else []


def _marks(message: Message) -> range:
    """The marks that a chapter covers; none for another message."""
    if "chapter" not in message.get("metadata", {}):
        return range(0)
    marks = [int(found) for found in re.findall(r"\bm(\d+)", message["content"].split("\n")[1])]
    return range(marks[0], marks[-1] + 1)


def _state(message: Message) -> Any:
    """What a carrier holds; None for another message."""
    metadata = message.get("metadata", {})
    return next((metadata[key] for key in metadata if ":compaction" in key), None)


@given(st.integers(500, 5_000), st.lists(STEPS, max_size=16))
@settings(max_examples=3 * EXAMPLES)
def test_the_newest_readable_carrier_is_first_and_unchanged_with_nothing_beside_it(
    budget: int, steps: list[Operation]
) -> None:
    async def run() -> None:
        session = Session(budget)
        await session.carry_out([*steps, ("turn", (1, 3)), ("resume", None), ("turn", (0, 3))])
        await session.manager.close()

    shared_cache.clear()
    asyncio.run(run())
