"""A provider's own compaction in place of a model's text (`summary_writer: native`).

The contract is that of Amplifier's providers (`supports_native_compaction`, `compact_context`,
`validate_compacted_context`). The provider is given the beginning of the session's last request, and returns a carrier:
a message that takes its place in requests to the same model. The carrier is checked and kept, and never changed.

In a view it is beside a chapter, which keeps the digest's message. A request to the model that reads the carrier begins
with it, and shows none of the chapters up to there (`outgoing/outgoing.py` of core). Other requests show the chapters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from amplifier_context_core.compaction.checkpoint import Segment
from amplifier_context_core.compaction.digest import chapter_of
from amplifier_context_core.economics.meter import Key
from amplifier_context_core.history.history import History
from amplifier_context_core.messages.carriers import can_read, is_carrier
from amplifier_context_core.messages.parsing import Message, parse_message
from amplifier_context_core.messages.tokens import TokenCounter, count_message_tokens
from amplifier_context_core.rendering.renderer import RenderedMessage
from amplifier_context_core.view.candidate import carrier_of

from .checks import RejectedAnswer
from .records import Records


def is_offered(provider: Any) -> bool:
    """True if a provider compacts a conversation itself."""
    try:
        return provider.supports_native_compaction() is True and callable(provider.compact_context)
    except Exception:  # noqa: BLE001 - other people's code; not every provider has these methods
        return False


def checked_carrier(result: Mapping[str, Any], provider: Any, key: Key, most: int, counter: TokenCounter) -> Message:
    """Return a copy of the carrier in what `compact_context` returned, for the model of `key`.

    Args:
        most: tokens of what it replaces.

    Raises:
        RejectedAnswer: there is none, or a later request to this model would not be accepted with it.
    """
    validate = getattr(provider, "validate_compacted_context", None)
    try:
        carrier, _ = parse_message(result["message"])
        is_valid = is_carrier(carrier) and can_read(carrier, *key) and (validate is None or validate(carrier) is True)
    except Exception as problem:  # noqa: BLE001 - other people's code
        raise RejectedAnswer(f"the provider's compaction cannot be read ({type(problem).__name__})") from None
    if result.get("kind") != "native" or not is_valid:
        raise RejectedAnswer("the provider returned no compaction for the model of the session")
    if count_message_tokens(carrier, counter) >= most:
        raise RejectedAnswer("it is larger than what it replaces")
    return carrier


async def with_newest_carrier(
    records: Records, history: History, segments: tuple[Segment, ...], room: int, counter: TokenCounter
) -> tuple[Segment, ...]:
    """Return segments with the newest carrier beside the chapters that it replaces, if they fit with it; see `Carry`.

    They must fit for a model that does not read the carrier too: a later request at their budget may be to it.
    """
    made = without_carriers(segments)
    for record in reversed(await records.verified()):
        carried = with_carrier(segments, record.carrier, record.upto, counter) if record.carrier else None
        if carried and sent_tokens(carried) <= room:
            made = carried
            break
    return segments if made == segments else made


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
