"""Sessions with thinking, in any order of operations: each request is judged as the provider of its model would.

An operation is a name and what it takes, so that a failing example is read, shrunk and replayed. A `Thinker` plays the
loop: it asks for a view, has it judged, answers with thinking that is sealed for this request, and runs tools.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from amplifier_context_core import ContextManager, PinRefused, Plugins, load_config
from amplifier_context_core.stores import Store
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import check_request
from amplifier_context_testing.checks.message_shapes import calls_of
from amplifier_context_testing.checks.thinking_checker import (
    BoundThinkingChecker,
    FreeThinkingChecker,
    RequiredThinkingChecker,
    ThinkingChecker,
    seals_of,
)
from tests.managers import ToolHost

Message = dict[str, Any]
Operation = tuple[str, Any]

MODELS = {  # name of the provider and of the model, and the checker of its rule
    "bound": ("anthropic", "claude-opus-5-5", BoundThinkingChecker),
    "bound too": ("anthropic", "claude-fable-5-1", BoundThinkingChecker),
    "unknown": ("some_vendor", "new-model-1", BoundThinkingChecker),
    "required": ("anthropic", "claude-sonnet-4-5", RequiredThinkingChecker),
    "free": ("openai", "gpt-5.6", FreeThinkingChecker),
}
SHAPES = (
    "blocks",
    "wire",
    "wire only",
    "copy",
    "redacted",
    "none",
    "sealed calls",
)  # where the thinking of an answer is
PLACES = range(1, 40)
CHANGES = ("pin", "unpin", "compact", "forget", "edit", "summary", "interrupt", "resume", "explain", "replay", "hook")


def operations(models: Sequence[str], max_size: int = 14) -> st.SearchStrategy[list[Operation]]:
    """Turns, and what may happen between them."""
    turn = st.tuples(st.just("turn"), st.tuples(st.integers(0, 4), st.sampled_from(SHAPES), st.integers(1, 60)))
    one = st.one_of(
        turn,
        turn,
        st.tuples(st.just("change"), st.tuples(st.sampled_from(CHANGES), st.sampled_from(PLACES))),
        st.tuples(st.just("system"), st.integers(0, 2)),
        st.tuples(st.just("tools"), st.integers(0, 2)),
        st.tuples(st.just("budget"), st.integers(0, 1)),
        st.tuples(st.just("model"), st.sampled_from(list(models))),
    )
    return st.lists(one, max_size=max_size)


@dataclass
class Thinker:
    """A session whose model thinks; each request is judged.

    Attributes:
        store: keeps the session.
        budgets: tokens of the requests, by number.
        model: a key of `MODELS`.
        config: settings.
    """

    store: Store
    budgets: tuple[int, int]
    model: str = "bound"
    config: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.checkers: dict[type[ThinkingChecker], ThinkingChecker] = {}
        for _, _, checker in MODELS.values():
            self.checkers.setdefault(checker, checker())
        self.system, self.tools, self.budget = 0, 0, 0
        self.count = 0
        self.quiet = False  # nothing but the answer and its results came since the last request
        self.before: list[Message] = []
        self.manager = self._new_manager()

    def _new_manager(self) -> ContextManager:
        settings = load_config({"token_counter": "heuristic", **self.config})
        manager = ContextManager(settings, session_id="s", store=self.store, plugins=Plugins())
        manager.requests.host = ToolHost(self._mounted)
        return manager

    def _mounted(self) -> dict[str, Any]:
        return {name: SimpleNamespace(description=name, input_schema={}) for name in self._tool_names()}

    def _tool_names(self) -> list[str]:
        return ["read", "bash", "search"][: self.tools + 1]

    async def run(self, todo: Sequence[Operation]) -> None:
        """Carry out a session to its end."""
        shared_cache.clear()
        try:
            await self._prompt()
            for name, argument in [
                *todo,
                ("turn", (1, "blocks", 3)),
                ("change", ("resume", 1)),
                ("turn", (1, "wire", 3)),
            ]:
                await getattr(self, f"_{name}")(argument)
        finally:
            await self.manager.close()

    # -- operations -------------------------------------------------------------------------------------------------

    async def _prompt(self) -> None:
        async def factory() -> str:
            return f"You are agent {self.system}."

        await self.manager.set_system_prompt_factory(factory)

    async def _turn(self, argument: tuple[int, str, int]) -> None:
        rounds, shape, size = argument
        self.count += 1
        await self._add({"role": "user", "content": f"Do step {self.count} in src/a{self.count}.py. " + "word " * size})
        for number in range(rounds + 1):
            answer = await self._asked(shape, calls=number < rounds)
            for call in calls_of(answer):
                output = f"result of {call.id} " + f"line {self.count} of some output\n" * size
                await self.manager.add_message({"role": "tool", "tool_call_id": call.id, "content": output})

    async def _asked(self, shape: str, *, calls: bool) -> Message:
        """One request and its answer; return the answer."""
        provider, model, checker = MODELS[self.model]
        folded = self._checkpoint()
        request = await self.manager.get_messages_for_request(
            self.budgets[self.budget], SimpleNamespace(name=provider, default_model=model)
        )
        tools = self._tool_names()
        broken = [*check_request(request), *self.checkers[checker].check(request, tools)]
        assert not broken, f"{len(broken)} rules broken: {broken[:3]}"
        self._newest_is_kept(request, compacted=self._checkpoint() is not folded)
        self.count += 1
        answer = self._answer(shape, calls=calls)
        for each in self.checkers.values():
            each.answered(request, answer, tools)
        await self.manager.add_message(copy.deepcopy(answer))
        self.before, self.quiet = [*request, answer], True
        return answer

    def _checkpoint(self) -> Any:
        """Checkpoint of the newest request; one that a compaction for the other budget made may be taken over."""
        sent = self.manager.compactor.last_sent
        return sent.view.checkpoint if sent else None

    def _newest_is_kept(self, request: list[Message], *, compacted: bool) -> None:
        """Between two edits, a request begins with the one before and its answer, byte for byte, thinking included."""
        if self.quiet and not compacted and self.before:
            shown = request[: len(self.before)]
            assert [seals_of(message) for message in shown] == [seals_of(message) for message in self.before]
            assert _read(shown[:-1]) == _read(self.before[:-1]), "the prefix changed without an edit"

    def _answer(self, shape: str, *, calls: bool) -> Message:
        number = self.count
        thought = {"type": "thinking", "thinking": f"hm {number}", "signature": f"sig-{number}"}
        if shape == "redacted":
            thought = {"type": "redacted_thinking", "data": f"sig-{number}"}
        words = {"type": "text", "text": f"I do part {number} in src/b{number}.py."}
        names = [f"call-{number}-{index}" for index in range(number % 2 + 1)] if calls else []
        uses = [{"type": "tool_use", "id": name, "name": "read", "input": {"n": number}} for name in names]
        message: Message = {"role": "assistant", "content": [thought, words]}
        if names:
            message["tool_calls"] = [{"id": name, "tool": "read", "arguments": {"n": number}} for name in names]
        if shape in ("wire", "wire only"):
            message["metadata"] = {"anthropic": {"wire_content": [thought, words, *uses], "stop": "end"}}
        if shape == "wire only":
            message["content"] = words["text"]
        if shape == "copy":
            message["thinking_block"] = dict(thought)
        if shape == "none":
            message["content"] = words["text"]
        if shape == "sealed calls":
            uses = [{**use, **({} if index else {"signature": f"sig-{number}"})} for index, use in enumerate(uses)]
            message = {"role": "assistant", "content": [words, *uses]}
        return message

    async def _add(self, message: Message) -> None:
        await self.manager.add_message(message)

    async def _system(self, which: int) -> None:
        self.quiet, self.system = False, which

    async def _tools(self, which: int) -> None:
        self.quiet, self.tools = False, which

    async def _budget(self, which: int) -> None:
        self.quiet, self.budget = False, which

    async def _model(self, which: str) -> None:
        self.quiet, self.model = False, which

    async def _change(self, argument: tuple[str, int]) -> None:
        name, place = argument
        self.quiet = False
        await getattr(self, f"_do_{name}")(place)

    async def _do_pin(self, place: int) -> None:
        try:
            await self.manager.pin(f"m{place}")
        except PinRefused:
            return

    async def _do_unpin(self, place: int) -> None:
        try:
            await self.manager.pin(f"m{place}", pinned=False)
        except PinRefused:
            return

    async def _do_compact(self, place: int) -> None:
        await self.manager.compact()

    async def _do_forget(self, place: int) -> None:
        await self.manager.forget([f"m{place}"])

    async def _do_edit(self, place: int) -> None:
        messages = await self.manager.get_messages()
        if not messages:
            return
        index = place % len(messages)
        if place % 3 == 0:
            del messages[index]
        elif place % 3 == 1:
            messages[index] = {"role": "user", "content": f"edited {place}"}
        else:
            messages.insert(index, {"role": "user", "content": f"inserted {place}"})
        await self.manager.set_messages(messages)

    async def _do_summary(self, place: int) -> None:
        await self.manager.load()
        entry = self.manager.snapshot().find(place)
        if entry and entry.answered_ids:
            await self.manager.compact_summary(entry.answered_ids[0], f"short form {place}")

    async def _do_interrupt(self, place: int) -> None:
        await self.manager.interrupt()

    async def _do_explain(self, place: int) -> None:
        await self.manager.explain()

    async def _do_replay(self, place: int) -> None:
        await self.manager.set_messages(await self.manager.get_messages())

    async def _do_hook(self, place: int) -> None:
        await self._add({"role": "system", "content": f"Notice {place}.", "metadata": {"source": "hook"}})

    async def _do_resume(self, place: int) -> None:
        await self.manager.close()
        self.manager = self._new_manager()
        await self._prompt()


def _read(messages: list[Message]) -> list[Message]:
    """What a model reads of messages; a hint to the provider's cache may move."""
    return [{key: value for key, value in message.items() if key != "metadata"} for message in messages]


def run(thinker: Thinker, todo: Sequence[Operation]) -> None:
    """Carry out a session."""
    asyncio.run(thinker.run(todo))
