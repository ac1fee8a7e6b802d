"""Chapters that are written again for a request whose prefix its provider writes again in any case."""

from __future__ import annotations

from ..compaction.checkpoint import Checkpoint, Draft, Segment
from ..compaction.ladder import apply_alone
from ..compaction.strategies import Goal, Strategy
from .view_request import ViewRequest


def late_segments(strategy: Strategy, checkpoint: Checkpoint, request: ViewRequest) -> tuple[Segment, ...]:
    """Return the segments of a checkpoint as a strategy writes them; the same object if it has nothing to write."""
    draft = Draft(checkpoint.segments, request.system_tokens)
    goal = Goal(request.limits.target, request.limits.capacity, request.counter)
    return apply_alone(strategy, draft, goal).segments
