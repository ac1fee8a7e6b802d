"""The strategy contract itself: core's own strategies keep it, and it is not fooled."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_context_core import Draft, KeepImportant, Strategy
from amplifier_context_core.compaction.strategies.folding import CondenseChapters, DropChapters, FoldRounds
from amplifier_context_core.compaction.strategies.outputs import ClearToolOutputs, ClipToolOutputs, SupersedeStaleReads
from amplifier_context_testing.strategy_contract import StrategyContract
from tests.managers import Does

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


def empties(draft: Draft) -> Draft:
    return draft.with_segments(())


def cuts(draft: Draft) -> Draft:
    return draft.with_segments(draft.segments[1:])


def writes(draft: Draft) -> Draft:
    for shown in (shown for segment in draft.segments for shown in segment.shown):
        shown.message["content"] = "x"
    return draft


@pytest.mark.parametrize(
    ("does", "claim"),
    [
        (empties, "test_the_ladder_never_skips_it"),
        (empties, "test_protected_segments_are_left_as_they_are"),
        (empties, "test_recent_segments_are_left_as_they_are"),
        (cuts, "test_where_the_goal_is_met_it_returns_the_same_draft"),
        (cuts, "test_where_nothing_changes_it_returns_the_same_draft"),
        (writes, "test_it_changes_no_message_in_place"),
        (empties, "test_a_session_with_it_sends_valid_requests_and_keeps_its_history"),
    ],
)
async def test_a_strategy_that_breaks_the_contract_fails_the_claim_it_breaks(
    does: Callable[[Draft], Draft], claim: str
) -> None:
    class Contract(StrategyContract):
        def make_strategy(self) -> Strategy:
            return Does(does)

    with pytest.raises((AssertionError, pytest.fail.Exception)):  # noqa: PT012 - a claim may be a coroutine
        done: Any = getattr(Contract(), claim)()
        if inspect.isawaitable(done):
            await done
