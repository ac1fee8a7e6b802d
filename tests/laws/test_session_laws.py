"""Laws of sessions: whatever happens between two requests, and wherever the history is kept.

A view shows each call once and the newest human message; nothing leaves it without a chapter, a clip or an event; the
first view after a resume is the last one before it, byte for byte.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amplifier_context_core.stores import MemoryStore
from amplifier_context_core.view import shared_cache
from tests.messages import call as openai_call
from tests.messages import says, user
from tests.places import Place, parameters

from .operations import SESSIONS, Driver, Message, Operation, run
from .thinking_sessions import Thinker, operations

SOAKING = settings().max_examples > 1_000  # see tests/conftest.py
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

ANSWERED_WITH_A_RETIRED_CALL: tuple[list[Message], list[Operation]] = (
    [
        user("task"),
        call("a") | {"metadata": {"amplifier:instruction": {"disposition": "retired"}}},
        says("A newer word."),
    ],
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
    [
        user("task"),
        call("a"),
        result("a"),
        *(says(f"Step {n}. " + "word " * 200) for n in range(8)),
    ],
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
@settings(max_examples=20_000 if SOAKING else 200)
def test_every_view_of_every_session_keeps_the_laws(
    budgets: tuple[int, int], config: dict[str, Any], session: tuple[list[Message], list[Operation]]
) -> None:
    hold(Place("memory", Path()), "s", budgets, config, session)


@pytest.mark.parametrize("backend", [backend for backend in parameters() if backend.values != ("memory",)])
def test_so_does_every_session_that_is_kept(backend: str, tmp_path: Path) -> None:
    place = Place(backend, tmp_path)
    number = iter(range(1_000_000))

    @given(BUDGETS, CONFIGS, SESSIONS)
    @settings(max_examples=1_000 if SOAKING else 20)
    def law(budgets: tuple[int, int], config: dict[str, Any], session: tuple[list[Message], list[Operation]]) -> None:
        hold(place, f"s{next(number)}", budgets, config, session)

    law()


# -- thinking that is bound is shown only after the request that it answered, and between two edits nothing of it goes -

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
    @settings(max_examples=5_000 if SOAKING else 25)
    def law(budgets: tuple[int, int], config: dict[str, Any], todo: list[Operation]) -> None:
        think(budgets, model, todo, config)

    law()


@given(TWO_BUDGETS, st.sampled_from(["bound", "bound too", "free"]), operations(["bound", "bound too", "free"]))
@settings(max_examples=5_000 if SOAKING else 25)
def test_nor_of_a_session_that_changes_between_models(
    budgets: tuple[int, int], model: str, todo: list[Operation]
) -> None:
    think(budgets, model, todo)
