"""What a request is sent of the messages of a view: without what carriers replace, and without invalid thinking.

Both depend on what comes before a message and on the prefix of the request, never on what comes after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..futures import YIELD_EVERY
from ..messages.tokens import TokenCounter, are_large
from ..rendering.renderer import RenderedMessage
from .carriers import Changes, as_changed, placed
from .prefix import RequestPrefix, unbound


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
        return as_changed(messages, self.changed)


def outgoing(
    messages: Sequence[RenderedMessage],
    prefix: RequestPrefix,
    counter: TokenCounter,
    required: frozenset[int] = frozenset(),
) -> Outgoing:
    """`required` are seqs that the request must show."""
    if all(one.is_plain for one in messages):
        return Outgoing(messages, messages, tokens_of(messages))
    kept, carrier, changed = placed(messages, prefix.key, counter, required)
    if any(map(prefix.binds, kept)):
        bare = unbound(kept, prefix, counter)
        kept, changed = as_changed(kept, bare), {**changed, **bare}
    return Outgoing(messages, kept, tokens_of(kept), carrier, changed)


def hashes_much(messages: Sequence[RenderedMessage], prefix: RequestPrefix) -> bool:
    """True if `outgoing` hashes so much that it should run in a thread."""
    is_bound = any(prefix.binds(one) for one in messages if not one.is_plain)
    is_long = len(messages) > YIELD_EVERY  # each hash is chained to the one before, known or not
    return is_bound and (is_long or are_large(one.message for one in messages if not one.is_hashed))


def tokens_of(messages: Iterable[RenderedMessage]) -> int:
    return sum(shown.tokens for shown in messages)
