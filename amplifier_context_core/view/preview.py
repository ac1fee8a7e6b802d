"""What the next compaction of a view will be, before it is made; and chapters written again between compactions.

A preview runs the same ladder over the same view, and leaves free what the view will have grown by when the compaction
comes. It changes nothing. A module can so prepare what a compaction will need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..compaction.checkpoint import DigestEntry, Draft, Segment
from ..compaction.ladder import apply_alone
from ..compaction.strategies import Goal, Strategy
from ..transcript.transcript import Snapshot
from .cache import Selection
from .compaction_job import CompactionJob
from .compactor import Compactor
from .view import View
from .view_request import ViewRequest


@dataclass(frozen=True, slots=True)
class Preview:
    """What the next compaction of a view would make of it.

    Attributes:
        history: that the view is up to date with.
        segments: of the view after that compaction.
        tokens: of the view now, its system prompt included.
        threshold: size above which it is compacted.
        is_due: true if it must be compacted now.
    """

    history: Snapshot
    segments: tuple[Segment, ...]
    tokens: int
    threshold: int
    is_due: bool

    @property
    def folded_upto(self) -> int:
        """Highest seq that a chapter would cover; 0 without any chapter."""
        return max((segment.last for segment in self.segments if segment.chapter), default=0)

    @property
    def digest(self) -> dict[int, DigestEntry]:
        """What the digest would say of each round, by its lowest seq."""
        chapters = [segment.chapter for segment in self.segments if segment.chapter]
        return {entry.first: entry for chapter in chapters for entry in chapter.entries}


async def preview(compactor: Compactor, request: ViewRequest, reason: Literal["trigger", "manual"]) -> Preview:
    """Return what the next compaction would make of the view that serves a request. Nothing is changed.

    Args:
        compactor: of the session.
        request: that the view is for.
        reason: ``manual``: the compaction is made now. ``trigger``: when the view has grown to its threshold; what
            comes until then is taken to stay as it is.
    """
    async with compactor.lock.hold():
        selection = await compactor.cache.select(request)
        job = CompactionJob(selection, is_manual=reason == "manual")
        draft, later, _ = await job.view.draft(request.system_tokens, request.limits.capacity)
        tokens = job.tokens
    growth = max(0, selection.threshold - tokens) if reason == "trigger" else 0
    result = await compactor.ladder_result(job, draft, later, growth)
    is_due = selection.reason is not None
    return Preview(selection.history, result.draft.segments, tokens, selection.threshold, is_due)


async def rewrite(compactor: Compactor, request: ViewRequest, strategy: Strategy) -> bool:
    """Apply a strategy to what the view of a request has compacted; return True if that changed the view.

    It gives up the cached prefix: call it when that is written again anyway (`Compactor.prefix_break`).

    Args:
        compactor: of the session.
        request: that the view is for.
        strategy: held to the contract, as in a compaction.
    """
    async with compactor.lock.hold():
        selection = await compactor.cache.select(request)
        view = await rewritten(compactor, selection, strategy)
        if view is None:
            return False
        compactor.cache.replace(selection.view, view)
        compactor.cache.touch(request.limits.budget, view)
        return True


async def rewritten(compactor: Compactor, selection: Selection, strategy: Strategy) -> View | None:
    """Return the selected view as a strategy makes it; None if that changes nothing. The caller holds the lock.

    The selected view stays as it is; the strategy is as in `rewrite`.
    """
    request = selection.request
    limits, system_tokens = request.limits, request.system_tokens
    view, history = selection.view, selection.history
    if view.checkpoint is None:
        return None
    draft = Draft(view.checkpoint.segments, system_tokens)
    done = await apply_alone(strategy, draft, Goal(limits.target, limits.capacity, request.counter))
    segments = await compactor.carried(done.segments, request)
    if segments is draft.segments:
        return None
    tokens = sum(segment.tokens for segment in segments)
    checkpoint = replace(view.checkpoint, segments=segments, tokens=tokens, from_content=False)
    new = compactor.cache.new_view(checkpoint, limits, request.counter)
    new.backoff = view.backoff
    await new.update(history, len(history), selection.interrupted)
    await new.bind(request.prefix)
    return new
