"""Sessions with thinking, in any order of operations: each request is judged as the provider of its model would.

An operation is a name and what it takes, so that a failing example is read, shrunk and replayed. A `Thinker` plays the
loop: it asks for a view, has it judged, answers with thinking that is sealed for this request, and runs tools.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from amplifier_context_core import ContextManager
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
from tests.laws.operations import Driver, Message, Operation
from tests.managers import ToolHost

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
PLACES = st.integers(1, 39)


def operations(models: Sequence[str], max_size: int = 14) -> st.SearchStrategy[list[Operation]]:
    """Turns, and what may happen between them."""
    turn = st.tuples(st.just("turn"), st.tuples(st.integers(0, 4), st.sampled_from(SHAPES), st.integers(1, 60)))
    texts = st.tuples(PLACES, st.sampled_from(["short", "other words"]))
    between = st.one_of(
        st.tuples(st.sampled_from(["pin", "unpin", "forget", "change", "remove"]), PLACES),
        st.tuples(st.sampled_from(["insert", "summary"]), texts),
        st.tuples(st.sampled_from(["compact", "interrupt", "resume", "explain", "echo", "hook"]), st.none()),
    )
    one = st.one_of(
        turn,
        turn,
        between,
        st.tuples(st.sampled_from(["system", "tools"]), st.integers(0, 2)),
        st.tuples(st.just("budget"), st.integers(0, 1)),
        st.tuples(st.just("model"), st.sampled_from(list(models))),
    )
    return st.lists(one, max_size=max_size)


@dataclass
class Thinker(Driver):
    """A session whose model thinks; each request is judged.

    Attributes:
        model: a key of `MODELS`.
    """

    model: str = "bound"

    def __post_init__(self) -> None:
        self.checkers: dict[type[ThinkingChecker], ThinkingChecker] = {}
        for _, _, checker in MODELS.values():
            self.checkers.setdefault(checker, checker())
        self.system, self.tools, self.budget = 0, 0, 0
        self.count = 0
        self.quiet = False  # nothing but the answer and its results came since the last request
        self.before: list[Message] = []
        super().__post_init__()

    def _new_manager(self) -> ContextManager:
        async def prompt() -> str:
            return f"You are agent {self.system}."

        manager = super()._new_manager()
        manager.requests.host = ToolHost(self._mounted)
        manager.requests.prompt.factory = prompt
        return manager

    def _mounted(self) -> dict[str, Any]:
        return {name: SimpleNamespace(description=name, input_schema={}) for name in self._tool_names()}

    def _tool_names(self) -> list[str]:
        return ["read", "bash", "search"][: self.tools + 1]

    async def run(self, first: list[Message], todo: Sequence[Operation]) -> None:
        """Carry out a session to its end."""
        shared_cache.clear()
        end: list[Operation] = [("turn", (1, "blocks", 3)), ("resume", None), ("turn", (1, "wire", 3))]
        try:
            for operation in [*todo, *end]:
                self.quiet &= operation[0] == "turn"
                await self.carry_out([operation])
        finally:
            await self.manager.close()

    # -- operations -------------------------------------------------------------------------------------------------

    async def _turn(self, argument: tuple[int, str, int]) -> None:
        rounds, shape, size = argument
        self.count += 1
        await self.manager.add_message(
            {"role": "user", "content": f"Do step {self.count} in src/a{self.count}.py. " + "word " * size}
        )
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

    async def _system(self, which: int) -> None:
        self.system = which

    async def _tools(self, which: int) -> None:
        self.tools = which

    async def _budget(self, which: int) -> None:
        self.budget = which

    async def _model(self, which: str) -> None:
        self.model = which

    async def _explain(self, _: None) -> None:
        await self.manager.explain()

    async def _hook(self, _: None) -> None:
        notice = {"role": "system", "content": f"Notice {self.count}.", "metadata": {"source": "hook"}}
        await self.manager.add_message(notice)


def _read(messages: list[Message]) -> list[Message]:
    """What a model reads of messages; a hint to the provider's cache may move."""
    return [{key: value for key, value in message.items() if key != "metadata"} for message in messages]
