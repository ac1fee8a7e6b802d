"""What one request was sent: the messages, their size, and the limits that applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..economics.cold_cache import PrefixBreak
from ..economics.meter import Key
from ..economics.trigger import TokenLimits
from ..futures import YIELD_EVERY, in_thread_if
from ..messages.parsing import Message, copy_message
from ..messages.tokens import are_large
from ..outgoing.outgoing import Outgoing
from ..outgoing.prefix import RequestPrefix, request_digest
from ..outgoing.provider_messages import provider_messages, with_cache_hints
from ..rendering.renderer import RenderedMessage
from .view import View


@dataclass(frozen=True, slots=True)
class SentView:
    """The view of one request, for the meter, for events and for reports."""

    limits: TokenLimits  # of the request; its threshold is that of this view
    system: Sequence[RenderedMessage]
    messages: Sequence[RenderedMessage]  # of the view, after the system prompt
    counted: int  # tokens of all of them
    view: View  # the view they were taken from; it goes on growing
    outgoing: Outgoing  # what the request had of that view before anything was clipped or added
    newest_seq: int  # highest seq of the entries that the view had then
    shared_prefix_tokens: int = 0  # of the messages at the start that the view before began with too
    reusable_tokens: int = 0  # the same of the view sent to its provider before, which may read them from its cache
    prefix_break: PrefixBreak | None = None  # why the provider cannot read all that it had before; None if it can
    compactions: int = 0  # accepted when it was handed out

    @property
    def prefix(self) -> RequestPrefix:
        return self.outgoing.prefix

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the system prompt."""
        return sum(shown.tokens for shown in self.system)

    @property
    def key(self) -> Key:
        return self.prefix.key

    async def digest(self) -> str:
        """Return the hash of the request, to which the thinking of its answer may be bound."""
        new = (shown.message for shown in self.messages if not shown.is_hashed)
        is_long = len(self.messages) > YIELD_EVERY or are_large(new)
        return await in_thread_if(is_long, request_digest, self.messages, self.prefix)

    def is_valid_for(self, seqs: frozenset[int]) -> bool:
        """True if it is within its capacity and shows these entries as they were stored."""
        return self.counted <= self.limits.capacity and all(self.view.shows(seq) for seq in seqs)


def outgoing_messages(sent: SentView, *, merge: bool) -> list[Message]:
    """They are the caller's to change."""
    messages = [message for message, _ in provider_messages(sent.key, (*sent.system, *sent.messages), merge=merge)]
    return [copy_message(message) for message in with_cache_hints(messages, sent.key)]


def shared_prefix(before: Sequence[RenderedMessage], after: Sequence[RenderedMessage]) -> tuple[int, int]:
    """Return how many messages at the start are byte-identical, and their tokens."""
    count = tokens = 0
    for old, new in zip(before, after, strict=False):
        if old is not new and old.message != new.message:
            break
        count += 1
        tokens += new.tokens
    return count, tokens
