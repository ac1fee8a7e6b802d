"""The prefix of a request, and thinking that is bound to it.

A model that binds thinking takes a block of it only after the very messages, tools and system prompt that the model
had read when it wrote the block. So an answer with such thinking is stored with a hash of the request that it answers
(`Response.prefix`). A view shows the thinking of an answer only where the hash of all that precedes it is the same.

No kind of edit has a rule of its own, because each changes that hash: a compaction, a pin, an edit by the host, an
erased message, other tools, another system prompt, another model. The same holds in a resumed session.
docs/caching.md has the vendors' rules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..messages.hashing import content_hash
from ..messages.parsing import Message, is_signed
from ..messages.tokens import TokenCounter
from ..messages.usage import Response
from ..rendering.renderer import RenderedMessage
from ..rendering.thinking import ThinkingRule, declares_binding, thinking_rule

Tools = Mapping[str, object]  # by name, the kernel's tools


@dataclass(frozen=True, slots=True)
class RequestPrefix:
    """What a request begins with, before the messages of its view; `digest` covers tools and system prompt as well."""

    provider: str = ""
    model: str = ""
    digest: bytes = b""

    @classmethod
    def of(cls, key: tuple[str, str], tools: Tools, system: Sequence[RenderedMessage]) -> RequestPrefix:
        digest = hashlib.blake2b("\0".join(key).encode("utf-8", "surrogatepass"), digest_size=16)
        for name, tool in tools.items():
            digest.update(_described(name, tool))
        for shown in system:
            digest.update(content_hash(shown.message))
        return cls(*key, digest.digest())

    @property
    def key(self) -> tuple[str, str]:
        return self.provider, self.model

    def binds(self, shown: RenderedMessage) -> bool:
        """True if a message has thinking that is bound. Where the request names no model, the message's own counts."""
        if shown.is_plain or shown.message["role"] != "assistant":  # else it is signed: no carrier is an assistant's
            return False
        known = getattr(shown, "bound_for", None)
        if known is None or known[0] != self.key:
            known = self.key, self._binds(shown.message, shown.provider, shown.model)
            object.__setattr__(shown, "bound_for", known)
        return known[1]

    def binds_answer(self, message: Message, response: Response | None) -> bool:
        """True if an answer to the request has thinking that is bound to it. The answer is not checked yet: it has any
        shape.
        """
        try:
            signed = is_signed(message)
        except (AttributeError, TypeError):  # no message: the history refuses it
            return False
        return signed and self._binds(message, response and response.provider, response and response.model)

    def _binds(self, message: Message, provider: str | None, model: str | None) -> bool:
        if self.model or not model:
            provider, model = self.provider, self.model
        rule = thinking_rule(provider or self.provider, model)
        return rule is ThinkingRule.BOUND or declares_binding(message)


def _described(name: str, tool: object) -> bytes:
    """An attribute that is missing, or fails to be read, counts as None."""
    parts: list[object] = [name]
    for attribute in ("description", "input_schema"):
        try:
            parts.append(json.dumps(getattr(tool, attribute, None), default=repr))
        except Exception:  # noqa: BLE001 - a fault of a tool must not end the request
            parts.append(None)
    return json.dumps(parts).encode()


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
