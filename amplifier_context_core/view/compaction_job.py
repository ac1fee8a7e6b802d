"""A compaction before it happens, and what it came to: values. Neither changes a session.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..compaction.ladder import LadderResult
from ..compaction.re_reads import ReReads
from ..compaction.strategies import Goal
from ..config import Config
from ..rendering.summaries import Summaries
from .candidate import Candidate
from .figures import announcement, outcome
from .selection import Selection
from .trigger import compaction_target
from .view import View
from .view_request import ViewRequest


@dataclass(frozen=True)
class CompactionJob:
    """A compaction that is about to happen. Its figures are those of its view when they are first asked for.

    Attributes:
        selection: the view to compact, and the request that it is for.
        is_manual: asked for, whatever the threshold.
        injected: what handlers of the compaction want a summary to dwell on.
        focus_drops: of the compactor when this was made: once it differs, `injected` may have been erased.
    """

    selection: Selection
    is_manual: bool = False
    injected: str | None = None
    focus_drops: int = 0

    @cached_property
    def reason(self) -> str:
        """Why: ``trigger``, ``cold cache``, ``hard limit`` or ``manual``."""
        return "manual" if self.is_manual else self.selection.reason or "hard limit"

    @cached_property
    def request(self) -> ViewRequest:
        """The request that the view is for."""
        return self.selection.request

    @cached_property
    def view(self) -> View:
        """The view to compact."""
        return self.selection.view

    @cached_property
    def tokens(self) -> int:
        """Tokens of the view with its system prompt."""
        return self.selection.candidate.tokens

    @cached_property
    def target(self) -> int:
        """Size that the compaction aims at (counted tokens); a manual one aims at the same size each time."""
        if self.is_manual:
            return self.request.limits.target
        return compaction_target(self.selection.threshold, self.request.limits)

    @cached_property
    def announcement(self) -> dict[str, Any]:
        """The figures of ``context:pre_compact``. Do not mutate them."""
        threshold, messages = self.selection.threshold, len(self.selection.candidate.outgoing.messages)
        limits = self.request.limits
        return announcement(self.reason, messages, self.tokens, limits, threshold=threshold, target=self.target)


def goal_of(job: CompactionJob, config: Config, tokens: int, summaries: Summaries, focus: str | None) -> Goal:
    """Return what the strategies of a compaction aim at.

    Args:
        job: the compaction.
        config: of the session.
        tokens: that the draft may have.
        summaries: short forms of tool results.
        focus: what summaries of the session should dwell on.
    """
    return Goal(
        tokens,
        job.request.limits.capacity,
        job.request.counter,
        human_tokens=int(job.target * config.protected_human),
        protected_results=config.protected_tool_results,
        chapter_tokens=int(job.request.limits.capacity * config.chapter_share),
        summaries=summaries,
        focus="\n\n".join(dict.fromkeys(text for text in (focus, job.injected) if text)) or None,
        state_tools=None if config.state_tools is None else tuple(config.state_tools),
    )


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction came to. It changes nothing before it is accepted.

    Attributes:
        job: the compaction.
        candidate: the view that serves the budget once this is accepted, a new one, or the old one when nothing was
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


def compaction_result(
    job: CompactionJob,
    candidate: Candidate,
    duration: float,
    ladder: LadderResult | None = None,
    invalidated: int | None = None,
) -> CompactionResult:
    """Return what a compaction came to, with its figures.

    Args:
        job: the compaction.
        candidate: as in `CompactionResult`.
        duration: seconds that it took.
        ladder: what the strategies did; None when there was nothing for them to work on.
        invalidated: tokens of the prefix that the new view gives up; None when nothing was gained.
    """
    report, after = dict(job.announcement), len(candidate.outgoing.messages)
    report |= {"before_messages": report["message_count"], "message_count": after, "after_messages": after}
    report |= outcome(job.tokens, candidate.tokens, invalidated, ladder, job.request.limits.units)
    report |= {"target_tokens": report["target"], "duration_ms": round(duration * 1000, 3)}
    return CompactionResult(job, candidate, report, ladder, invalidated)
