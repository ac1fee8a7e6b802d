"""Laws of sessions: whatever happens between two requests, and wherever the history is kept.

A view shows each call once and the newest human message; nothing leaves it without a chapter, a clip or an event; the
first view after a resume is the last one before it, byte for byte. Thinking is judged as the provider of its model
would.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amplifier_context_core import ContextManager
from amplifier_context_core.stores import MemoryStore
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
from tests.messages import block, says, user
from tests.messages import call as openai_call
from tests.places import Place, parameters

from .operations import SESSIONS, Driver, Message, Operation, run

EXAMPLES = settings().max_examples  # see tests/conftest.py
BUDGETS = st.tuples(st.integers(150, 4_000), st.integers(60, 4_000))
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "on_interrupt": st.sampled_from(["keep", "discard", "repair"]),
        "cadence": st.sampled_from(["auto", "fixed"]),
        "auto_compact": st.booleans(),
        "json_tables": st.booleans(),
        "fewer_line_numbers": st.booleans(),
        "output_share": st.sampled_from([0.05, 0.5]),
    },
)


def call(*ids: str) -> Message:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": i, "tool": "t", "arguments": {}} for i in ids]}


def result(call_id: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": f"result {call_id}"}


def results(*ids: str) -> Message:
    return user([{"type": "tool_result", "tool_use_id": i, "content": f"late {i}"} for i in ids])


LONG = "Please fix src/loader/cache_core.py:41 and run tests/unit/test_loader.py."
JOINED_ROUNDS: tuple[list[Message], list[Operation]] = (
    [user("task"), call("a1", "a2"), result("a1"), call("b1", "b2"), result("b1")],
    [("ask", 0), ("add", [[user("The newest word."), results("a2", "b2")]])],
)

RETIRED = {"metadata": {"amplifier:instruction": {"disposition": "retired"}}}
ANSWERED_WITH_A_RETIRED_CALL: tuple[list[Message], list[Operation]] = (
    [user("task"), call("a") | RETIRED, says("A newer word.")],
    [("add", [[call("b") | {"content": "The newest step."}, results("a", "b")]])],
)

FORKED_AT_A_CHECKPOINT: tuple[list[Message], list[Operation]] = (
    [
        user(LONG),
        {"role": "function", "content": LONG},
        user(LONG),
        call("a", "b", "c"),
        *(result(one) | {"content": LONG} for one in "abc"),
        call("d"),
        *[user(LONG)] * 3,
    ],
    [("ask", 0), ("fork", 31)],
)

FORKED_TO_ONE_MESSAGE: tuple[list[Message], list[Operation]] = (
    FORKED_AT_A_CHECKPOINT[0][:1] + [says(LONG)] * 12,
    [("ask", 0), ("fork", 1)],
)

long = result("a") | {"content": LONG}
CUT_BEFORE_ANY_HUMAN: tuple[list[Message], list[Operation]] = (
    [user(LONG)],
    [
        ("edit", (0, [[long]])),
        ("add", [[openai_call("a", "a", "a"), *[long] * 2, long | {"content": LONG * 4}], [user(LONG)]]),
        ("interrupt", None),
        ("compact", None),
        ("change", 0),
    ],
)

FOLDED_AND_PINNED: tuple[list[Message], list[Operation]] = (
    [user("task"), call("a"), result("a"), *(says(f"Step {n}. " + "word " * 200) for n in range(8))],
    [("ask", 0), ("add", [[call("a"), result("a")]]), ("ask", 0), ("pin", 2), ("ask", 0)],
)


def hold(place: Place, name: str, budgets: tuple[int, int], config: dict[str, Any], session: Any) -> None:
    shared_cache.clear()
    run(Driver(place.store, place.session_id(name), budgets, config), session)


@given(BUDGETS, CONFIGS, SESSIONS)
@example((4_000, 4_000), {}, JOINED_ROUNDS)
@example((150, 60), {}, ANSWERED_WITH_A_RETIRED_CALL)
@example((1_000, 1_000), {}, FOLDED_AND_PINNED)
@example((150, 60), {}, FORKED_AT_A_CHECKPOINT)
@example((150, 60), {}, FORKED_TO_ONE_MESSAGE)
@example((150, 60), {}, CUT_BEFORE_ANY_HUMAN)
@settings(max_examples=10 * EXAMPLES)
def test_every_view_of_every_session_keeps_the_laws(
    budgets: tuple[int, int], config: dict[str, Any], session: tuple[list[Message], list[Operation]]
) -> None:
    hold(Place("memory", Path()), "s", budgets, config, session)


@pytest.mark.parametrize("backend", [backend for backend in parameters() if backend.values != ("memory",)])
def test_so_does_every_session_that_is_kept(backend: str, tmp_path: Path) -> None:
    place = Place(backend, tmp_path)
    number = iter(range(1_000_000))

    @given(BUDGETS, CONFIGS, SESSIONS)
    @settings(max_examples=min(EXAMPLES, 1_000))
    def law(budgets: tuple[int, int], config: dict[str, Any], session: tuple[list[Message], list[Operation]]) -> None:
        hold(place, f"s{next(number)}", budgets, config, session)

    law()


# -- thinking that is bound is shown only after the request that it answered, and between two edits nothing of it goes -
MODELS = {  # name of the provider and of the model, and the checker of its rule
    "bound": ("anthropic", "claude-opus-5-5", BoundThinkingChecker),
    "bound too": ("anthropic", "claude-fable-5-1", BoundThinkingChecker),
    "unknown": ("some_vendor", "new-model-1", BoundThinkingChecker),
    "required": ("anthropic", "claude-sonnet-4-5", RequiredThinkingChecker),
    "free": ("openai", "gpt-5.6", FreeThinkingChecker),
}
# Where the thinking of an answer is.
SHAPES = ("blocks", "wire", "wire only", "copy", "redacted", "none", "sealed calls")
PLACES = st.integers(1, 39)


def operations(models: Sequence[str]) -> st.SearchStrategy[list[Operation]]:
    """Turns, and what may happen between them."""
    turn = st.tuples(st.just("turn"), st.tuples(st.integers(0, 4), st.sampled_from(SHAPES), st.integers(1, 60)))
    texts = st.tuples(PLACES, st.sampled_from(["short", "other words"]))
    between = st.one_of(
        st.tuples(st.sampled_from(["pin", "unpin", "forget", "change", "remove"]), PLACES),
        st.tuples(st.sampled_from(["insert", "summary"]), texts),
        st.tuples(st.sampled_from(["compact", "interrupt", "resume", "explain", "echo", "hook"]), st.none()),
    )
    switch = st.one_of(
        st.tuples(st.sampled_from(["prompt", "tools"]), st.integers(0, 2)),
        st.tuples(st.just("budget"), st.integers(0, 1)),
        st.tuples(st.just("model"), st.sampled_from(list(models))),
    )
    return st.lists(st.one_of(turn, turn, between, switch), max_size=14)


@dataclass
class Thinker(Driver):
    """A loop whose model thinks: it asks for a view, has it judged, answers with thinking that is sealed for it.

    Attributes:
        model: a key of `MODELS`.
    """

    model: str = "bound"

    def __post_init__(self) -> None:
        self.checkers: dict[type[ThinkingChecker], ThinkingChecker] = {one: one() for *_, one in MODELS.values()}
        self.prompt, self.tools, self.budget = 0, 0, 0
        self.count = 0
        self.quiet = False  # nothing but the answer and its results came since the last request
        self.before: list[Message] = []
        super().__post_init__()

    def _new_manager(self) -> ContextManager:
        async def prompt() -> str:
            return f"You are agent {self.prompt}."

        manager = super()._new_manager()
        tools = {name: SimpleNamespace(description=name, input_schema={}) for name in ("read", "bash", "search")}
        manager.requests.host = ToolHost(lambda: {name: tools[name] for name in self._tool_names()})
        manager.requests.prompt.factory = prompt
        return manager

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

    async def _turn(self, argument: tuple[int, str, int]) -> None:
        rounds, shape, size = argument
        self.count += 1
        await self.manager.add_message(user(f"Do step {self.count} in src/a{self.count}.py. " + "word " * size))
        for number in range(rounds + 1):
            answer = await self._asked(shape, calls=number < rounds)
            for call in calls_of(answer):
                output = f"result of {call.id} " + f"line {self.count} of some output\n" * size
                await self.manager.add_message(result(call.id) | {"content": output})

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
        if self.quiet and self.before and self._checkpoint() is folded:
            # Between two edits, it begins with the one before and its answer, byte for byte, thinking included.
            shown = request[: len(self.before)]
            assert [seals_of(message) for message in shown] == [seals_of(message) for message in self.before]
            assert _read(shown[:-1]) == _read(self.before[:-1]), "the prefix changed without an edit"
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

    def _answer(self, shape: str, *, calls: bool) -> Message:
        number = self.count
        seal = {"signature": f"sig-{number}"}
        thought = {"type": "thinking", "thinking": f"hm {number}", **seal}
        if shape == "redacted":
            thought = {"type": "redacted_thinking", "data": f"sig-{number}"}
        words = block(f"I do part {number} in src/b{number}.py.")
        names = [f"call-{number}-{index}" for index in range(number % 2 + 1)] if calls else []
        uses = [{"type": "tool_use", "id": name, "name": "read", "input": {"n": number}} for name in names]
        if shape == "sealed calls":
            return says([words, *(use | (seal if use is uses[0] else {}) for use in uses)])
        message = says(words["text"] if shape in ("wire only", "none") else [thought, words])
        if names:
            message["tool_calls"] = [{"id": name, "tool": "read", "arguments": {"n": number}} for name in names]
        if shape in ("wire", "wire only"):
            message["metadata"] = {"anthropic": {"wire_content": [thought, words, *uses], "stop": "end"}}
        if shape == "copy":
            message["thinking_block"] = dict(thought)
        return message

    async def _prompt(self, which: int) -> None:
        self.prompt = which

    async def _tools(self, which: int) -> None:
        self.tools = which

    async def _budget(self, which: int) -> None:
        self.budget = which


def _read(messages: list[Message]) -> list[Message]:
    """What a model reads of messages; a hint to the provider's cache may move."""
    return [{key: value for key, value in message.items() if key != "metadata"} for message in messages]


TWO_BUDGETS = st.tuples(st.integers(400, 6_000), st.integers(200, 6_000))
TAKEN_OVER: list[Operation] = [  # the second budget gets the checkpoint of the first one
    *(("budget", 1), ("turn", (0, "blocks", 1)), ("budget", 0), ("turn", (4, "blocks", 12)), ("budget", 1)),
]
MODES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional={"auto_compact": st.booleans()})


def think(budgets: tuple[int, int], model: str, todo: list[Operation], config: dict[str, Any] | None = None) -> None:
    store = MemoryStore()
    run(Thinker(lambda: store, "s", budgets, config or {}, model=model), ([], todo))


@pytest.mark.parametrize("model", ["bound", "unknown", "required", "free"])
def test_no_provider_rejects_the_thinking_of_a_session_with_one_model(model: str) -> None:
    @given(TWO_BUDGETS, MODES, operations([model]))
    @example((624, 740), {}, TAKEN_OVER)
    def law(budgets: tuple[int, int], config: dict[str, Any], todo: list[Operation]) -> None:
        think(budgets, model, todo, config)

    law()


@given(TWO_BUDGETS, st.sampled_from(["bound", "bound too", "free"]), operations(["bound", "bound too", "free"]))
def test_nor_of_a_session_that_changes_between_models(
    budgets: tuple[int, int], model: str, todo: list[Operation]
) -> None:
    think(budgets, model, todo)
