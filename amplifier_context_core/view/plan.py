"""What a request is to be sent, and what that changes of the session: values, made beside the session.

A plan changes nothing. The session changes when the plan is committed (`Compactor.commit`), in one step, or never. So a
request that is given up needs no undo. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..compaction.checkpoint import Checkpoint
from ..compaction.ladder import LadderResult
from ..compaction.re_reads import ReReads
from ..config import Config
from ..economics.cold_cache import Pause, pause_of
from ..economics.trigger import TokenLimits, cold_threshold, compaction_target, compaction_threshold, recall_room
from ..outgoing.outgoing import tokens_of
from ..rendering.renderer import RenderedMessage
from ..transcript.transcript import Snapshot
from .candidate import Candidate, ViewRequest
from .sent_view import SentView
from .view import View

ALL = range(1 << 62)  # seqs


class Revision(NamedTuple):
    """What the session has for a budget. A plan that was made from another revision does not change the session."""

    view: View | None
    checkpoint: Checkpoint | None
    pins: frozenset[int]
    edits: int  # of views in place, and of what summaries should dwell on


@dataclass(frozen=True, slots=True)
class Plan:
    candidate: Candidate
    # Why the view must be compacted first: ``trigger``, ``cold cache`` or ``hard limit``; None if it need not be.
    reason: str | None
    threshold: int  # size of the view, its system prompt included, above which it is compacted
    pause: Pause
    history: Snapshot  # what the view is up to date with
    interrupted: frozenset[int]
    revision: Revision
    is_copy: bool = False  # the view is none of the session's, and is to serve the budget
    clipped: Sequence[RenderedMessage] | None = None  # the messages, where those of the view do not fit
    result: CompactionResult | None = None
    postponed: CompactionJob | None = None  # the compaction that a handler postponed

    @classmethod
    def of(
        cls, candidate: Candidate, history: Snapshot, interrupted: frozenset[int], revision: Revision, config: Config
    ) -> Plan:
        """Return the plan to send the candidate as it is, with the reason to compact it first if there is one."""
        pause = pause_of(history)
        return cls(candidate, *_verdict_on(candidate, pause, config), pause, history, interrupted, revision)

    @property
    def request(self) -> ViewRequest:
        return self.candidate.request

    @property
    def view(self) -> View:
        return self.candidate.view

    @property
    def messages(self) -> Sequence[RenderedMessage]:
        return self.candidate.outgoing.messages if self.clipped is None else self.clipped

    @property
    def counted(self) -> int:
        return self.candidate.tokens if self.clipped is None else self.request.system_tokens + tokens_of(self.clipped)

    @property
    def sent(self) -> SentView:
        """With the messages that the history gets with the request."""
        request, one = self.request, self.candidate
        limits = replace(request.limits, threshold=self.threshold)
        messages = [*self.messages, *request.appended]
        return SentView(limits, request.system, messages, self.counted, one.view, request.prefix, one.newest_seq)

    async def fitted(self) -> Plan:
        """Messages are clipped as far as they can be."""
        if self.counted <= self.request.limits.capacity:
            return self
        return replace(self, clipped=await self.candidate.fitted())

    def under(self, limits: TokenLimits, config: Config) -> Plan:
        """Return the same messages under other limits."""
        return self.judged(replace(self.candidate, request=replace(self.request, limits=limits)), config)

    def judged(self, candidate: Candidate, config: Config) -> Plan:
        reason, threshold = _verdict_on(candidate, self.pause, config)
        return replace(self, candidate=candidate, reason=reason, threshold=threshold).unless_postponed()

    def unless_postponed(self) -> Plan:
        """Leave the reason out if another attempt to compact the view is not worth it yet."""
        one, capacity = self.candidate, self.request.limits.capacity
        if self.reason is None or one.view.backoff is None:
            return self
        size = one.tokens if self.reason == "hard limit" else one.lasting_tokens
        is_postponed = one.view.backoff.postpones(size, one.compactable_count, capacity)
        return replace(self, reason=None) if is_postponed else self


def _verdict_on(candidate: Candidate, pause: Pause, config: Config) -> tuple[str | None, int]:
    """Return reason and threshold of a plan. Recalled text counts towards the hard limit only. After a pause the
    threshold is less if the provider forgot what it cached, and no compaction has used this pause yet.
    """
    request, limits = candidate.request, candidate.request.limits
    adaptive = config.cadence != "fixed" and config.auto_compact
    growth = candidate.growth if adaptive else None
    threshold = compaction_threshold(growth, limits, request.system_tokens, adaptive=adaptive)
    # Room for recalled text, which does not count below: the same whether a recall was answered in a line or fully.
    room = recall_room(limits, config.recall_share) if candidate.view.recalled.count else 0
    threshold = max(1, min(threshold, limits.capacity - room))
    is_used = candidate.view.made_at > pause.after
    is_cold = config.auto_compact and pause.outlasts(limits.cache_ttl) and not is_used
    due = cold_threshold(threshold, request.system_tokens + candidate.checkpoint_tokens) if is_cold else threshold
    if candidate.tokens > limits.capacity:
        return "hard limit", threshold
    if candidate.lasting_tokens > due:
        return "cold cache" if is_cold else "trigger", threshold
    return None, threshold


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """A compaction that is about to happen."""

    plan: Plan  # what the request would be sent without it
    # Seqs of the rounds that may change, of a compaction that is asked for whatever the threshold; None for one that is
    # due.
    span: range | None = None
    injected: str | None = None  # what handlers of the compaction want a summary to dwell on
    focus_drops: int = 0  # of the directions when this was made: once it differs, `injected` may have been erased

    @property
    def is_manual(self) -> bool:
        return self.span is not None

    @property
    def kept(self) -> frozenset[int]:
        """Seqs of entries whose rounds must stay: what the request requires, and what is outside the span."""
        if self.span is None or self.span == ALL:
            return self.request.required
        rounds = (segment.round for segment in self.plan.view.segments() if segment.round)
        outside = (entry.seq for one in rounds for entry in one.entries if entry.seq not in self.span)
        return self.request.required.union(outside)

    @property
    def reason(self) -> str:
        """``trigger``, ``cold cache``, ``hard limit`` or ``manual``."""
        return "manual" if self.is_manual else self.plan.reason or "hard limit"

    @property
    def request(self) -> ViewRequest:
        return self.plan.request

    @property
    def target(self) -> int:
        """Counted tokens; a manual one aims at the same size each time."""
        limits = self.request.limits
        return limits.target if self.is_manual else compaction_target(self.plan.threshold, limits)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    job: CompactionJob
    # The view that serves the budget once this is committed, a new one, or the old one when nothing was gained; for the
    # request of the job.
    candidate: Candidate
    report: dict[str, Any]  # the figures of ``context:post_compact``
    has_gain: bool  # if not, the old view stays, and the next attempt is postponed
    ladder: LadderResult | None = None  # None when there was nothing for the strategies to work on
    re_reads: ReReads = field(default_factory=ReReads)  # what the rounds since the former compaction read again
