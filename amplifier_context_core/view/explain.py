"""Where every round of a view stands, in plain JSON: for people, for tests, for the live display."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from ..compaction.checkpoint import Segment
from ..transcript.transcript import Entry
from .figures import beside_conversation

if TYPE_CHECKING:
    from ..manager import ContextManager
    from .compactor import SentView

_MOST_ROUNDS = 5_000  # rounds listed one by one


def explain(manager: ContextManager) -> dict[str, Any]:
    """Return the report of the view handed out last.

    All tokens are the provider's, as far as its counts are known; only ``sent.counted`` is this package's count of the
    view's messages. ``view.overhead_tokens`` are sent beside the messages. Sizes of rounds and of members of the floor
    are rounded one by one, so their sums may differ from the totals by a few tokens.
    """
    sent = manager.compactor.last_sent
    history = manager.history.snapshot()
    if sent is None:
        raise ValueError("no view was handed out yet")
    limits, units = sent.limits, sent.limits.units
    segments = manager.compactor.segments()
    checkpoint = sent.view.checkpoint
    exact = getattr(manager.counter, "exact", False)
    figure = "measured" if units.measured else "counted" if exact else "estimated"
    mends = manager.compactor.mends()
    rounds: list[dict[str, Any]] = []
    for segment in segments:
        rounds.extend(_rows(segment, mends.get(segment.first, ())))
    rounds.extend(_unlisted(segments, history[history.leading : history.leading + sent.view.covered]))
    rounds.sort(key=lambda row: int(row["mark"][1:]))
    for row in rounds:
        row |= {key: units.part(row[key]) for key in ("tokens_before", "tokens_after")}
    floor = [segment for segment in segments if segment.protected_because]
    prompt = sum(shown.tokens for shown in sent.system)
    return {
        "session_id": manager.history.session_id,
        "messages": len(history),
        "turns": manager.turn_count,
        "history_tokens": units.request(sum(entry.tokens for entry in history)),
        "view": {
            "messages": len(sent.system) + len(sent.messages),
            "tokens": units.request(sent.counted),
            "overhead_tokens": units.overhead,
            "counted": sent.counted,
            "budget": limits.budget,
            "trigger": limits.reported(limits.trigger),
            "target": limits.reported(limits.target),
            "prefix_tokens": units.part(sent.prefix),
            "chapter_tokens": units.part(sum(segment.tokens for segment in segments if segment.chapter)),
            "checkpoint": checkpoint.mark if checkpoint else None,
            "figure": figure,
            "why": _why(manager, sent),
        },
        "floor": {
            "tokens": units.request(prompt + sum(segment.tokens for segment in floor)),
            "members": beside_conversation(prompt, units)
            + [
                {"mark": segment.mark, "tokens": units.part(segment.tokens), "why": segment.protected_because}
                for segment in floor
            ],
        },
        "compactions": manager.compactor.compactions,
        "tokens_saved": manager.compactor.saved_tokens,
        "rounds": rounds[-_MOST_ROUNDS:],
        "warnings": list(manager.warnings.texts),
    }


def _why(manager: ContextManager, sent: SentView) -> str:
    limits, units = sent.limits, sent.limits.units
    config = manager.config
    if not config.auto_compact:
        return f"auto_compact is off: compacted only above the budget of {limits.accepted:,} tokens"
    trigger = limits.reported(limits.trigger)
    share = f"{trigger / limits.accepted:.0%} of the budget of {limits.accepted:,}"
    text = f"compacted above {trigger:,} tokens, {share}"
    if config.cadence == "auto":
        text += ": where carrying on has cost what a compaction will"
    if units.measured:
        text += f" (counts corrected by what the provider reported: {units.ratio:.2f} of ours"
        text += f", and {units.overhead:,} beside the messages)" if units.overhead else ")"
    if sent.counted > limits.trigger and sent.view.backoff:
        text += (
            f"; not tried again before {units.limit(sent.view.backoff.retry_at_tokens):,}: too little could be freed"
        )
    return text


def _rows(segment: Segment, mends: tuple[str, ...]) -> list[dict[str, Any]]:
    if segment.chapter is None:
        rule = (
            segment.rule
            if not segment.protected_because
            else segment.protected_because
            if not segment.rule
            else f"{segment.protected_because}; {segment.rule}"
        )
        return [
            _row(
                segment,
                segment.first,
                segment.last,
                segment.turn,
                segment.original_tokens,
                segment.tokens,
                "; ".join((rule, *mends)),
            )
        ]
    return [
        _row(segment, line.first, line.last, line.turn, line.original_tokens, line.tokens)
        for line in segment.chapter.entries
    ]


def _row(segment: Segment, first: int, last: int, turn: str, before: int, after: int, rule: str = "") -> dict[str, Any]:
    return {
        "mark": f"m{first}",
        "to": f"m{last}",
        "turn": turn,
        "state": segment.state,
        "rule": (rule or segment.rule).strip("; "),
        "tokens_before": before,
        "tokens_after": after,
    }


def _unlisted(segments: list[Segment], covered: list[Entry]) -> list[dict[str, Any]]:
    """Stretches of what the view does not show in full that no segment and no entry of a chapter names, in order.

    A chapter that covers them counts them; else they were dropped.

    Args:
        segments: of the view.
        covered: entries of the history that its checkpoint or its first chapters stand for.
    """
    shown = {entry.seq for segment in segments if segment.round for entry in segment.round.entries}
    chapters = [segment for segment in segments if segment.chapter]
    listed = sorted((line.first, line.last) for made in chapters if made.chapter for line in made.chapter.entries)
    spans = sorted((chapter.first, chapter.last) for chapter in chapters)
    rows: list[dict[str, Any]] = []
    state = ""
    for entry in covered:
        before, state = state, ""
        if entry.seq not in shown and not _within(listed, entry.seq):
            state = "folded" if _within(spans, entry.seq) else "dropped"
        if state and state == before:
            rows[-1]["to"] = entry.mark
            rows[-1]["tokens_before"] += entry.tokens
        elif state:
            rows.append(
                {
                    "mark": entry.mark,
                    "to": entry.mark,
                    "turn": "",
                    "state": state,
                    "rule": "counted by its chapter" if state == "folded" else "not shown",
                    "tokens_before": entry.tokens,
                    "tokens_after": 0,
                }
            )
    return rows


def _within(spans: list[tuple[int, int]], seq: int) -> bool:
    """True if one of the sorted spans holds the seq. Spans overlap by one neighbour at most: late results."""
    place = max(0, bisect_right(spans, (seq, seq)) - 1)
    return any(first <= seq <= last for first, last in spans[place : place + 2])
