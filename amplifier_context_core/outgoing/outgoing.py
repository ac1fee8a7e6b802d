"""What a request is sent of the messages of a view: without what carriers replace, and without invalid thinking.

Both depend on what comes before a message and on the prefix of the request, never on what comes after it. So of a view
that only grew since a known request with the same prefix, only the new messages are read and hashed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import is_

from ..messages.carriers import is_carrier
from ..messages.parsing import is_signed
from ..messages.tokens import TokenCounter, are_large
from ..rendering.renderer import RenderedMessage
from .bound_thinking import Bound, bound_after, bound_messages
from .carriers import NOTHING_PLACED, Placing, placed
from .prefix import RequestPrefix


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What a request is sent of the messages of a view. Do not mutate the lists."""

    prefix: RequestPrefix
    source: Sequence[RenderedMessage]
    messages: Sequence[RenderedMessage]
    tokens: int
    bound: Sequence[Bound] = ()  # what the carriers leave of the source, with hashes; empty if no thinking is bound
    placing: Placing = NOTHING_PLACED
    required: frozenset[int] = frozenset()  # seqs of what is sent although the carrier replaces it
    is_plain: bool = True  # every request is sent the source as it is: no carrier and no signed thinking is in it

    def as_sent(self, messages: Iterable[RenderedMessage]) -> list[RenderedMessage]:
        """Messages of the source stay in its order."""
        kept = self.placing.as_sent(messages)
        changed = {id(one.shown): one.sent for one in self.bound if one.sent is not one.shown}
        sent = (changed.get(id(shown), shown) for shown in kept) if changed else kept
        return [shown for shown in sent if shown is not None]

    def replaced_tokens(self, messages: Iterable[RenderedMessage]) -> int:
        """Return the tokens of some messages of the source that a carrier replaces."""
        if not self.placing.changed:
            return 0
        whole = list(messages)
        return tokens_of(whole) - tokens_of(self.placing.as_sent(whole))

    def digest(self, messages: Sequence[RenderedMessage], counter: TokenCounter) -> str:
        """Return the hash of a request that sent these messages, in hexadecimal."""
        if self.bound and self.messages == messages:
            return self.bound[-1].digest.hex()
        known = [one for one in self.bound if one.sent is not None]
        bound = bound_messages(messages, self.prefix, known, counter)
        return (bound[-1].digest if bound else self.prefix.digest).hex()


def unread(messages: Sequence[RenderedMessage], known: Outgoing | None) -> Sequence[RenderedMessage]:
    """Return the messages that `outgoing` reads: those after the source of the known request, if they begin with it."""
    is_grown = known is not None and len(known.source) <= len(messages) and all(map(is_, known.source, messages))
    return messages[len(known.source) :] if known is not None and is_grown else messages


def outgoing(
    messages: Sequence[RenderedMessage],
    prefix: RequestPrefix,
    counter: TokenCounter,
    required: frozenset[int] = frozenset(),
    known: Outgoing | None = None,
) -> Outgoing:
    """`required` are seqs that the request must show. `known`, of another request for the view, only saves work."""
    new = unread(messages, known)
    base = known if len(new) < len(messages) else None
    is_plain = base is None or base.is_plain
    has_carrier = any(is_carrier(one.message) for one in new)
    if is_plain and not has_carrier and not any(is_signed(one.message) for one in new):
        return Outgoing(prefix, messages, messages, (base.tokens if base else 0) + tokens_of(new))
    if base is not None and not is_plain and base.prefix == prefix and base.required == base.placing.replaced(required):
        if not new:
            return base
        if not has_carrier and (base.bound or not any(map(prefix.binds, new))):
            return _grown(base, messages, new, counter)
    kept, placing = placed(messages, prefix.key, counter, required)
    bound: Sequence[Bound] = ()
    if any(map(prefix.binds, kept)):
        hashed = known.bound if known is not None and known.prefix == prefix else ()
        bound = bound_messages(kept, prefix, hashed, counter)
        kept = [one.sent for one in bound if one.sent is not None]
    replaced = placing.replaced(required)
    return Outgoing(prefix, messages, kept, tokens_of(kept), bound, placing, replaced, is_plain=False)


def hashes_much(
    messages: Sequence[RenderedMessage], prefix: RequestPrefix, required: frozenset[int], known: Outgoing | None
) -> bool:
    """True if `outgoing` hashes so much that it should run in a thread."""
    is_same = known is not None and known.prefix == prefix and known.required == known.placing.replaced(required)
    read = unread(messages, known if is_same else None)
    is_bound = bool(is_same and known and known.bound) or any(map(prefix.binds, read))
    return is_bound and are_large(one.message for one in read)


def _grown(
    base: Outgoing, messages: Sequence[RenderedMessage], new: Sequence[RenderedMessage], counter: TokenCounter
) -> Outgoing:
    """Messages came to those of a request that changes some of them."""
    bound = bound_after(base.bound[-1].digest, new, base.prefix, counter) if base.bound else ()
    added = [one.sent for one in bound if one.sent is not None] if base.bound else new
    return replace(
        base,
        source=messages,
        messages=[*base.messages, *added],
        tokens=base.tokens + tokens_of(added),
        bound=[*base.bound, *bound],
    )


def tokens_of(messages: Iterable[RenderedMessage]) -> int:
    return sum(shown.tokens for shown in messages)
