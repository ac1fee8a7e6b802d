"""Why a view must be compacted before a request is sent it. Pure: no I/O, no clock."""

from __future__ import annotations

from typing import NamedTuple

from ..config import Config
from ..economics.cold_cache import Pause
from ..economics.trigger import cold_threshold, compaction_threshold, recall_room
from .candidate import Candidate
from .view import View
from .view_request import ViewRequest


class Verdict(NamedTuple):
    reason: str | None  # ``trigger``, ``cold cache`` or ``hard limit``; None when the view need not be compacted first
    threshold: int  # size of the view, its system prompt included, above which it is compacted

    def unless_postponed(self, candidate: Candidate) -> Verdict:
        """Leave the reason out if another attempt to compact the view is not worth it yet."""
        backoff, capacity = candidate.view.backoff, candidate.request.limits.capacity
        if self.reason is None or backoff is None:
            return self
        size = candidate.tokens if self.reason == "hard limit" else candidate.lasting_tokens
        return self._replace(reason=None) if backoff.postpones(size, candidate.compactable_count, capacity) else self


def verdict_on(candidate: Candidate, pause: Pause, config: Config) -> Verdict:
    """Recalled text counts towards the hard limit only. After a pause the threshold is less if the cache is cold."""
    request = candidate.request
    threshold, is_cold = threshold_of(candidate, config), _is_cold(candidate.view, request, pause, config)
    due = cold_threshold(threshold, request.system_tokens + candidate.checkpoint_tokens) if is_cold else threshold
    if candidate.tokens > request.limits.capacity:
        return Verdict("hard limit", threshold)
    if candidate.lasting_tokens > due:
        return Verdict("cold cache" if is_cold else "trigger", threshold)
    return Verdict(None, threshold)


def threshold_of(candidate: Candidate, config: Config) -> int:
    limits = candidate.request.limits
    adaptive = config.cadence != "fixed" and config.auto_compact
    growth = candidate.growth if adaptive else None
    threshold = compaction_threshold(growth, limits, candidate.request.system_tokens, adaptive=adaptive)
    # Room for recalled text, which does not count below: the same whether a recall was answered in a line or fully.
    room = recall_room(limits, config.recall_share) if candidate.view.recalled.count else 0
    return max(1, min(threshold, limits.capacity - room))


def _is_cold(view: View, request: ViewRequest, pause: Pause, config: Config) -> bool:
    """True if the provider forgot what it cached of a view, and no compaction has used this pause yet."""
    is_used = view.checkpoint is not None and view.checkpoint.made_at > pause.after
    return config.auto_compact and pause.outlasts(request.limits.cache_ttl) and not is_used
