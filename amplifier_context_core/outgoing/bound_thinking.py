"""The messages of a request without thinking that is bound to another prefix (`RequestPrefix`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..messages.hashing import content_hash
from ..messages.tokens import TokenCounter
from ..rendering.renderer import RenderedMessage
from ..rendering.thinking import without_thinking
from .prefix import RequestPrefix


@dataclass(frozen=True, slots=True)
class Bound:
    shown: RenderedMessage  # as the view has it
    sent: RenderedMessage | None  # as it is sent: the same, or without its thinking; None if nothing of it is left
    digest: bytes  # hash of the request up to it and with it


def bound_messages(
    messages: Sequence[RenderedMessage], prefix: RequestPrefix, known: Iterable[Bound], counter: TokenCounter
) -> list[Bound]:
    """Return the messages of a request, without thinking that is bound to another prefix.

    `known` is of another request with the same prefix; a beginning that both share is not hashed again.
    """
    bound: list[Bound] = []
    for shown, before in zip(messages, known, strict=False):
        if shown is not before.shown and shown is not before.sent:
            break
        bound.append(before)
    digest = bound[-1].digest if bound else prefix.digest
    return [*bound, *bound_after(digest, messages[len(bound) :], prefix, counter)]


def bound_after(
    digest: bytes, messages: Sequence[RenderedMessage], prefix: RequestPrefix, counter: TokenCounter
) -> list[Bound]:
    """Return the messages that follow in a request whose hash is `digest` up to there."""
    bound: list[Bound] = []
    for shown in messages:
        sent: RenderedMessage | None = shown
        if shown.prefix != digest.hex() and prefix.binds(shown):
            sent = bare(shown, counter)
        if sent is not None:
            digest = hashlib.blake2b(digest + content_hash(sent.message), digest_size=16).digest()
        bound.append(Bound(shown, sent, digest))
    return bound


def bare(shown: RenderedMessage, counter: TokenCounter) -> RenderedMessage | None:
    """Leave the thinking out; return None if nothing is left."""
    message = without_thinking(shown.message)
    return None if message is None else shown.with_message(message, counter)
