"""A carrier beside a chapter: what a provider compacted itself, for a session that asked for that.

The chapter keeps the digest's message, and after it the carrier. A request to the model that reads the carrier begins
with it, and shows none of the chapters up to there (`outgoing/outgoing.py` of core). Other requests show the chapters.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from amplifier_context_core.compaction.checkpoint import Segment
from amplifier_context_core.compaction.digest import chapter_of
from amplifier_context_core.messages.parsing import Message
from amplifier_context_core.messages.tokens import TokenCounter, count_message_tokens
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.view.candidate import carrier_of


def with_carrier(
    segments: Sequence[Segment], carrier: Message, upto: int, counter: TokenCounter
) -> tuple[Segment, ...] | None:
    """Return the segments of a view with a carrier beside the last chapter that it replaces, and no other carrier.

    A chapter that reaches further is parted.

    Returns:
        None if the chapters end before `upto`, so that the view shows rounds that the carrier covers. Also None if no
        chapter ends by then, and the first one cannot be parted there: one of its entries reaches across.
    """
    parted = [part for segment in without_carriers(segments) for part in _parted(segment, upto, counter)]
    chapters = [segment for segment in parted if segment.chapter]
    replaced = [segment for segment in chapters if segment.last <= upto]
    if not replaced or chapters[-1].last < upto:
        return None
    last = replaced[-1]
    shown = RenderedMessage(carrier, count_message_tokens(carrier, counter), -last.last)
    beside = replace(last, shown=(*last.shown, shown), tokens=last.tokens + shown.tokens)
    return tuple(beside if segment is last else segment for segment in parted)


def without_carriers(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    return tuple(
        replace(one, shown=one.shown[:-1], tokens=one.tokens - carrier.tokens)
        if (carrier := carrier_of(one)) is not None
        else one
        for one in segments
    )


def sent_tokens(segments: Sequence[Segment]) -> int:
    """Return the tokens of segments in a request to the model that reads the carrier among them."""
    index = next((i for i in range(len(segments) - 1, -1, -1) if carrier_of(segments[i])), -1)
    carrier = carrier_of(segments[index]) if index >= 0 else None
    shown = [one for i, one in enumerate(segments) if i > index or one.chapter is None]
    return sum(one.tokens for one in shown) + (carrier.tokens if carrier else 0)


def _parted(segment: Segment, upto: int, counter: TokenCounter) -> list[Segment]:
    """Return a chapter in two parts, up to a seq and after it; in one where it does not reach across."""
    chapter = segment.chapter
    if chapter is None or not segment.first <= upto < segment.last:
        return [segment]
    older = [entry for entry in chapter.entries if entry.last <= upto]
    newer = [entry for entry in chapter.entries if entry.last > upto]
    if not older or not newer or newer[0].first <= upto:
        return [segment]
    rest = sum(entry.original_tokens for entry in newer)
    halves = (
        (older, segment.first, upto, chapter.left_out, max(0, chapter.original_tokens - rest)),
        (newer, newer[0].first, segment.last, 0, min(rest, chapter.original_tokens)),
    )
    parts: list[Segment] = []
    for entries, first, last, left_out, size in halves:
        made, shown = chapter_of(entries, counter, left_out=left_out, original_tokens=size, span=(first, last))
        part = replace(segment, first=first, last=last, shown=(shown,), tokens=shown.tokens, original_tokens=size)
        parts.append(replace(part, chapter=replace(made, made_at=chapter.made_at)))
    return parts
