"""A compaction before it happens, and what it came to: values. Neither changes a session.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..compaction.ladder import LadderResult
from ..compaction.strategies import Goal
from ..config import Config
from ..messages.tokens import TokenCounter
from ..rendering.summaries import Summaries
from .cache import Selection
from .figures import announcement, outcome
from .prefix import RequestPrefix
from .trigger import TokenLimits, compaction_target
from .view import View


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """A compaction that is about to happen.

    Attributes:
        reason: ``trigger``, ``cold cache``, ``hard limit`` or ``manual``.
        selection: the view to compact.
        limits: of the request.
        system_tokens: of the system prompt, counted.
        counter: text to tokens.
        prefix: what the request begins with; thinking may be bound to it.
        injected: what handlers of the compaction want a summary to dwell on.
        required: seqs that must stay verbatim.
    """

    reason: str
    selection: Selection
    limits: TokenLimits
    system_tokens: int
    counter: TokenCounter
    prefix: RequestPrefix
    injected: str | None = None
    required: frozenset[int] = frozenset()

    @property
    def view(self) -> View:
        """The view to compact."""
        return self.selection.view

    @property
    def tokens(self) -> int:
        """Tokens of the view with its system prompt."""
        return self.system_tokens + self.view.tokens

    @property
    def target(self) -> int:
        """Size that the compaction aims at (counted tokens); a manual one aims at the same size each time."""
        if self.reason == "manual":
            return self.limits.target
        return compaction_target(self.selection.threshold, self.limits)

    def announcement(self) -> dict[str, Any]:
        """Return the figures of ``context:pre_compact``."""
        threshold, messages = self.selection.threshold, len(self.view.view())
        return announcement(self.reason, messages, self.tokens, self.limits, threshold=threshold, target=self.target)


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
        job.limits.capacity,
        job.counter,
        human_tokens=int(job.target * config.protected_human),
        protected_results=config.protected_tool_results,
        chapter_tokens=int(job.limits.capacity * config.chapter_share),
        summaries=summaries,
        focus="\n\n".join(dict.fromkeys(text for text in (focus, job.injected) if text)) or None,
        state_tools=None if config.state_tools is None else tuple(config.state_tools),
    )


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction came to. It changes nothing before it is accepted.

    Attributes:
        job: the compaction.
        view: the view that serves the budget once this is accepted: a new one, or the old one when nothing was gained.
        report: the figures of ``context:post_compact``.
        ladder: what the strategies did; None when there was nothing for them to work on.
        invalidated_tokens: of the prefix that the new view gives up; None when nothing was gained.
    """

    job: CompactionJob
    view: View
    report: dict[str, Any]
    ladder: LadderResult | None = None
    invalidated_tokens: int | None = None

    @property
    def has_gain(self) -> bool:
        """True if there is a new view; otherwise the old one stays, and the next attempt is postponed."""
        return self.invalidated_tokens is not None


def compaction_result(
    job: CompactionJob,
    view: View,
    duration: float,
    ladder: LadderResult | None = None,
    invalidated: int | None = None,
) -> CompactionResult:
    """Return what a compaction came to, with its figures.

    Args:
        job: the compaction.
        view: as in `CompactionResult`.
        duration: seconds that it took.
        ladder: what the strategies did; None when there was nothing for them to work on.
        invalidated: tokens of the prefix that the new view gives up; None when nothing was gained.
    """
    report, after = job.announcement(), len(view.view())
    report |= {"before_messages": report["message_count"], "message_count": after, "after_messages": after}
    report |= outcome(job.tokens, job.system_tokens + view.tokens, invalidated, ladder, job.limits.units)
    report |= {"target_tokens": report["target"], "duration_ms": round(duration * 1000, 3)}
    return CompactionResult(job, view, report, ladder, invalidated)
