"""The view that serves a request, and why it must be compacted first.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ..config import Config
from ..transcript.transcript import Snapshot
from .cold_cache import Pause
from .trigger import cold_threshold, compaction_threshold, recall_room
from .view import View
from .view_request import ViewRequest


@dataclass(frozen=True, slots=True)
class Selection:
    """The view that serves a request.

    Attributes:
        request: the request.
        view: the view, up to date with the history.
        reason: why it must be compacted first, ``trigger``, ``cold cache`` or ``hard limit``; None when it need not.
        threshold: size of the view, its system prompt included, above which it is compacted.
        pause: before the request.
        history: what the view is up to date with.
        interrupted: turns that were interrupted then.
        cache_version: of the cache.
    """

    request: ViewRequest
    view: View
    reason: str | None
    threshold: int
    pause: Pause
    history: Snapshot
    interrupted: frozenset[int]
    cache_version: int

    def unless_postponed(self) -> Selection:
        """Return the selection without its reason if another attempt to compact the view is not worth it yet."""
        view, limits = self.view, self.request.limits
        if self.reason is None or view.backoff is None:
            return self
        size = self.request.system_tokens + (view.tokens if self.reason == "hard limit" else view.lasting_tokens)
        is_postponed = view.backoff.postpones(size, view.compactable_count, limits.capacity)
        return replace(self, reason=None) if is_postponed else self


class Verdict(NamedTuple):
    """Why a view must be compacted first, None if it need not, and its threshold, as in `Selection`."""

    reason: str | None
    threshold: int


def verdict_on(view: View, request: ViewRequest, pause: Pause, config: Config) -> Verdict:
    """Return why a view must be compacted before it is sent, and its threshold.

    Recalled text counts towards the hard limit only. After a pause the threshold is less if the cache is cold.
    """
    system_tokens, capacity = request.system_tokens, request.limits.capacity
    threshold, is_cold = threshold_of(view, request, config), _is_cold(view, request, pause, config)
    due = cold_threshold(threshold, system_tokens + view.checkpoint_tokens) if is_cold else threshold
    tokens = system_tokens + view.tokens
    if tokens > capacity:
        return Verdict("hard limit", threshold)
    if tokens - view.recalled.tokens > due:
        return Verdict("cold cache" if is_cold else "trigger", threshold)
    return Verdict(None, threshold)


def threshold_of(view: View, request: ViewRequest, config: Config) -> int:
    """Return the size of a view, its system prompt included, above which it is compacted."""
    limits = request.limits
    adaptive = config.cadence != "fixed" and config.auto_compact
    growth = view.growth if adaptive else None
    threshold = compaction_threshold(growth, limits, request.system_tokens, adaptive=adaptive)
    # Room for recalled text, which does not count below: the same whether a recall was answered in a line or fully.
    room = recall_room(limits, config.recall_share) if view.recalled.count else 0
    return max(1, min(threshold, limits.capacity - room))


def _is_cold(view: View, request: ViewRequest, pause: Pause, config: Config) -> bool:
    """True if the provider forgot what it cached of a view, and no compaction has used this pause yet."""
    is_used = view.checkpoint is not None and view.checkpoint.made_at > pause.after
    return config.auto_compact and pause.outlasts(request.limits.cache_ttl) and not is_used
