"""The ladder: strategies in order, cheapest loss first, each stopping as soon as the target is met.

`build_ladder` makes it from config, `climb` runs it over a draft: floor first, then the rungs over what is old, and
only when that was not enough over what is recent. What a rung does wrong is reported and undone.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..config import Config
from ..errors import ConfigError
from ..failures import failure
from ..futures import in_thread_if
from ..messages.parsing import calls_of, results_of
from ..messages.tokens import are_large
from ..plugins import Plugins
from .checkpoint import Draft, Segment
from .protected import VERBATIM, clip_floor, floor_tokens, hook_of, mark_protected
from .strategies import (
    ClearToolOutputs,
    ClipToolOutputs,
    CondenseChapters,
    DropChapters,
    FitContextWindow,
    FoldRounds,
    Goal,
    KeepImportant,
    Strategy,
    SupersedeStaleReads,
    TrimRounds,
    TruncateToolOutputs,
)


def _important(score: str, keep: int = 20) -> Strategy:
    """`KeepImportant` from config: `score` names a function, ``package.module:function``."""
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
        ClearToolOutputs,
        ClipToolOutputs,
        CondenseChapters,
        DropChapters,
        FitContextWindow,
        FoldRounds,
        SupersedeStaleReads,
        TrimRounds,
        TruncateToolOutputs,
    )
} | {KeepImportant.name: _important}
_OF_THE_REST = 0.6  # of what the system prompt leaves: what a floor may fill at least
_SPARED = 0.7  # of the budget: what is left when rounds had to be dropped to meet it
_DEEP = 0.2  # of the way from target to trigger: above it, what costs no cached prefix is given as well
_DEEPER = 0.7  # above it, all is given: the next compaction would come too soon
_CROWDED = 0.8  # of the trigger: what a floor that left no room is clipped to


@dataclass(frozen=True, slots=True)
class Climb:
    """What a ladder did.

    Attributes:
        draft: the view's segments after it.
        freed: tokens each rung freed, in order.
        skipped: name of each strategy that was skipped, and why.
        floor_tokens: tokens of what had to stay, before any of it was clipped.
        clipped_floor: marks of members of the floor that had to be clipped.
        refused_pins: marks of pins that found no room in their share.
    """

    draft: Draft
    freed: tuple[tuple[str, int], ...]
    skipped: tuple[tuple[str, str], ...]
    floor_tokens: int
    clipped_floor: tuple[str, ...]
    refused_pins: tuple[str, ...]


def build_ladder(config: Config, plugins: Plugins) -> list[Strategy]:
    """The strategies a config asks for, or the default ones.

    Raises:
        ConfigError: an unknown strategy, or arguments it does not take.
        PluginError: a plug-in failed to make one.
    """
    if config.ladder is None:
        return [
            SupersedeStaleReads(),
            FoldRounds(),
            CondenseChapters(),
            ClipToolOutputs(config.truncate_chars),
            ClearToolOutputs(),
            DropChapters(),
        ]
    ladder: list[Strategy] = []
    for index, rung in enumerate(config.ladder):
        named = {rung: dict[str, Any]()} if isinstance(rung, str) else rung
        if len(named) != 1:
            raise ConfigError(f"ladder[{index}]", "must be a name, or one name with its arguments")
        ((name, arguments),) = named.items()
        if name == "clip" and "max_chars" not in arguments:
            arguments = {"max_chars": config.truncate_chars}
        _check_arguments(f"ladder[{index}]", name, arguments)
        made: Any = plugins.make("amplifier_context_strategies", name, f"ladder[{index}]", STRATEGIES, **arguments)
        if not isinstance(made, Strategy):
            raise ConfigError(f"ladder[{index}]", f"{name!r} made a {type(made).__name__}, not a strategy")
        ladder.append(made)
    return ladder


def _check_arguments(key: str, name: str, arguments: Mapping[str, Any]) -> None:
    """Raise `ConfigError` with the known arguments if a strategy of core has none of a given name."""
    if name not in STRATEGIES:
        return
    taken = [
        parameter.name
        for parameter in inspect.signature(STRATEGIES[name]).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    for unknown in [argument for argument in arguments if argument not in taken]:
        known = f"its arguments are {', '.join(taken)}" if taken else "it takes no arguments"
        raise ConfigError(key, f"{name!r} has no argument {unknown!r}; {known}")


async def climb(
    draft: Draft,
    goal: Goal,
    ladder: Sequence[Strategy],
    *,
    trigger: int,
    pins: Collection[int],
    pin_tokens: int,
    required: Collection[int] = (),
    recent_tokens: int,
    later: Sequence[Segment] = (),
) -> Climb:
    """Bring a draft down to the goal.

    Args:
        draft: segments of the view; rounds still open are in its fixed part.
        goal: target and budget (tokens), and what strategies need to know.
        ladder: strategies in order.
        trigger: tokens above which a view is compacted: a floor above it leaves no room to work in.
        pins: seqs pinned by command.
        pin_tokens: tokens pins may fill.
        required: seqs that the caller of this request asked for; they stay whatever they cost.
        recent_tokens: tokens of the newest rounds that are spared while older ones can give.
        later: segments newer than the draft's, still open.
    """
    segments, refused = mark_protected(
        draft.segments,
        pins,
        pin_tokens=pin_tokens,
        required=required,
        later=later,
    )
    freed: list[tuple[str, int]] = []
    skipped: list[tuple[str, str]] = []
    draft = draft.with_segments(segments)
    floor_before = floor_tokens(draft)
    draft = _note(freed, "notices", draft, _without_old_notices(draft))
    clipped: tuple[str, ...] = ()
    if floor_before > trigger:
        # Beside a system prompt that fills nearly all of it, the rest has the better part of what is left.
        room = max(int(trigger * _CROWDED), draft.fixed + int((goal.budget - draft.fixed) * _OF_THE_REST))
        fitted = await in_thread_if(are_large(draft.messages), clip_floor, draft, room, goal.counter)
        clipped = tuple(b.mark for a, b in zip(draft.segments, fitted.segments, strict=True) if a is not b)
        draft = _note(freed, "floor", draft, fitted)
    # A target below the floor cannot be met: it moves, and all that is not floor is given.
    goal = replace(goal, target=max(goal.target, min(floor_tokens(draft), goal.budget)))
    # Old rounds first, then recent ones, and only then what humans wrote beyond the share it has to itself: first of
    # what came after the chapters that are there, so that these and all before them stay in the prompt cache.
    nothing = frozenset[int]()
    settled = max((segment.last for segment in draft.segments if segment.chapter), default=0)
    for recent, human_tokens, settled_to, share in (
        (_recent(draft.segments, recent_tokens), goal.human_tokens, 0, _DEEP),
        (nothing, goal.human_tokens, 0, _DEEP),
        (nothing, 0, settled, _DEEPER),
        (nothing, 0, 0, _DEEPER),
    ):
        enough = goal.target + int(share * (trigger - goal.target))
        ceiling = enough if draft.tokens > trigger else 0
        goal = replace(goal, recent=recent, human_tokens=human_tokens, settled=settled_to, ceiling=ceiling)
        for strategy in ladder:
            draft = _note(freed, strategy.name, draft, await _rung(strategy, draft, goal, skipped))
        if draft.tokens <= enough:
            break
    # What is left of the rounds that are no floor goes, oldest first: above the budget, or where the floor is so high
    # that without room to grow the next request would compact again.
    floor = floor_tokens(draft)
    limit = floor + (goal.budget - floor) // 2 if floor > trigger else goal.budget
    if draft.tokens > goal.budget:
        limit = min(limit, max(goal.target, int(goal.budget * _SPARED)))  # enough of them go, for a while
    if draft.tokens > limit:
        draft = _note(freed, "hard limit", draft, _fit(draft, limit))
    draft = draft.with_segments(
        replace(segment, shown=tuple(shown.without_response_id() for shown in segment.shown))
        for segment in draft.segments
    )
    return Climb(draft, tuple(freed), tuple(skipped), floor_before, clipped, tuple(refused))


async def _rung(strategy: Strategy, draft: Draft, goal: Goal, skipped: list[tuple[str, str]]) -> Draft:
    """Apply one strategy and hold it to its contract; where it fails or breaks that, skip it and note why."""
    try:
        done = await strategy.apply(draft, goal)
        fault = _broken(draft, done)
    except Exception as problem:  # noqa: BLE001 - a plug-in's fault must not end the request
        done, fault = draft, failure(problem, strategy)
    if not fault:
        return done
    if (strategy.name, fault) not in skipped:
        skipped.append((strategy.name, fault))
    return draft


def _broken(draft: Draft, done: object) -> str:
    """What a strategy's result breaks of the contract in `strategies.base`; empty if it keeps it."""
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
    """True if each call a segment shows has one result in it, and each result its call."""
    messages = [shown.message for shown in segment.shown]
    calls = sorted(call.id for message in messages for call in calls_of(message))
    return calls == sorted(result.call_id for message in messages for result in results_of(message))


def _note(freed: list[tuple[str, int]], name: str, before: Draft, after: Draft) -> Draft:
    if after is not before and before.tokens != after.tokens:
        freed.append((name, before.tokens - after.tokens))
    return after


def _recent(segments: Sequence[Segment], tokens: int) -> frozenset[int]:
    recent: set[int] = set()
    for segment in reversed(segments):
        if segment.chapter or (tokens := tokens - segment.tokens) < 0:
            break
        recent.add(segment.first)
    return frozenset(recent)


def _without_old_notices(draft: Draft) -> Draft:
    """Of each hook's notices (later system messages) only the newest is worth its tokens."""
    newest = {name: segment.first for segment in draft.segments if (name := hook_of(segment))}
    segments = [
        segment
        for segment in draft.segments
        if segment.protected_because == "pinned" or newest.get(hook_of(segment) or "", segment.first) == segment.first
    ]
    return draft if len(segments) == len(draft.segments) else draft.with_segments(segments)


def _fit(draft: Draft, budget: int) -> Draft:
    tokens = draft.tokens
    kept: list[Segment] = []
    for segment in draft.segments:
        if tokens > budget and not segment.protected_because:
            tokens -= segment.tokens
        else:
            kept.append(segment)
    return draft.with_segments(kept)
