"""The place of carriers in a request: what a provider's own compaction replaces is not sent beside it.

A view holds the originals and the carriers (`messages/carriers.py`). What a request shows of them depends on its model:

- The newest carrier that the model reads comes first, after instructions. Nothing before it is sent, and no other one.
- A model that reads none gets the originals. A carrier without originals before it is shown as the text in it.

A round before the carrier that has a message from after it (a late result) follows the carrier. So does a round with a
message that the request must show. A carrier beside a chapter (`view/chapter_carriers.py`) replaces only chapters:
rounds that had to stay verbatim follow it.

A strategy gets neither what a carrier replaces nor the carriers that are not sent. They remain in the checkpoint, for
requests to other models.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ..compaction.checkpoint import Segment
from ..messages.carriers import can_read, carried_text, is_carrier
from ..messages.parsing import SYSTEM_ROLES, Message, metadata_of, with_metadata
from ..messages.reminders import NATIVE
from ..messages.tokens import TokenCounter
from ..rendering.quoting import quoted
from ..rendering.renderer import RenderedMessage

_TITLE = "An earlier part of the conversation, as its provider summarised it"


class Carried:
    """The carriers of one view, as the last request showed them.

    Args:
        counter: text to tokens.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._texts: dict[int, RenderedMessage] = {}  # by seq, carriers as text
        self._seq = 0  # of the carrier that is sent, as `RenderedMessage.seq`; 0 for none
        self._left_out: dict[int, RenderedMessage] = {}  # by identity
        self._instead: dict[int, RenderedMessage] = {}  # by identity of the carrier

    def bind(
        self, messages: Sequence[RenderedMessage], provider: str, model: str, required: Collection[int] = ()
    ) -> list[RenderedMessage]:
        """Return the messages of a view as a request to a model shows them, and note what was changed.

        Args:
            messages: of the view.
            provider: name of the provider.
            model: name of the model.
            required: seqs of entries that the request must show, whether a carrier replaces them or not.
        """
        if not any(is_carrier(shown.message) for shown in messages):
            self._seq, self._left_out, self._instead = 0, {}, {}
            return list(messages)
        kept, self._seq = self._placed(messages, provider, model, required)
        sent = {id(shown) for shown in kept}
        self._instead = {id(one): self._texts[one.seq] for one in messages if self._is_text_of(one, sent)}
        self._left_out = {id(one): one for one in messages if id(one) not in sent and id(one) not in self._instead}
        return kept

    def placed(
        self, messages: Sequence[RenderedMessage], provider: str, model: str, required: Collection[int] = ()
    ) -> list[RenderedMessage]:
        """Return the same for messages of the view, some of them perhaps clipped; nothing is noted."""
        return self._placed(messages, provider, model, required)[0]

    def replaced(self, seqs: Iterable[int]) -> frozenset[int]:
        """Return those of some entries that the carrier which is sent replaces, unless a request requires them."""
        return frozenset(seq for seq in seqs if seq < self._seq)

    def as_sent(self, messages: Iterable[RenderedMessage]) -> list[RenderedMessage]:
        """Return some messages of the view as they are in the last request, in the order of the view."""
        return [self._instead.get(id(shown), shown) for shown in messages if id(shown) not in self._left_out]

    def parted(self, segments: Sequence[Segment]) -> tuple[list[Segment], list[Segment]]:
        """Return the segments before the carrier that is sent, as they are, and the others as they are sent.

        A segment that is not sent at all keeps its place, without messages and without cost.
        """
        if not self._left_out and not self._instead:
            return [], list(segments)
        places = (index for index, one in enumerate(segments) if any(m.seq == self._seq for m in one.shown))
        cut = next(places, 0) if self._seq else 0
        cut += self._seq < 0  # a chapter with a carrier stays as it is
        return list(segments[:cut]), [self._bare(segment) for segment in segments[cut:]]

    def whole(self, before: Sequence[Segment], originals: Sequence[Segment], made: Sequence[Segment]) -> list[Segment]:
        """Return the segments of a view again from what a compaction made of `parted`.

        Args:
            before: segments before the carrier that is sent.
            originals: the segments of the view.
            made: by the compaction, of the rest.
        """
        unsent = frozenset((*self._left_out, *self._instead))
        changed = {one.first: one for one in originals if any(id(m) in unsent for m in one.shown)}
        is_held = {one.first for one in made if one.round is not None and is_carrier(one.round.head.message)}
        return [*before, *(changed[one.first] if one.first in is_held & changed.keys() else one for one in made)]

    def _bare(self, segment: Segment) -> Segment:
        shown = self.as_sent(segment.shown)
        if len(shown) == len(segment.shown) and all(a is b for a, b in zip(shown, segment.shown, strict=True)):
            return segment
        return replace(segment, shown=tuple(shown), tokens=sum(one.tokens for one in shown))

    def _is_text_of(self, shown: RenderedMessage, sent: set[int]) -> bool:
        return is_carrier(shown.message) and shown.seq in self._texts and id(self._texts[shown.seq]) in sent

    def _placed(
        self, messages: Sequence[RenderedMessage], provider: str, model: str, required: Collection[int]
    ) -> tuple[list[RenderedMessage], int]:
        places = [index for index, shown in enumerate(messages) if is_carrier(shown.message)]
        if not places:
            return list(messages), 0
        readable = (place for place in reversed(places) if can_read(messages[place].message, provider, model))
        newest = next(readable, None)
        if newest is None:
            begins = next(index for index, shown in enumerate(messages) if shown.message["role"] not in SYSTEM_ROLES)
            first = {begins: self._as_text(messages[begins])} if begins == places[0] else {}
            others = frozenset(places)
            kept = [first.get(i, shown) for i, shown in enumerate(messages) if i in first or i not in others]
            return kept, 0
        carrier = messages[newest]
        instructions = [shown for shown in messages[:newest] if shown.message["role"] in SYSTEM_ROLES]
        rest = [shown for shown in messages[newest + 1 :] if not is_carrier(shown.message)]
        before = messages[:newest]
        verbatim = [one for one in before if one.seq > 0 and one.message["role"] not in SYSTEM_ROLES]
        later = verbatim if carrier.seq < 0 else _later(before, carrier.seq, required)
        return [*instructions, carrier, *(one for one in later if not is_carrier(one.message)), *rest], carrier.seq

    def _as_text(self, shown: RenderedMessage) -> RenderedMessage:
        known = self._texts.get(shown.seq)
        if known is None:
            known = self._texts[shown.seq] = shown.with_message(without_native_context(shown.message), self._counter)
        return known


def without_native_context(message: Message) -> Message:
    """Return a carrier as a message that any model reads: the text in it, or its label, without what is sealed."""
    text = carried_text(message)
    metadata = {key: value for key, value in metadata_of(message).items() if key not in NATIVE}
    plain = with_metadata(message, metadata)
    return {**plain, "content": quoted(_TITLE, text)} if text else plain


def _later(messages: Sequence[RenderedMessage], seq: int, required: Collection[int]) -> list[RenderedMessage]:
    """Return the messages of rounds that hold one from after an entry, or a required one.

    Such are a call, its results and what a person added.
    """
    rounds: list[list[RenderedMessage]] = []
    for shown in messages:
        if shown.message["role"] == "tool" and rounds:
            rounds[-1].append(shown)
        elif shown.message["role"] not in SYSTEM_ROLES:
            rounds.append([shown])
    return [shown for one in rounds if any(part.seq > seq or part.seq in required for part in one) for shown in one]
