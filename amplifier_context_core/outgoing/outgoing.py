"""What a request is sent of the messages of a view: without what carriers replace, and without invalid thinking.

Both depend on what comes before a message and on the prefix of the request, never on what comes after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..futures import YIELD_EVERY
from ..messages.tokens import TokenCounter, are_large
from ..rendering.renderer import RenderedMessage
from .carriers import NOTHING_PLACED, Placing, placed
from .prefix import RequestPrefix, unbound


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What a request is sent of the messages of a view. Do not mutate the lists."""

    prefix: RequestPrefix
    source: Sequence[RenderedMessage]  # the messages of the view, which the identities below are of
    messages: Sequence[RenderedMessage]
    tokens: int
    placing: Placing = NOTHING_PLACED
    # By the identity of a message of the view, what is sent in its place without thinking; None for nothing.
    unbound: Mapping[int, RenderedMessage | None] = field(default_factory=dict[int, RenderedMessage | None])

    def as_sent(self, messages: Iterable[RenderedMessage]) -> list[RenderedMessage]:
        """Messages of the source stay in its order."""
        sent = (self.unbound.get(id(shown), shown) for shown in self.placing.as_sent(messages))
        return [shown for shown in sent if shown is not None]

    def replaced_tokens(self, messages: Iterable[RenderedMessage]) -> int:
        """Return the tokens of some messages of the source that a carrier replaces."""
        if not self.placing.changed:
            return 0
        whole = list(messages)
        return tokens_of(whole) - tokens_of(self.placing.as_sent(whole))


def outgoing(
    messages: Sequence[RenderedMessage],
    prefix: RequestPrefix,
    counter: TokenCounter,
    required: frozenset[int] = frozenset(),
) -> Outgoing:
    """`required` are seqs that the request must show."""
    if all(one.is_plain for one in messages):
        return Outgoing(prefix, messages, messages, tokens_of(messages))
    kept, placing = placed(messages, prefix.key, counter, required)
    changed = unbound(kept, prefix, counter) if any(map(prefix.binds, kept)) else {}
    sent = [one for one in (changed.get(id(shown), shown) for shown in kept) if one is not None]
    return Outgoing(prefix, messages, sent, tokens_of(sent), placing, changed)


def hashes_much(messages: Sequence[RenderedMessage], prefix: RequestPrefix) -> bool:
    """True if `outgoing` hashes so much that it should run in a thread."""
    is_bound = any(prefix.binds(one) for one in messages if not one.is_plain)
    is_long = len(messages) > YIELD_EVERY  # each hash is chained to the one before, known or not
    return is_bound and (is_long or are_large(one.message for one in messages if not one.is_hashed))


def tokens_of(messages: Iterable[RenderedMessage]) -> int:
    return sum(shown.tokens for shown in messages)
