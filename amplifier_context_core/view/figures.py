"""Figures of requests and compactions as people and event handlers read them: in the provider's tokens.

All other modules count tokens with this package's counter. The conversion is made here and in `explain`, once for each
figure, with the `Units` that the request's limits were made with. So the figures of one report agree.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..compaction.ladder import LadderResult
from ..compaction.re_reads import ReReads
from ..economics.meter import Units
from ..economics.trigger import TokenLimits
from ..messages.parsing import copy_json
from .candidate import Candidate
from .plan import CompactionJob
from .sent_view import SentView

_MAX_MARKS = 10  # named in one warning
_MAX_SIZES = 3  # members whose sizes a warning gives
_MAX_ROWS = 100  # compactions of a log; it is written with each save of the session's state
_ROW = ("trigger", "budget", "before_tokens", "after_tokens", "prefix_given_up_tokens")
_LEARNED = "learned from reported usage"

Member = dict[str, Any]
"""A mark, its tokens, and why it must stay."""


def announcement(job: CompactionJob) -> dict[str, Any]:
    """Return what handlers are given before a compaction."""
    limits = job.request.limits
    size, above = limits.units.request(job.plan.candidate.tokens), limits.reported(job.plan.threshold)
    because = {
        "manual": "asked for",
        "cold cache": f"the provider's cache is cold, and {size:,} tokens are near the threshold of {above:,}",
        "hard limit": f"{size:,} tokens are above the budget of {limits.accepted:,}",
    }.get(job.reason, f"{size:,} tokens are above the threshold of {above:,}")
    return {
        "message_count": len(job.plan.candidate.outgoing.messages),
        "token_count": size,
        "budget": limits.budget,
        "trigger": job.reason,
        "threshold": above,
        "target": limits.reported(job.target),
        "reason": because,
    }


def report_of(
    job: CompactionJob, after: Candidate, invalidated: int | None, result: LadderResult | None, seconds: float
) -> dict[str, Any]:
    """Return what handlers are given after a compaction. `after`: what the request of the job would be sent now;
    `invalidated`: counted tokens of the cached prefix that was given up, None when nothing was gained.
    """
    given, units = announcement(job), job.request.limits.units
    freed: list[dict[str, Any]] = []
    left, size, size_after = job.plan.candidate.tokens, given["token_count"], units.request(after.tokens)
    for name, tokens in result.freed if result else ():
        # Differences of sizes, so that what each strategy freed adds up to what all did.
        left, former, size = left - tokens, size, units.request(left - tokens)
        freed.append({"name": name, "freed": former - size})
    return {
        **given,
        "before_messages": given["message_count"],
        "message_count": len(after.outgoing.messages),
        "after_messages": len(after.outgoing.messages),
        "token_count": size_after,
        "before_tokens": given["token_count"],
        "after_tokens": size_after,
        "accepted": invalidated is not None,
        "strategies": freed,
        "strategy_level": len(freed),
        "skipped": [{"name": name, "why": why} for name, why in (result.skipped if result else ())],
        "floor_tokens": units.request(result.protected_tokens) if result else 0,
        "prefix_given_up_tokens": units.part(invalidated or 0),
        "target_tokens": given["target"],
        "duration_ms": round(seconds * 1000, 3),
    }


def beside_conversation(system_tokens: int, units: Units) -> list[Member]:
    """Return what every request holds besides its rounds, as far as there is any: tool definitions, system prompt."""
    members: list[Member] = []
    if units.measured and units.overhead:
        members.append({"mark": "tool definitions", "tokens": units.overhead, "why": _LEARNED})
    if system_tokens:
        members.append({"mark": "system prompt", "tokens": units.part(system_tokens), "why": "system prompt"})
    return members


def figure_of(units: Units, *, exact: bool) -> str:
    """`exact` if this package's counts are those of a provider's tokenizer."""
    return "measured" if units.measured else "counted" if exact else "estimated"


def overflow(sent: SentView) -> tuple[str, list[Member]]:
    limits, units = sent.limits, sent.limits.units
    largest = sorted(sent.view.segments(), key=lambda segment: segment.tokens, reverse=True)[:_MAX_SIZES]
    members = beside_conversation(sent.prompt_tokens, units)
    members += [{"mark": segment.mark, "tokens": units.part(segment.tokens), "why": ""} for segment in largest]
    text = f"what must be kept needs {units.request(sent.counted):,} tokens, the budget is {limits.accepted:,}: "
    return text + _sizes(members), members


def many_re_reads(found: ReReads, limits: TokenLimits) -> tuple[str, dict[str, int]]:
    tokens = limits.units.part(found.tokens)
    text = f"re-reads {found.sources} sources; the budget is about {tokens:,} tokens too small"
    return text, {"sources": found.sources, "tokens": tokens}


def clipped_protected(
    result: LadderResult, limits: TokenLimits, system_tokens: int, pin_tokens: int
) -> tuple[str, list[Member]]:
    units = limits.units
    parts: list[str] = []
    if result.clipped_protected or max(system_tokens, result.protected_tokens) > limits.threshold:
        size = units.request(result.protected_tokens)
        parts.append(f"what must be kept has {size:,} tokens, the budget is {limits.accepted:,}")
        if size <= limits.accepted:
            parts.append(f"views above {limits.reported(limits.threshold):,} are compacted")
    if result.clipped_protected:
        parts.append(f"clipped: {', '.join(result.clipped_protected[:_MAX_MARKS])}")
    if result.refused_pins:
        marks = ", ".join(result.refused_pins[:_MAX_MARKS])
        parts.append(f"pins without room in their share of {units.part(pin_tokens):,} tokens: {marks}")
    members = beside_conversation(system_tokens, units) + [
        {"mark": segment.mark, "tokens": units.part(segment.original_tokens), "why": segment.protected_because}
        for segment in sorted(result.draft.segments, key=lambda segment: segment.original_tokens, reverse=True)
        if segment.protected_because
    ]
    return f"{'; '.join(parts)}; largest: {_sizes(members[: _MAX_SIZES + 1])}", members[: _MAX_SIZES + 2]


def _sizes(members: Sequence[Member]) -> str:
    return ", ".join(
        f"{member['mark']} {member['tokens']:,}{f' ({_LEARNED})' if member['why'] == _LEARNED else ''}"
        for member in members
    )


class CompactionLog:
    """The accepted compactions: how many; of the last, when, why, and what they did, the newest row last. It has no
    content, so `forget` leaves it.
    """

    def __init__(self) -> None:
        self.count = self.tokens_saved = 0  # of all, also those that have no row, or none yet
        self._rows: deque[dict[str, Any]] = deque(maxlen=_MAX_ROWS)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [copy_json(row) for row in self._rows]

    def restore(self, count: int, tokens_saved: int, rows: Iterable[Mapping[str, Any]]) -> None:
        self.count, self.tokens_saved = count, tokens_saved
        self._rows = deque(map(dict, rows), maxlen=_MAX_ROWS)

    def accepted(self, report: Mapping[str, Any]) -> None:
        self.count += 1
        self.tokens_saved += report["before_tokens"] - report["after_tokens"]

    def add(self, at: str, report: Mapping[str, Any]) -> str:
        """Add the report of a compaction at a time (ISO 8601); return its line of text."""
        names = [strategy["name"] for strategy in report["strategies"] if strategy["freed"]]
        row = {"at": at, **{key: report[key] for key in _ROW}, "strategies": names}
        self._rows.append(row)
        return line_of_compaction(row)


def line_of_compaction(row: Mapping[str, Any]) -> str:
    """The time is left out."""
    sizes = f"{row['before_tokens']:,} to {row['after_tokens']:,} tokens of {row['budget']:,}"
    return f"{row['trigger']}, {sizes}, {row['prefix_given_up_tokens']:,} of the cached prefix written again"
