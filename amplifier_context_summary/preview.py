"""What the next compaction of a view will be, before it is made.

A preview runs the same ladder over the same view, and leaves free what the view will have grown by when the compaction
comes. It changes nothing. A module can so prepare what a compaction will need.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from amplifier_context_core.compaction.checkpoint import Segment
from amplifier_context_core.transcript.transcript import Snapshot
from amplifier_context_core.view.candidate import ViewRequest
from amplifier_context_core.view.compactor import Compactor
from amplifier_context_core.view.plan import ALL, CompactionJob


class Preview(NamedTuple):
    history: Snapshot
    segments: tuple[Segment, ...]  # of the view after that compaction
    threshold: int


async def preview(compactor: Compactor, request: ViewRequest, reason: Literal["trigger", "manual"]) -> Preview:
    """Nothing is changed. With the reason ``manual`` the compaction is made now. With ``trigger`` it is made when the
    view has grown to its threshold; what comes until then is taken to stay as it is.
    """
    async with compactor.lock.hold():
        plan = await compactor.cache.choose(request)
        given = await plan.candidate.draft()
    span = ALL if reason == "manual" else None
    job, threshold = CompactionJob(plan, span), plan.threshold
    growth = max(0, threshold - plan.candidate.tokens) if reason == "trigger" else 0
    result = await compactor.maker.ladder_result(job, given, growth)
    return Preview(plan.history, result.draft.segments, threshold)
