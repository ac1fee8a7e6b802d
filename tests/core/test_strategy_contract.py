"""The strategy contract itself: core's own strategies keep it, and it is not fooled."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_context_core import Draft, Goal, KeepImportant, Strategy
from amplifier_context_core.compaction.strategies.folding import CondenseChapters, DropChapters, FoldRounds
from amplifier_context_core.compaction.strategies.outputs import ClearToolOutputs, ClipToolOutputs, SupersedeStaleReads
from amplifier_context_testing.strategy_contract import StrategyContract

OF_CORE: dict[str, Callable[[], Strategy]] = {
    "supersede": SupersedeStaleReads,
    "fold": FoldRounds,
    "condense": CondenseChapters,
    "clip": lambda: ClipToolOutputs(100),
    "clear": lambda: ClearToolOutputs(2),
    "drop": DropChapters,
    "important": lambda: KeepImportant(lambda message: float(len(str(message.get("content"))))),
}


class TestOfCore(StrategyContract):
    @pytest.fixture(autouse=True, params=OF_CORE)
    def strategy(self, request: pytest.FixtureRequest) -> None:
        self._make = OF_CORE[request.param]

    def make_strategy(self) -> Strategy:
        return self._make()


class Does(Strategy):
    """What a function makes of the segments, with the same draft where they stay."""

    def __init__(self, work: Callable[[Draft, Goal], Any]) -> None:
        self.name, self._work = "does", work

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        made = tuple(self._work(draft, goal))
        return draft if made == draft.segments else draft.with_segments(made)


def writes(draft: Draft, goal: Goal) -> Any:
    for shown in (shown for segment in draft.segments for shown in segment.shown):
        shown.message["content"] = "x"
    return draft.segments


@pytest.mark.parametrize(
    ("strategy", "claim"),
    [
        (lambda: Does(lambda draft, goal: ()), "test_the_ladder_never_skips_it"),
        (lambda: Does(lambda draft, goal: ()), "test_protected_segments_are_left_as_they_are"),
        (lambda: Does(lambda draft, goal: ()), "test_recent_segments_are_left_as_they_are"),
        (lambda: Does(lambda draft, goal: draft.segments[1:]), "test_where_the_goal_is_met_it_returns_the_same_draft"),
        (lambda: Does(lambda draft, goal: draft.segments[1:]), "test_where_nothing_changes_it_returns_the_same_draft"),
        (lambda: Does(writes), "test_it_changes_no_message_in_place"),
        (lambda: Does(lambda draft, goal: ()), "test_a_session_with_it_sends_valid_requests_and_keeps_its_history"),
    ],
)
async def test_a_strategy_that_breaks_the_contract_fails_the_claim_it_breaks(
    strategy: Callable[[], Strategy], claim: str
) -> None:
    class Contract(StrategyContract):
        def make_strategy(self) -> Strategy:
            return strategy()

    with pytest.raises((AssertionError, pytest.fail.Exception)):  # noqa: PT012 - a claim may be a coroutine
        done: Any = getattr(Contract(), claim)()
        if inspect.isawaitable(done):
            await done
