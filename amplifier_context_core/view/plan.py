"""What a request is to be sent, and what that changes of the session: values, made beside the session.

A plan changes nothing. The session changes when the plan is committed (`Compactor.commit`), in one step, or never. So a
request that is given up needs no undo.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from ..compaction.checkpoint import Checkpoint
from ..compaction.ladder import LadderResult
from ..compaction.re_reads import ReReads
from ..config import Config
from ..economics.cold_cache import Pause
from ..economics.trigger import TokenLimits, compaction_target
from ..outgoing.outgoing import tokens_of
from ..rendering.renderer import RenderedMessage
from ..transcript.transcript import Snapshot
from .candidate import Candidate
from .figures import announcement
from .sent_view import SentView
from .verdict import Verdict, verdict_on
from .view import View
from .view_request import ViewRequest

ALL = range(1 << 62)  # seqs


class Revision(NamedTuple):
    """What the session has for a budget. A plan that was made from another revision does not change the session.

    Attributes:
        view: that serves the budget; None if there is none.
        edits: of views in place, and of what summaries should dwell on.
    """

    view: View | None
    checkpoint: Checkpoint | None
    pins: frozenset[int]
    edits: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request is to be sent.

    Attributes:
        history: what the view is up to date with.
        revision: of the session for the budget when this was planned.
        is_copy: the view is none of the session's, and is to serve the budget.
        clipped: the messages, where those of the view do not fit.
        postponed: the compaction that a handler postponed; None without one.
    """

    candidate: Candidate
    verdict: Verdict
    pause: Pause
    history: Snapshot
    interrupted: frozenset[int]
    revision: Revision
    is_copy: bool = False
    clipped: Sequence[RenderedMessage] | None = None
    result: CompactionResult | None = None
    postponed: CompactionJob | None = None

    @property
    def request(self) -> ViewRequest:
        return self.candidate.request

    @property
    def view(self) -> View:
        return self.candidate.view

    @property
    def reason(self) -> str | None:
        """Why the view must be compacted first; None when it need not."""
        return self.verdict.reason

    @property
    def messages(self) -> Sequence[RenderedMessage]:
        return self.candidate.outgoing.messages if self.clipped is None else self.clipped

    @property
    def counted(self) -> int:
        return self.candidate.tokens if self.clipped is None else self.request.system_tokens + tokens_of(self.clipped)

    @property
    def sent(self) -> SentView:
        """What is sent, the messages that the history gets with the request too."""
        request, one = self.request, self.candidate
        limits = replace(request.limits, threshold=self.verdict.threshold)
        messages = [*self.messages, *request.appended]
        return SentView(limits, request.system, messages, self.counted, one.view, one.outgoing, one.newest_seq)

    async def fitted(self) -> Plan:
        """Return the plan with messages clipped to fit, as far as they can be."""
        if self.counted <= self.request.limits.capacity:
            return self
        return replace(self, clipped=(await self.candidate.fitted())[0])

    def under(self, limits: TokenLimits, config: Config) -> Plan:
        """Return the same messages under other limits, and why the view must be compacted first."""
        return self.judged(replace(self.candidate, request=replace(self.request, limits=limits)), config)

    def judged(self, candidate: Candidate, config: Config) -> Plan:
        """Return the plan with another view, and the verdict on that."""
        return replace(
            self, candidate=candidate, verdict=verdict_on(candidate, self.pause, config).unless_postponed(candidate)
        )


@dataclass(frozen=True)
class CompactionJob:
    """A compaction that is about to happen. Its figures are those of its view when they are first asked for.

    Attributes:
        plan: what the request would be sent without it.
        span: seqs of the rounds that may change, of a compaction that is asked for whatever the threshold; None for one
            that is due.
        injected: what handlers of the compaction want a summary to dwell on.
        focus_drops: of the compactor when this was made: once it differs, `injected` may have been erased.
    """

    plan: Plan
    span: range | None = None
    injected: str | None = None
    focus_drops: int = 0
    focus: str | None = None

    @property
    def is_manual(self) -> bool:
        """True if it is asked for, whatever the threshold."""
        return self.span is not None

    @cached_property
    def kept(self) -> frozenset[int]:
        """Seqs of entries whose rounds must stay: what the request requires, and what is outside the span."""
        if self.span is None or self.span == ALL:
            return self.request.required
        rounds = (segment.round for segment in self.plan.view.segments() if segment.round)
        outside = (entry.seq for one in rounds for entry in one.entries if entry.seq not in self.span)
        return self.request.required.union(outside)

    @cached_property
    def reason(self) -> str:
        """Why: ``trigger``, ``cold cache``, ``hard limit`` or ``manual``."""
        return "manual" if self.is_manual else self.plan.reason or "hard limit"

    @cached_property
    def request(self) -> ViewRequest:
        return self.plan.request

    @cached_property
    def tokens(self) -> int:
        """Tokens of the view with its system prompt."""
        return self.plan.candidate.tokens

    @cached_property
    def target(self) -> int:
        """Size that the compaction aims at (counted tokens); a manual one aims at the same size each time."""
        limits = self.request.limits
        return limits.target if self.is_manual else compaction_target(self.plan.verdict.threshold, limits)

    @cached_property
    def announcement(self) -> dict[str, Any]:
        """The figures of ``context:pre_compact``. Do not mutate them."""
        threshold, messages = self.plan.verdict.threshold, len(self.plan.candidate.outgoing.messages)
        limits = self.request.limits
        return announcement(self.reason, messages, self.tokens, limits, threshold=threshold, target=self.target)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction came to.

    Attributes:
        candidate: the view that serves the budget once this is committed, a new one, or the old one when nothing was
            gained; for the request of the job.
        report: the figures of ``context:post_compact``.
        ladder: what the strategies did; None when there was nothing for them to work on.
        invalidated_tokens: of the prefix that the new view gives up; None when nothing was gained.
        re_reads: what the rounds since the former compaction read again.
    """

    job: CompactionJob
    candidate: Candidate
    report: dict[str, Any]
    ladder: LadderResult | None = None
    invalidated_tokens: int | None = None
    re_reads: ReReads = field(default_factory=ReReads)

    @property
    def has_gain(self) -> bool:
        """True if there is a new view; otherwise the old one stays, and the next attempt is postponed."""
        return self.invalidated_tokens is not None
