"""What a compaction of a view works on, and how what it made of that becomes a checkpoint. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..compaction.checkpoint import Draft, Segment
from ..messages.carriers import is_carrier
from ..messages.tokens import TokenCounter
from ..outgoing.carriers import Placing
from ..outgoing.outgoing import tokens_of
from ..outgoing.prefix import RequestPrefix
from ..rendering.renderer import RenderedMessage


@dataclass(frozen=True, slots=True)
class ViewDraft:
    """What the carrier that is sent replaces is no part of the draft; `whole` adds it again."""

    draft: Draft  # the segments that a compaction may change
    # The segments after the draft. A checkpoint of them would keep placeholders for missing results.
    open_rounds: Sequence[Segment]
    cost: int  # tokens of the draft's segments as they are sent now
    covered: int  # entries, counted from the first after the system prompt, that a checkpoint covers
    originals: Sequence[Segment]  # the segments before the open rounds, as the view shows them
    placing: Placing

    def whole(self, made: Sequence[Segment]) -> tuple[Segment, ...]:
        """Return the segments of a checkpoint from what a compaction made of the draft."""
        before, _ = parted(self.originals, self.placing)
        changed = {
            one.first: one for one in self.originals if any(id(shown) in self.placing.changed for shown in one.shown)
        }
        is_held = {one.first for one in made if one.round is not None and is_carrier(one.round.head.message)}
        return (*before, *(changed[one.first] if one.first in is_held & changed.keys() else one for one in made))


def parted(segments: Sequence[Segment], placing: Placing) -> tuple[list[Segment], list[Segment]]:
    """Return the segments before the carrier that is sent, as they are, and the others as they are sent.

    A segment that is not sent at all keeps its place, without messages and without cost.
    """
    if not placing.changed:
        return [], list(segments)
    places = (index for index, one in enumerate(segments) if any(m.seq == placing.seq for m in one.shown))
    cut = next(places, 0) if placing.seq else 0
    cut += placing.seq < 0  # a chapter with a carrier stays as it is
    return list(segments[:cut]), [_showing(one, placing.as_sent(one.shown)) for one in segments[cut:]]


def without_bound(segments: Sequence[Segment], prefix: RequestPrefix, counter: TokenCounter) -> list[Segment]:
    """Strip thinking whose prefix is about to change."""
    bare = ([one.bare(counter) if prefix.binds(one) else one for one in segment.shown] for segment in segments)
    return [_showing(one, [shown for shown in made if shown]) for one, made in zip(segments, bare, strict=True)]


def _showing(segment: Segment, messages: Sequence[RenderedMessage]) -> Segment:
    """Return the same object if the messages are its own."""
    if len(messages) == len(segment.shown) and all(a is b for a, b in zip(messages, segment.shown, strict=True)):
        return segment
    return replace(segment, shown=tuple(messages), tokens=tokens_of(messages))
