"""What one request was sent: the messages, their size, and the limits that applied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..messages.parsing import Message, copy_message
from ..rendering.merge import merge_consecutive
from ..rendering.provider_limits import wants_short_ids, with_short_ids
from ..rendering.renderer import RenderedMessage
from ..rendering.thinking import without_thinking
from .cache_hints import with_cache_hints
from .meter import Key
from .prefix import RequestPrefix
from .prefix_break import PrefixBreak
from .trigger import TokenLimits
from .view import View
from .view_request import ViewRequest


@dataclass(frozen=True, slots=True)
class SentView:
    """The view of one request, for the meter, for events and for reports.

    Attributes:
        limits: of the request; its threshold is that of this view.
        messages: of the view, after the system prompt.
        counted: tokens of all of them.
        shared_prefix_tokens: of the messages at the start that the view before began with too.
        view: the view they were taken from; it goes on growing.
        prefix: what the request began with.
        reusable_tokens: of the messages at the start that its provider may read from its cache: those that the view
            sent to it before began with too.
        prefix_break: why the provider cannot read all that it had before; None if it can.
        compactions: accepted when it was handed out.
        newest_seq: highest seq of the entries that the view had then.
    """

    limits: TokenLimits
    key: Key
    system: Sequence[RenderedMessage]
    messages: Sequence[RenderedMessage]
    counted: int
    shared_prefix_tokens: int
    view: View
    prefix: RequestPrefix
    reusable_tokens: int = 0
    prefix_break: PrefixBreak | None = None
    compactions: int = 0
    newest_seq: int = 0

    async def digest(self) -> str:
        """Return the hash of the request, to which the thinking of its answer may be bound."""
        return await self.view.prefix_digest(self.messages, self.prefix)

    def is_valid_for(self, seqs: frozenset[int]) -> bool:
        """True if it is within its capacity and shows these entries as they were stored."""
        return self.counted <= self.limits.capacity and all(self.view.shows(seq) for seq in seqs)


def outgoing_messages(sent: SentView, *, merge: bool) -> list[Message]:
    """Return the messages of a sent view as its provider takes them. They are the caller's to change.

    Thinking blocks of other providers are left out, because they are signed. Call ids are shortened where the provider
    limits their length. Metadata marks for the provider where a cached prefix may end.

    Args:
        merge: true to merge consecutive messages of the same role.
    """
    messages = [message for message, _ in outgoing(sent.key, (*sent.system, *sent.messages), merge=merge)]
    return [copy_message(message) for message in with_cache_hints(messages, sent.key)]


def outgoing(key: Key, messages: Iterable[RenderedMessage], *, merge: bool) -> list[tuple[Message, tuple[int, ...]]]:
    """Return messages as `outgoing_messages` sends them, each with the seqs of the entries that it shows."""
    provider = key[0]
    made: list[tuple[Message, tuple[int, ...]]] = []
    for shown in messages:
        is_foreign = shown.provider and provider and shown.provider != provider
        message = without_thinking(shown.message) if is_foreign else shown.message
        if message is not None:
            made.append((message, (shown.seq,) if shown.seq > 0 else ()))
    if wants_short_ids(*key):
        made = list(zip(with_short_ids([message for message, _ in made]), (seqs for _, seqs in made), strict=True))
    if not merge:
        return made
    merged: list[tuple[Message, tuple[int, ...]]] = []
    for message, seqs in made:
        both = merge_consecutive([merged[-1][0], message]) if merged else [message]
        if merged and len(both) == 1:
            merged[-1] = both[0], (*merged[-1][1], *seqs)
        else:
            merged.append((message, seqs))
    return merged


def shared_prefix(before: Sequence[RenderedMessage], after: Sequence[RenderedMessage]) -> tuple[int, int]:
    """Return how many messages at the start are byte-identical, and their tokens."""
    count = tokens = 0
    for old, new in zip(before, after, strict=False):
        if old is not new and old.message != new.message:
            break
        count += 1
        tokens += new.tokens
    return count, tokens


async def unclipped(view: View, request: ViewRequest) -> tuple[list[RenderedMessage], int]:
    """Return what a request has of a view, whether it fits or not, and its tokens with the system prompt's."""
    await view.bind(request)  # another request may have bound it to its own prefix
    return view.view(), request.system_tokens + view.tokens


async def fitted(view: View, request: ViewRequest) -> tuple[list[RenderedMessage], int]:
    """Return what a request has of a view, as far as it can be made to fit, and its tokens with the system prompt's."""
    system_tokens, capacity = request.system_tokens, request.limits.capacity
    messages, counted = await unclipped(view, request)
    if counted <= capacity:
        return messages, counted
    messages = await view.clipped_to(capacity - system_tokens, request)
    return messages, system_tokens + sum(shown.tokens for shown in messages)
