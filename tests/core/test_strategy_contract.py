"""The strategy contract itself: core's own strategies keep it, and it is not fooled."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from amplifier_context_core import (
    ClearToolOutputs,
    ClipToolOutputs,
    CondenseChapters,
    Draft,
    DropChapters,
    FoldRounds,
    Goal,
    KeepImportant,
    Strategy,
    SupersedeStaleReads,
)
from amplifier_context_testing.strategy_contract import StrategyContract


class TestSupersede(StrategyContract):
    def make_strategy(self) -> Strategy:
        return SupersedeStaleReads()


class TestFold(StrategyContract):
    def make_strategy(self) -> Strategy:
        return FoldRounds()


class TestCondense(StrategyContract):
    def make_strategy(self) -> Strategy:
        return CondenseChapters()


class TestClip(StrategyContract):
    def make_strategy(self) -> Strategy:
        return ClipToolOutputs(100)


class TestClear(StrategyContract):
    def make_strategy(self) -> Strategy:
        return ClearToolOutputs(2)


class TestDrop(StrategyContract):
    def make_strategy(self) -> Strategy:
        return DropChapters()


class TestImportant(StrategyContract):
    def make_strategy(self) -> Strategy:
        return KeepImportant(lambda message: float(len(str(message.get("content")))))


class Does(Strategy):
    """What a function makes of the segments, with the same draft where they stay."""

    def __init__(self, work: Callable[[Draft, Goal], Any]) -> None:
        self.name, self._work = "does", work

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        made = tuple(self._work(draft, goal))
        return draft if made == draft.segments else draft.with_segments(made)


def drops_the_recent(draft: Draft, goal: Goal) -> Any:
    return draft.segments if goal.met_by(draft) else [one for one in draft.segments if one.protected_because]


def goes_on(draft: Draft, goal: Goal) -> Any:
    """One more round is dropped whatever the goal."""
    first = next((one for one in draft.segments if goal.may_touch(one)), None)
    return [one for one in draft.segments if one is not first]


def lengthens(draft: Draft, goal: Goal) -> Any:
    for segment in draft.segments:
        longer = goal.may_touch(segment) and segment.shown and segment.rule != "lengthens"
        shown = [replace(one, tokens=one.tokens + 1) for one in segment.shown]
        yield segment.rendered_as(shown, "clipped", "lengthens") if longer else segment


class Copies(Strategy):
    """Returns an equal draft that is another object."""

    name = "copies"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        return Draft(draft.segments, draft.fixed)


class Writes(Strategy):
    """Changes messages in place."""

    name = "writes"

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        for segment in draft.segments:
            for shown in segment.shown:
                shown.message["content"] = "x"
        return draft


class Remembers(Strategy):
    """Drops what it was shown before."""

    name = "remembers"
    seen: Counter[int]

    def __init__(self) -> None:
        self.seen = Counter()

    def apply(self, draft: Draft, goal: Goal) -> Draft:
        loose = [segment for segment in draft.segments if goal.may_touch(segment)]
        self.seen.update(segment.first for segment in loose)
        kept = [s for s in draft.segments if s not in loose or self.seen[s.first] < 2]
        return draft if len(kept) == len(draft.segments) else draft.with_segments(kept)


@pytest.mark.parametrize(
    ("strategy", "claim"),
    [
        (lambda: Does(lambda draft, goal: ()), "test_the_ladder_never_skips_it"),
        (lambda: Does(lengthens), "test_the_ladder_never_skips_it"),
        (lambda: Does(lambda draft, goal: ()), "test_protected_segments_are_left_as_they_are"),
        (lambda: Does(drops_the_recent), "test_recent_segments_are_left_as_they_are"),
        (lambda: Does(goes_on), "test_where_the_goal_is_met_it_returns_the_same_draft"),
        (Copies, "test_where_nothing_changes_it_returns_the_same_draft"),
        (lambda: Does(goes_on), "test_where_nothing_changes_it_returns_the_same_draft"),
        (Writes, "test_it_changes_no_message_in_place"),
        (Remembers, "test_it_does_the_same_each_time"),
        (lambda: Does(lambda draft, goal: ()), "test_a_session_with_it_sends_valid_requests_and_keeps_its_history"),
    ],
)
async def test_a_strategy_that_breaks_the_contract_fails_the_claim_it_breaks(
    strategy: Callable[[], Strategy], claim: str
) -> None:
    class Contract(StrategyContract):
        def make_strategy(self) -> Strategy:
            return strategy()

    async def check() -> None:
        done: Any = getattr(Contract(), claim)()
        if inspect.isawaitable(done):
            await done

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await check()
