"""The messages of one view as the last request has them: without what carriers replace and without invalid thinking.

Both depend on what comes before a message and on the prefix of the request, never on what comes after it. So of a view
that only grew since the last request with the same prefix, only the new messages are read and hashed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..compaction.checkpoint import Segment
from ..messages.carriers import is_carrier
from ..messages.parsing import is_signed
from ..messages.tokens import TokenCounter
from ..rendering.renderer import RenderedMessage
from .carried import Carried
from .prefix import Bound, RequestPrefix, bound_after, bound_messages, is_bound, stripped


@dataclass(frozen=True, slots=True)
class _Request:
    """The messages of one request.

    Attributes:
        prefix: what it begins with.
        count: messages of the view then.
        sent: the messages.
        bound: the same with their hashes; empty if no thinking is bound.
        left_out: tokens of the view that are not sent.
        unsent: those of them that are of the checkpoint.
        required: seqs of what it shows although the carrier replaces it.
        is_plain: every request shows these messages as they are: no carrier and no signed thinking is among them.
    """

    prefix: RequestPrefix
    count: int
    sent: list[RenderedMessage]
    bound: Sequence[Bound] = ()
    left_out: int = 0
    unsent: int = 0
    required: frozenset[int] = frozenset()
    is_plain: bool = True


_NONE = _Request(RequestPrefix(), 0, [])


class RequestMessages:
    """The messages of a view as the last request has them.

    Args:
        counter: text to tokens.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._carried = Carried(counter)
        self._last = _NONE
        self._unchanged = 0  # messages at the start of the view that are as they were in the last request
        self._is_current = False
        self._changes = 0  # of the view
        self._hashed: tuple[RequestPrefix, Sequence[Bound]] = (RequestPrefix(), ())  # the last list that `digest` had

    def change(self, unchanged: int) -> None:
        """Note that the view changed after so many messages."""
        self._unchanged = min(self._unchanged, unchanged)
        self._is_current = False
        self._changes += 1

    def is_for(self, prefix: RequestPrefix, required: frozenset[int] = frozenset()) -> bool:
        """True if a request with this prefix has the same messages as the last one: no need to `bind` it."""
        return self._is_current and (self._last.is_plain or self._is_same(prefix, required))

    @property
    def sent(self) -> list[RenderedMessage] | None:
        """The messages; None if the view changed since the last request. Do not mutate them."""
        return self._last.sent if self._is_current else None

    @property
    def left_out(self) -> int:
        """Tokens of the view that the last request leaves out; 0 if the view changed since."""
        return self._last.left_out if self._is_current else 0

    @property
    def unsent(self) -> int:
        """Tokens of the checkpoint that a carrier replaces in the last request."""
        return self._last.unsent

    async def bind(
        self,
        messages: list[RenderedMessage],
        before: Iterable[RenderedMessage],
        prefix: RequestPrefix,
        required: frozenset[int] = frozenset(),
    ) -> None:
        """Take in a request. If the view changes meanwhile, nothing is noted of it.

        Args:
            messages: of the view; the list is not mutated, neither here nor by the view.
            before: those of the checkpoint.
            prefix: what the request begins with.
            required: seqs of entries that the request must show.
        """
        last, unchanged, changes = self._last, self._unchanged, self._changes
        new = messages[unchanged:]
        has_carrier = any(is_carrier(one.message) for one in new)
        is_plain = (last.is_plain or not unchanged) and not has_carrier
        if is_plain and not any(is_signed(one.message) for one in new):
            self._carried.bind((), *prefix.key)
            request = _Request(prefix, len(messages), messages)
        elif self._only_grew(prefix, required) and not has_carrier and (last.bound or not _any_bound(new, prefix)):
            bound = await bound_after(last.bound[-1].digest, new, prefix, self._counter) if last.bound else []
            added = _sent(bound) if last.bound else new
            request = replace(
                last,
                count=len(messages),
                sent=[*last.sent, *added],
                bound=[*last.bound, *bound],
                left_out=last.left_out + _tokens(new) - _tokens(added),
            )
        else:
            known = self._known(prefix)
            self._last, self._unchanged, self._is_current = _NONE, 0, False  # if this is cancelled
            placed = self._carried.bind(messages, *prefix.key, required)
            bound = await bound_messages(placed, prefix, known, self._counter) if _any_bound(placed, prefix) else []
            sent = _sent(bound) if bound else placed
            covered = list(before)
            unsent = _tokens(covered) - _tokens(self._carried.as_sent(covered))
            left_out = _tokens(messages) - _tokens(sent)
            replaced = self._carried.replaced(required)
            request = _Request(prefix, len(messages), sent, bound, left_out, unsent, replaced, is_plain=False)
        if self._changes == changes:
            self._last, self._unchanged, self._is_current = request, len(messages), True

    async def clipped(
        self, messages: list[RenderedMessage], prefix: RequestPrefix, required: frozenset[int] = frozenset()
    ) -> list[RenderedMessage]:
        """Return messages of the view, some of them clipped, as the request has them. Nothing is noted."""
        if self._is_current and self._last.is_plain:
            return messages
        placed = self._carried.placed(messages, *prefix.key, required)
        if not _any_bound(placed, prefix):
            return placed
        return _sent(await bound_messages(placed, prefix, self._known(prefix), self._counter))

    async def digest(self, messages: Sequence[RenderedMessage], prefix: RequestPrefix) -> str:
        """Return the hash of a request that sent these messages, in hexadecimal."""
        last = self._last
        if last.bound and last.prefix == prefix and last.sent == messages:
            return last.bound[-1].digest.hex()
        known = [one for one in self._known(prefix) if one.sent is not None]
        bound = await bound_messages(messages, prefix, known, self._counter)
        self._hashed = prefix, bound
        return (bound[-1].digest if bound else prefix.digest).hex()

    def as_sent(self, messages: Iterable[RenderedMessage]) -> list[RenderedMessage]:
        """Return some messages of the view as they are in the last request, in the order of the view."""
        kept = self._carried.as_sent(messages)
        changed = {id(one.shown): one.sent for one in self._last.bound if one.sent is not one.shown}
        sent = (changed.get(id(shown), shown) for shown in kept) if changed else kept
        return [shown for shown in sent if shown is not None]

    def without_bound(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return segments without bound thinking, all of whose prefixes are about to change."""
        return [self._without_bound(one) if any(is_signed(m.message) for m in one.shown) else one for one in segments]

    def _without_bound(self, segment: Segment) -> Segment:
        prefix = self._last.prefix
        bare = [stripped(shown, self._counter) if is_bound(shown, prefix) else shown for shown in segment.shown]
        shown = tuple(one for one in bare if one is not None)
        return segment if shown == segment.shown else replace(segment, shown=shown, tokens=_tokens(shown))

    @property
    def carried(self) -> Carried:
        """The carriers, as the last request shows them."""
        return self._carried

    def _only_grew(self, prefix: RequestPrefix, required: frozenset[int]) -> bool:
        is_same = not self._last.is_plain and self._is_same(prefix, required)
        return is_same and self._unchanged == self._last.count

    def _is_same(self, prefix: RequestPrefix, required: frozenset[int]) -> bool:
        return self._last.prefix == prefix and self._last.required == self._carried.replaced(required)

    def _known(self, prefix: RequestPrefix) -> Sequence[Bound]:
        if self._last.bound and self._last.prefix == prefix:
            return self._last.bound
        hashed_prefix, hashed = self._hashed
        return hashed if hashed_prefix == prefix else ()


def _any_bound(messages: Sequence[RenderedMessage], prefix: RequestPrefix) -> bool:
    return any(is_bound(shown, prefix) for shown in messages)


def _sent(bound: Sequence[Bound]) -> list[RenderedMessage]:
    return [one.sent for one in bound if one.sent is not None]


def _tokens(messages: Iterable[RenderedMessage]) -> int:
    return sum(shown.tokens for shown in messages)
