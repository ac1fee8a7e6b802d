"""What a request is sent of the messages of a view: without what carriers replace, and without invalid thinking.

Both depend on what comes before a message and on the prefix of the request, never on what comes after it.

A view holds the originals and, of what a provider compacted itself, its carriers (`messages/carriers.py`). What a
request shows of them depends on its model:

- The newest carrier that the model reads comes first, after instructions. Nothing before it is sent, and no other one.
- A model that reads none gets the originals. A carrier without originals before it is shown as the text in it.

A round before the carrier that has a message from after it (a late result) follows the carrier. So does a round with a
message that the request must show. A carrier beside a chapter (context-summary puts it there) replaces only chapters:
rounds that had to stay verbatim follow it.

A strategy gets neither what a carrier replaces nor the carriers that are not sent. They remain in the checkpoint, for
requests to other models.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ..futures import YIELD_EVERY
from ..messages.carriers import can_read, carried_text, is_carrier
from ..messages.parsing import SYSTEM_ROLES, Message, metadata_of, with_metadata
from ..messages.reminders import NATIVE
from ..messages.tokens import TokenCounter, are_large
from ..rendering.quoting import quoted
from ..rendering.renderer import RenderedMessage
from .prefix import RequestPrefix, unbound

_TITLE = "An earlier part of the conversation, as its provider summarised it"

Changes = dict[int, RenderedMessage | None]
"""By the identity of a message of a view, what is sent in its place; None for nothing."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What a request is sent of the messages of a view. Do not mutate the lists."""

    source: Sequence[RenderedMessage]  # the messages of the view, which the identities below are of
    messages: Sequence[RenderedMessage]
    tokens: int
    carrier: int = 0  # seq of the carrier that is sent in place of some; 0 for none
    changed: Changes = field(default_factory=Changes)  # without what carriers replace, and without invalid thinking

    def as_sent(self, messages: Iterable[RenderedMessage]) -> list[RenderedMessage]:
        """Messages of the source stay in its order."""
        return _changed(messages, self.changed)


def outgoing(
    messages: Sequence[RenderedMessage], prefix: RequestPrefix, counter: TokenCounter, required: Collection[int] = ()
) -> Outgoing:
    """`required` are seqs that the request must show."""
    if all(one.is_plain for one in messages):
        return Outgoing(messages, messages, tokens_of(messages))
    kept, carrier, changed = _placed(messages, prefix.key, counter, required)
    if any(map(prefix.binds, kept)):
        bare = unbound(kept, prefix, counter)
        kept, changed = _changed(kept, bare), {**changed, **bare}
    return Outgoing(messages, kept, tokens_of(kept), carrier, changed)


def hashes_much(messages: Sequence[RenderedMessage], prefix: RequestPrefix) -> bool:
    """True if `outgoing` hashes so much that it should run in a thread."""
    is_bound = any(prefix.binds(one) for one in messages if not one.is_plain)
    is_long = len(messages) > YIELD_EVERY  # each hash is chained to the one before, known or not
    return is_bound and (is_long or are_large(one.message for one in messages if not one.is_hashed))


def tokens_of(messages: Iterable[RenderedMessage]) -> int:
    return sum(shown.tokens for shown in messages)


def _placed(
    messages: Sequence[RenderedMessage], key: tuple[str, str], counter: TokenCounter, required: Collection[int] = ()
) -> tuple[Sequence[RenderedMessage], int, Changes]:
    """Return the messages of a view as a request to a model shows them, the seq of the carrier that is sent in place of
    some (as `RenderedMessage.seq`; 0 for none), and what that changed.

    `required` are seqs of entries that the request must show, whether a carrier replaces them or not.
    """
    read = ((index, shown.message) for index, shown in enumerate(messages) if not shown.is_plain)
    places = [index for index, message in read if message["role"] == "user" and is_carrier(message)]
    if not places:
        return messages, 0, {}
    readable = (place for place in reversed(places) if can_read(messages[place].message, *key))
    newest = next(readable, None)
    if newest is None:
        begins = next(index for index, shown in enumerate(messages) if shown.message["role"] not in SYSTEM_ROLES)
        changed: Changes = {id(messages[place]): None for place in places}
        if begins == places[0]:
            first = messages[begins]
            changed[id(first)] = first.with_message(_without_native_context(first.message), counter)
        return _changed(messages, changed), 0, changed
    carrier = messages[newest]
    instructions = [shown for shown in messages[:newest] if shown.message["role"] in SYSTEM_ROLES]
    rest = [shown for shown in messages[newest + 1 :] if not is_carrier(shown.message)]
    before = messages[:newest]
    verbatim = [one for one in before if one.seq > 0 and one.message["role"] not in SYSTEM_ROLES]
    later = verbatim if carrier.seq < 0 else _later(before, carrier.seq, required)
    kept = [*instructions, carrier, *(one for one in later if not is_carrier(one.message)), *rest]
    sent = {id(shown) for shown in kept}
    left_out: Changes = {id(one): None for one in messages if id(one) not in sent}
    return kept, carrier.seq if left_out else 0, left_out


def _without_native_context(message: Message) -> Message:
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


def _changed(messages: Iterable[RenderedMessage], changed: Changes) -> list[RenderedMessage]:
    """Messages of the view stay in its order."""
    return [shown for shown in (changed.get(id(one), one) for one in messages) if shown is not None]
