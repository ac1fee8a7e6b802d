"""The ladder: strategies in order, cheapest loss first, each stopping as soon as the target is met.

`build_ladder` makes it from config, `climb` runs it over a draft: floor first, then the rungs over what is old, and
only when that was not enough over what is recent. Whatever a rung does wrong is named in the log and undone.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .checkpoint import Draft, Piece
from .config import Config
from .errors import ConfigError
from .floor import clip_floor, floor_tokens, hook_of, mark_floor
from .plugins import Plugins
from .render import without_response_id
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

log = logging.getLogger(__name__)


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
        draft: the view's pieces after it.
        freed: tokens each rung freed, in order.
        floor_tokens: tokens of what had to stay, before any of it was clipped.
        clipped_floor: marks of members of the floor that had to be clipped.
        refused_pins: marks of pins that found no room in their share.
    """

    draft: Draft
    freed: tuple[tuple[str, int], ...]
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
        made: Any = plugins.make("amplifier_context_strategies", name, f"ladder[{index}]", STRATEGIES, **arguments)
        if not isinstance(made, Strategy):
            raise ConfigError(f"ladder[{index}]", f"{name!r} made a {type(made).__name__}, not a strategy")
        ladder.append(made)
    return ladder


async def climb(
    draft: Draft,
    goal: Goal,
    ladder: Sequence[Strategy],
    *,
    trigger: int,
    pins: Collection[int],
    pin_tokens: int,
    recent_tokens: int,
    later: Sequence[Piece] = (),
) -> Climb:
    """Bring a draft down to the goal.

    Args:
        draft: pieces of the view; rounds still open are in its fixed part.
        goal: target and budget (tokens), and what strategies need to know.
        ladder: strategies in order.
        trigger: tokens above which a view is compacted: a floor above it leaves no room to work in.
        pins: seqs pinned by command.
        pin_tokens: tokens pins may fill.
        recent_tokens: tokens of the newest rounds that are spared while older ones can give.
        later: pieces newer than the draft's, still open.
    """
    pieces, refused = mark_floor(
        draft.pieces,
        pins,
        pin_tokens=pin_tokens,
        newest_is_later=bool(later),
        human_is_later=any(piece.is_human for piece in later),
    )
    freed: list[tuple[str, int]] = []
    draft = draft.with_pieces(pieces)
    floor_before = floor_tokens(draft)
    draft = _note(freed, "notices", draft, _without_old_notices(draft))
    clipped: tuple[str, ...] = ()
    if floor_before > trigger:
        # Beside a system prompt that fills nearly all of it, the rest has the better part of what is left.
        room = max(int(trigger * _CROWDED), draft.fixed + int((goal.budget - draft.fixed) * _OF_THE_REST))
        fitted = clip_floor(draft, room, goal.counter)
        clipped = tuple(b.mark for a, b in zip(draft.pieces, fitted.pieces, strict=True) if a is not b)
        draft = _note(freed, "floor", draft, fitted)
    # A target below the floor cannot be met: it moves, and all that is not floor is given.
    goal = replace(goal, target=max(goal.target, min(floor_tokens(draft), goal.budget)))
    # Old rounds first, then recent ones, and only then what humans wrote beyond the share it has to itself: first of
    # what came after the chapters that are there, so that these and all before them stay in the prompt cache.
    nothing = frozenset[int]()
    settled = max((piece.last for piece in draft.pieces if piece.chapter), default=0)
    for recent, human_tokens, settled_to, share in (
        (_recent(draft.pieces, recent_tokens), goal.human_tokens, 0, _DEEP),
        (nothing, goal.human_tokens, 0, _DEEP),
        (nothing, 0, settled, _DEEPER),
        (nothing, 0, 0, _DEEPER),
    ):
        enough = goal.target + int(share * (trigger - goal.target))
        ceiling = enough if draft.tokens > trigger else 0
        goal = replace(goal, recent=recent, human_tokens=human_tokens, settled=settled_to, ceiling=ceiling)
        for strategy in ladder:
            draft = _note(freed, strategy.name, draft, await _rung(strategy, draft, goal))
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
    draft = draft.with_pieces(
        replace(piece, shown=tuple(without_response_id(shown) for shown in piece.shown)) for piece in draft.pieces
    )
    return Climb(draft, tuple(freed), floor_before, clipped, tuple(refused))


async def _rung(strategy: Strategy, draft: Draft, goal: Goal) -> Draft:
    """One strategy, held to its contract: it may fail, but not lose the floor or make the view larger."""
    try:
        done = await strategy.apply(draft, goal)
    except Exception as problem:  # noqa: BLE001 - a plug-in's fault must not end the request
        log.warning("strategy %s failed (%s: it is skipped)", strategy.name, type(problem).__name__)
        return draft
    if done is draft:
        return draft
    if not isinstance(done, Draft):  # pyright: ignore[reportUnnecessaryIsInstance]
        log.warning("strategy %s returned a %s, not a draft: it is skipped", strategy.name, type(done).__name__)
        return draft
    kept = {piece.first for piece in done.pieces}
    if any(piece.floor and piece.first not in kept for piece in draft.pieces):
        log.warning("strategy %s removed what must stay: it is skipped", strategy.name)
        return draft
    pinned = {piece.first: piece.shown for piece in draft.pieces if piece.floor == "pinned"}
    if any(pinned.get(piece.first, piece.shown) != piece.shown for piece in done.pieces):
        log.warning("strategy %s changed what is pinned: it is skipped", strategy.name)
        return draft
    if done.tokens > draft.tokens:
        log.debug("strategy %s made the view larger: it is skipped", strategy.name)
        return draft
    return done


def _note(freed: list[tuple[str, int]], name: str, before: Draft, after: Draft) -> Draft:
    if after is not before and before.tokens != after.tokens:
        freed.append((name, before.tokens - after.tokens))
    return after


def _recent(pieces: Sequence[Piece], tokens: int) -> frozenset[int]:
    recent: set[int] = set()
    for piece in reversed(pieces):
        if piece.chapter or (tokens := tokens - piece.tokens) < 0:
            break
        recent.add(piece.first)
    return frozenset(recent)


def _without_old_notices(draft: Draft) -> Draft:
    """Of each hook's notices (later system messages) only the newest is worth its tokens."""
    newest = {name: piece.first for piece in draft.pieces if (name := hook_of(piece))}
    pieces = [
        piece
        for piece in draft.pieces
        if piece.floor == "pinned" or newest.get(hook_of(piece) or "", piece.first) == piece.first
    ]
    return draft if len(pieces) == len(draft.pieces) else draft.with_pieces(pieces)


def _fit(draft: Draft, budget: int) -> Draft:
    tokens = draft.tokens
    kept: list[Piece] = []
    for piece in draft.pieces:
        if tokens > budget and not piece.floor:
            tokens -= piece.tokens
        else:
            kept.append(piece)
    return draft.with_pieces(kept)
