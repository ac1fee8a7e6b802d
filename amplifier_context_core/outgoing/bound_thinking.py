"""The messages of a request without thinking that is bound to another prefix (`RequestPrefix`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ..messages.tokens import TokenCounter
from ..rendering.renderer import RenderedMessage
from .prefix import RequestPrefix


def unbound(
    messages: Iterable[RenderedMessage], prefix: RequestPrefix, counter: TokenCounter
) -> dict[int, RenderedMessage | None]:
    """Return, by the identity of a message with thinking that is bound to another prefix, the message without it; None
    if nothing of it is left.
    """
    changed: dict[int, RenderedMessage | None] = {}
    digest = prefix.digest
    for shown in messages:
        sent: RenderedMessage | None = shown
        if prefix.binds(shown) and shown.prefix != digest.hex():
            sent = changed[id(shown)] = shown.bare(counter)
        if sent is not None:
            digest = _extended(digest, sent)
    return changed


def request_digest(messages: Iterable[RenderedMessage], prefix: RequestPrefix) -> str:
    """Return the hash of a request that sent these messages, in hexadecimal."""
    digest = prefix.digest
    for shown in messages:
        digest = _extended(digest, shown)
    return digest.hex()


def _extended(digest: bytes, shown: RenderedMessage) -> bytes:
    return hashlib.blake2b(digest + shown.digest, digest_size=16).digest()
