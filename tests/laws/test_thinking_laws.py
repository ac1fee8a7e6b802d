"""Laws of thinking: no provider rejects a request for its thinking, whatever happened to the session before.

Thinking that is bound is shown only after the very request that it answered; between two edits nothing of it goes.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amplifier_context_core.stores import MemoryStore

from .operations import run
from .thinking_sessions import Operation, Thinker, operations

SOAKING = settings().max_examples > 1_000  # see tests/conftest.py
BUDGETS = st.tuples(st.integers(400, 6_000), st.integers(200, 6_000))
TAKEN_OVER: list[Operation] = [  # the second budget gets the checkpoint of the first one
    *(("budget", 1), ("turn", (0, "blocks", 1)), ("budget", 0), ("turn", (4, "blocks", 12)), ("budget", 1)),
]
CONFIGS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional={"auto_compact": st.booleans()})


def think(budgets: tuple[int, int], model: str, todo: list[Operation], config: dict[str, Any] | None = None) -> None:
    store = MemoryStore()
    run(Thinker(lambda: store, "s", budgets, config or {}, model=model), ([], todo))


@pytest.mark.parametrize("model", ["bound", "unknown", "required", "free"])
def test_no_provider_rejects_the_thinking_of_a_session_with_one_model(model: str) -> None:
    @given(BUDGETS, CONFIGS, operations([model]))
    @example((624, 740), {}, TAKEN_OVER)
    @settings(max_examples=5_000 if SOAKING else 25)
    def law(budgets: tuple[int, int], config: dict[str, Any], todo: list[Operation]) -> None:
        think(budgets, model, todo, config)

    law()


@given(BUDGETS, st.sampled_from(["bound", "bound too", "free"]), operations(["bound", "bound too", "free"]))
@settings(max_examples=5_000 if SOAKING else 25)
def test_nor_of_a_session_that_changes_between_models(
    budgets: tuple[int, int], model: str, todo: list[Operation]
) -> None:
    think(budgets, model, todo)
