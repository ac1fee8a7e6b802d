"""What became of every round of a view, and its chapters, in plain JSON: for people, tests and the live display.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from ..compaction.checkpoint import DigestEntry, Segment
from ..compaction.protected import Protection, mark_protected
from ..config import Config
from ..messages.parsing import text_of
from ..transcript.entry import Entry
from ..transcript.transcript import Snapshot
from .figures import beside_conversation, figure_of
from .sent_view import SentView

_MAX_ROUNDS = 5_000  # rounds listed one by one


def explain(sent: SentView, history: Snapshot, *, config: Config, pins: Collection[int], exact: bool) -> dict[str, Any]:
    """Return the report of a view, without what is of the session only.

    All tokens are the provider's, as far as its counts are known; only ``view.counted`` is this package's count of the
    view's messages. ``view.overhead_tokens`` are sent beside the messages. Sizes of rounds and of protected segments
    are rounded one by one, so their sums may differ from the totals by a few tokens. `exact`: this package's counts are
    those of a provider's tokenizer.
    """
    limits, units = sent.limits, sent.limits.units
    pin_tokens = int(limits.capacity * config.pin_share)
    segments, _ = mark_protected(sent.view.segments(), Protection(pins, pin_tokens))
    checkpoint = sent.view.checkpoint
    prompt = sent.prompt_tokens
    fixes = sent.view.tail.fixes
    rounds = [row for segment in segments for row in _rows(segment, fixes.get(segment.first, ()))]
    # What the checkpoint, or chapters of distant history, cover.
    rounds.extend(_unlisted(segments, history[history.leading_count : history.leading_count + sent.view.tail.start]))
    rounds.sort(key=lambda row: int(row["mark"][1:]))
    for row in rounds:
        row |= {key: units.part(row[key]) for key in ("tokens_before", "tokens_after")}
    protected = [segment for segment in segments if segment.protected_because]
    return {
        "messages": len(history),
        "history_tokens": units.request(sum(entry.tokens for entry in history)),
        "view": {
            "messages": len(sent.system) + len(sent.messages),
            "tokens": units.request(sent.counted),
            "overhead_tokens": units.overhead,
            "counted": sent.counted,
            "budget": limits.budget,
            "trigger": limits.reported(limits.threshold),
            "target": limits.reported(limits.target),
            "prefix_tokens": units.part(sent.shared_prefix_tokens),
            "chapter_tokens": units.part(sum(segment.tokens for segment in segments if segment.chapter)),
            "checkpoint": checkpoint.mark if checkpoint else None,
            "figure": figure_of(units, exact=exact),
            "why": _why(sent, config),
        },
        "floor": {
            "tokens": units.request(prompt + sum(segment.tokens for segment in protected)),
            "members": beside_conversation(prompt, units)
            + [
                {"mark": segment.mark, "tokens": units.part(segment.tokens), "why": segment.protected_because}
                for segment in protected
            ],
        },
        "rounds": rounds[-_MAX_ROUNDS:],
    }


def _why(sent: SentView, config: Config) -> str:
    limits, units = sent.limits, sent.limits.units
    if not config.auto_compact:
        return f"auto_compact is off: compacted only above the budget of {limits.accepted:,} tokens"
    threshold = limits.reported(limits.threshold)
    share = f"{threshold / limits.accepted:.0%} of the budget of {limits.accepted:,}"
    text = f"compacted above {threshold:,} tokens, {share}"
    if config.cadence == "auto":
        text += ": where reading its growth from the cache has cost what a new prefix will, or at compact_threshold"
    if units.measured:
        text += f" (counts corrected by what the provider reported: {units.ratio:.2f} of ours"
        text += f", and {units.overhead:,} beside the messages)" if units.overhead else ")"
    if sent.counted > limits.threshold and sent.view.backoff:
        retry_at = units.limit(sent.view.backoff.retry_at_tokens)
        text += f"; not tried again before {retry_at:,}: too little could be freed"
    return text


def _rows(segment: Segment, fixes: tuple[str, ...]) -> list[dict[str, Any]]:
    listed: Sequence[Segment | DigestEntry] = segment.chapter.listed if segment.chapter else (segment,)
    rule = segment.rule
    if segment.chapter is None:
        rule = "; ".join(part for part in (segment.protected_because, rule, *fixes) if part)
    return [_row(one.first, one.last, one.turn, segment.state, rule, one.original_tokens, one.tokens) for one in listed]


def _row(first: int, last: int, turn: str, state: str, rule: str, before: int, after: int) -> dict[str, Any]:
    return {
        "mark": f"m{first}",
        "to": f"m{last}",
        "turn": turn,
        "state": state,
        "rule": rule,
        "tokens_before": before,
        "tokens_after": after,
    }


def _unlisted(segments: list[Segment], covered: list[Entry]) -> Iterator[dict[str, Any]]:
    """Yield stretches that are not shown in full and that no segment and no entry of a chapter names, in order.
    `covered`: entries of the history that its checkpoint or its first chapters cover.
    """
    shown = {entry.seq for segment in segments if segment.round for entry in segment.round.entries}
    chapters = [(segment, segment.chapter) for segment in segments if segment.chapter]
    listed = sorted((line.first, line.last) for _, made in chapters for line in made.listed)
    spans = sorted((segment.first, segment.last) for segment, _ in chapters)
    rules = {"folded": "its chapter counts it, without a line", "dropped": "not shown"}

    def state_of(entry: Entry) -> str:
        if entry.seq in shown or _within(listed, entry.seq):
            return ""
        return "folded" if _within(spans, entry.seq) else "dropped"

    for state, group in groupby(covered, state_of):
        if state:
            entries = list(group)
            tokens = sum(entry.tokens for entry in entries)
            yield _row(entries[0].seq, entries[-1].seq, "", state, rules[state], tokens, 0)


def _within(spans: list[tuple[int, int]], seq: int) -> bool:
    """True if one of the sorted spans holds the seq. Spans overlap by one neighbour at most: late results."""
    place = max(0, bisect_right(spans, (seq, seq)) - 1)
    return any(first <= seq <= last for first, last in spans[place : place + 2])


def chapters_of(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    return [
        {
            "mark": f"m{segment.first}",
            "to": f"m{segment.last}",
            "rounds": len(segment.chapter.entries) + segment.chapter.left_out,
            "tokens": segment.tokens,
            "original_tokens": segment.original_tokens,
            "text": "\n".join(text_of(shown.message["content"]) for shown in segment.shown),
        }
        for segment in segments
        if segment.chapter
    ]
