"""The ladder: strategies in order, cheapest loss first, each stopping as soon as the target is met.

`build_ladder` makes the strategies that a config names. `run_ladder` marks what is protected, and removes old notices
and recalled text. It clips the largest protected segments if they leave no room. Then it runs the strategies in up to
four passes, each of which protects less. A strategy that fails or breaks its contract is skipped and reported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from ..config import Config
from ..errors import ConfigError
from ..failures import failure
from ..messages.parsing import calls_of, results_of
from ..messages.tokens import TokenCounter
from ..plugins import Plugins
from ..transcript.entry import Entry
from . import strategies
from .checkpoint import Draft, Segment
from .condensing import people_tokens, without_oldest
from .protected import (
    VERBATIM,
    Protection,
    clip_protected,
    mark_protected,
    newest_notices,
    notice_of,
    protected_tokens,
    whole_human,
)
from .recalled import without_recalled
from .speech import OWN
from .strategies import Goal, KeepImportant, Strategy


def _important(score: str, keep: int = 20) -> Strategy:
    """Drop the rounds of least importance first, as the function `score` rates them (`package.module:function`)."""
    module, colon, name = score.partition(":")
    if not colon:
        raise ValueError(f"score must name a function like 'package.module:function', got {score!r}")
    try:
        return KeepImportant(getattr(importlib.import_module(module), name), keep)
    except (ImportError, AttributeError) as problem:
        raise ValueError(f"score {score!r} cannot be loaded: {problem}") from problem


STRATEGIES: Mapping[str, Callable[..., Strategy]] = {
    strategy.name: strategy
    for strategy in (
        strategies.ClearToolOutputs,
        strategies.ClipToolOutputs,
        strategies.CondenseChapters,
        strategies.DropChapters,
        strategies.FitContextWindow,
        strategies.FoldRounds,
        strategies.SupersedeStaleReads,
        strategies.TrimRounds,
        strategies.TruncateToolOutputs,
    )
} | {KeepImportant.name: _important}
_DEFAULT = ("supersede", "fold", "condense", "clip", "clear", "drop")
_LEAST_PROTECTED = 0.6  # of the budget without the fixed part: clipping leaves protected segments at least this
_AFTER_DROPPING = 0.7  # of the budget: what is left when rounds had to be dropped to meet it
_STATE_SHARE = 0.10  # of the budget: what the newest todo lists, plans and approvals may fill verbatim
_NEWEST = 2  # newest rounds that all passes but the last spare, if they fit the share below
_NEWEST_SHARE = 1 / 3  # of the budget. docs/reports/evaluation.md (The two newest rounds)
_CLIPPED_TO = 0.8  # of the trigger: what protected segments that left no room are clipped to


class Pass(NamedTuple):
    """What a run over all strategies spares."""

    # "recent" rounds; the two "newest"; the share of "people"; what they wrote up to the newest "chapter" (cached)
    spares: frozenset[str]
    enough: float  # share of the way from target to trigger; above it the next compaction would come too soon


PASSES = (
    Pass(frozenset({"recent", "newest", "people"}), 0.4),
    Pass(frozenset({"newest", "people"}), 0.2),
    Pass(frozenset({"newest", "chapter"}), 0.7),
    Pass(frozenset(), 0.7),
)


@dataclass(frozen=True, slots=True)
class LadderResult:
    draft: Draft
    freed: tuple[tuple[str, int], ...]  # name of each step and the tokens that it freed, in order
    skipped: tuple[tuple[str, str], ...]  # name of each strategy that was skipped, and why
    protected_tokens: int  # of what had to stay, before any of it was clipped
    clipped_protected: tuple[str, ...]  # marks
    refused_pins: tuple[str, ...]  # marks of pins that found no room in their share


def build_ladder(config: Config, plugins: Plugins) -> list[Strategy]:
    """Return the strategies that a config names, or the default ones.

    Raises:
        ConfigError: an unknown strategy, or arguments it does not take.
        PluginError: a plug-in failed to make one.
    """
    ladder: list[Strategy] = []
    for index, item in enumerate(_DEFAULT if config.ladder is None else config.ladder):
        named = {item: dict[str, Any]()} if isinstance(item, str) else item
        if len(named) != 1:
            raise ConfigError(f"ladder[{index}]", "must be a name, or one name with its arguments")
        ((name, arguments),) = named.items()
        if name == "clip" and "max_chars" not in arguments:
            arguments = {"max_chars": config.truncate_chars}
        made: Any = plugins.make("amplifier_context_strategies", name, f"ladder[{index}]", STRATEGIES, **arguments)
        if not isinstance(made, Strategy):
            raise ConfigError(f"ladder[{index}]", f"{name!r} made a {type(made).__name__}, not a strategy")
        ladder.append(made)
    return ladder


def run_ladder(
    draft: Draft, goal: Goal, ladder: Sequence[Strategy], protection: Protection, *, trigger: int, recent_tokens: int
) -> LadderResult:
    """Bring a draft down to the goal. It may take a second; run it in a worker thread.

    Args:
        draft: segments of the view; rounds still open are in its fixed part.
        trigger: tokens above which a view is compacted. Protected segments above it leave no room to work in.
        recent_tokens: of the newest rounds that are spared while older ones can give.
    """
    room = int(goal.budget * _STATE_SHARE)
    segments, refused = mark_protected(draft.segments, protection, state_tokens=room, state_tools=goal.state_tools)
    run = _Run(draft.with_segments(segments))
    protected_before = protected_tokens(run.draft)
    run.take("notices", _without_old_notices(run.draft, protection.later))
    run.take("recalled", without_recalled(run.draft, goal.counter))
    human = whole_human(run.draft.segments, protection.human_tokens, later=protection.later)
    clipped = _clip_protected(run, goal, trigger, protected_before, human)
    # A target below what is protected cannot be met: the target moves, and all that is not protected is given.
    goal = replace(goal, target=max(goal.target, min(protected_tokens(run.draft), goal.budget)))
    _run_passes(run, ladder, goal, trigger, recent_tokens)
    limit = _limit(run.draft, goal, trigger)
    if run.draft.tokens > limit:
        run.take("hard limit", _fit(run.draft, limit, goal.budget, goal.counter))
    done = run.draft.with_segments(
        replace(segment, shown=tuple(shown.without_response_id() for shown in segment.shown))
        for segment in run.draft.segments
    )
    return LadderResult(done, tuple(run.freed), tuple(run.skipped), protected_before, clipped, tuple(refused))


@dataclass(slots=True)
class _Run:
    """`freed` by each step, in tokens."""

    draft: Draft
    freed: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def take(self, name: str, draft: Draft) -> None:
        if draft is not self.draft and self.draft.tokens != draft.tokens:
            self.freed.append((name, self.draft.tokens - draft.tokens))
        self.draft = draft

    def apply(self, strategy: Strategy, goal: Goal) -> None:
        """A strategy that fails or breaks its contract is skipped."""
        try:
            done = strategy.apply(self.draft, goal)
            fault = _broken(self.draft, done)
        except Exception as problem:  # noqa: BLE001 - a plug-in's fault must not end the request
            done, fault = self.draft, failure(problem, strategy)
        if not fault:
            self.take(strategy.name, done)
        elif (strategy.name, fault) not in self.skipped:
            self.skipped.append((strategy.name, fault))


def apply_alone(strategy: Strategy, draft: Draft, goal: Goal) -> Draft:
    """Return the same draft if the strategy fails or breaks its contract."""
    run = _Run(draft)
    run.apply(strategy, goal)
    return run.draft


def _run_passes(run: _Run, ladder: Sequence[Strategy], goal: Goal, trigger: int, recent_tokens: int) -> None:
    """Run passes, each of which protects less, until one ends below what is enough for it."""
    folded_up_to = max((segment.last for segment in run.draft.segments if segment.chapter), default=0)
    spared = {
        "recent": _recent(run.draft.segments, recent_tokens),
        "newest": _recent(run.draft.segments[-_NEWEST:], int(goal.budget * _NEWEST_SHARE)),
    }
    for step in PASSES:
        enough = goal.target + int(step.enough * (trigger - goal.target))
        now = replace(
            goal,
            recent=frozenset[int]().union(*(firsts for name, firsts in spared.items() if name in step.spares)),
            human_tokens=goal.human_tokens if "people" in step.spares else 0,
            folded_up_to=folded_up_to if "chapter" in step.spares else 0,
            ceiling=enough if run.draft.tokens > trigger else 0,
        )
        for strategy in ladder:
            run.apply(strategy, now)
        if run.draft.tokens <= enough:
            return


def _clip_protected(run: _Run, goal: Goal, trigger: int, protected: int, human: Entry | None) -> tuple[str, ...]:
    """Clip the largest protected segments so that there is room for people's words and to work in; return their marks.

    What is clipped here is shown in full again as soon as there is room. A sentence that is dropped is gone from the
    view.

    Args:
        protected: tokens of what must stay, before anything was taken out of it.
        human: the message of a person that is not clipped.
    """
    fixed = run.draft.fixed
    # Of the room between what is protected and the trigger, the last pass leaves a share free: people's words need more
    # than their size.
    people = max(0, int((goal.budget - fixed) * (1 - _LEAST_PROTECTED)))  # at most
    if protected + people <= trigger:  # not worth reading all of the view for them
        return ()
    segments = run.draft.segments
    own = people_tokens(segments, goal.counter, OWN)
    people = min(int(own / PASSES[-1].enough), people)
    if protected + people <= trigger:
        return ()
    # Beside a system prompt that fills nearly all of the budget, they get the better part of what is left.
    least = fixed + int((goal.budget - fixed) * _LEAST_PROTECTED)
    room = max(trigger, least) - people
    if protected_tokens(run.draft) > trigger:
        room = min(room, max(int(trigger * _CLIPPED_TO), least))
    if human is not None and (left := goal.budget - fixed - human.tokens) > 0:
        room = max(room, goal.budget - left // 2)  # half of what it leaves is for the others, half to work in
    whole = human.seq if human else 0
    fitted = clip_protected(run.draft, room, goal.counter, whole=whole)
    run.take("floor", fitted)
    return tuple(new.mark for old, new in zip(segments, fitted.segments, strict=True) if old is not new)


def _limit(draft: Draft, goal: Goal, trigger: int) -> int:
    """Return the tokens above which unprotected rounds are dropped.

    It is the budget. Where what is protected is above the trigger, it is lower: without room to grow the next request
    would compact again.
    """
    protected = protected_tokens(draft)
    limit = protected + (goal.budget - protected) // 2 if protected > trigger else goal.budget
    if draft.tokens > goal.budget:
        limit = min(limit, max(goal.target, int(goal.budget * _AFTER_DROPPING)))  # so that it lasts for a while
    return limit


def _broken(draft: Draft, done: object) -> str:
    """Return what a strategy's result breaks of the contract in `strategies.base`; empty if nothing."""
    if done is draft:
        return ""
    if not isinstance(done, Draft):
        return f"returned a {type(done).__name__}, not a draft"
    if done.fixed != draft.fixed:
        return "changed `fixed`, the tokens outside the segments"
    places = {segment.first: place for place, segment in enumerate(draft.segments)}
    after = [places.get(segment.first, -1) for segment in done.segments]
    if any(here >= following for here, following in pairwise((-1, *after))):
        return "brought in segments of its own, or put them in another order"
    kept = frozenset(after)
    if any(segment.protected_because and place not in kept for place, segment in enumerate(draft.segments)):
        return "removed what must stay"
    for place, segment in zip(after, done.segments, strict=True):
        old = draft.segments[place]
        if segment is old:
            continue
        if old.protected_because in VERBATIM and segment.shown != old.shown:
            return "changed what is pinned"
        if segment.tokens != sum(shown.tokens for shown in segment.shown):
            return "gave a segment another cost than its messages have"
        if not _is_paired(segment) and _is_paired(old):
            return "parted calls from their results"
    return "made the view larger" if done.tokens > draft.tokens else ""


def _is_paired(segment: Segment) -> bool:
    messages = [shown.message for shown in segment.shown]
    calls = sorted(call.id for message in messages for call in calls_of(message))
    return calls == sorted(result.call_id for message in messages for result in results_of(message))


def _recent(segments: Sequence[Segment], tokens: int) -> frozenset[int]:
    """Return the lowest seqs of the newest rounds that fit into `tokens`, back to the newest chapter."""
    recent: set[int] = set()
    for segment in reversed(segments):
        if segment.chapter or (tokens := tokens - segment.tokens) < 0:
            break
        recent.add(segment.first)
    return frozenset(recent)


def _without_old_notices(draft: Draft, later: Sequence[Segment]) -> Draft:
    newest = newest_notices((*draft.segments, *later))
    return draft.with_segments(
        segment
        for segment in draft.segments
        if segment.protected_because in VERBATIM or segment.first in newest or not notice_of(segment)
    )


def _fit(draft: Draft, limit: int, budget: int, counter: TokenCounter) -> Draft:
    """Drop the oldest loose rounds above the limit, and only above the budget chapters, then what states rules."""

    def states_nothing(segment: Segment) -> bool:
        return not people_tokens([segment], counter)

    draft = without_oldest(draft, limit, lambda one: one.chapter is None and states_nothing(one))
    return without_oldest(without_oldest(draft, budget, states_nothing), budget, lambda _: True)
