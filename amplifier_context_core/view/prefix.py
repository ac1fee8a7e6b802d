"""The prefix of a request, and thinking that is bound to it.

A model that binds thinking takes a block of it only after the very messages, tools and system prompt that the model
had read when it wrote the block. So an answer with such thinking is stored with a hash of the request that it answers
(`Response.prefix`). A view shows the thinking of an answer only where the hash of all that precedes it is the same.

No kind of edit has a rule of its own, because each changes that hash: a compaction, a pin, an edit by the host, an
erased message, other tools, another system prompt, another model. The same holds in a resumed session.
docs/thinking.md has the vendors' rules.

No I/O. Large messages are hashed in a thread.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..futures import in_thread_if
from ..messages.hashing import content_hash
from ..messages.parsing import Message, is_signed
from ..messages.tokens import TokenCounter, are_large
from ..messages.usage import Response
from ..rendering.renderer import RenderedMessage
from ..rendering.thinking import ThinkingRule, declares_binding, thinking_rule, without_thinking

Tools = Mapping[str, object]  # by name, the kernel's tools


@dataclass(frozen=True, slots=True)
class RequestPrefix:
    """What a request begins with, before the messages of its view.

    Attributes:
        provider: name of the provider; empty if it is not known.
        model: name of the model; empty if it is not known.
        digest: hash of both, of the tools and of the system prompt.
    """

    provider: str = ""
    model: str = ""
    digest: bytes = b""

    @classmethod
    def of(cls, key: tuple[str, str], tools: Tools, system: Sequence[RenderedMessage]) -> RequestPrefix:
        """Return what a request to a model begins with.

        Args:
            key: provider and model.
            tools: that the request offers.
            system: the system prompt.
        """
        digest = hashlib.blake2b("\0".join(key).encode("utf-8", "surrogatepass"), digest_size=16)
        for name, tool in tools.items():
            digest.update(_described(name, tool))
        for shown in system:
            digest.update(content_hash(shown.message))
        return cls(*key, digest.digest())

    @property
    def key(self) -> tuple[str, str]:
        """Provider and model."""
        return self.provider, self.model

    def binds(self, shown: RenderedMessage) -> bool:
        """True if thinking of a message is bound. Where the request names no model, the message's own counts."""
        return self._binds(shown.message, shown.provider, shown.model)

    def binds_answer(self, message: Message, response: Response | None) -> bool:
        """True if an answer to the request has thinking that is bound to it.

        Args:
            message: the answer, of any shape; it is not checked yet.
            response: what the provider reported of it.
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


@dataclass(frozen=True, slots=True)
class Bound:
    """A message of a view in a request.

    Attributes:
        shown: as the view has it.
        sent: as it is sent: the same, or without its thinking; None if nothing of it is left.
        digest: hash of the request up to it and with it.
    """

    shown: RenderedMessage
    sent: RenderedMessage | None
    digest: bytes


async def bound_messages(
    messages: Sequence[RenderedMessage], prefix: RequestPrefix, known: Sequence[Bound], counter: TokenCounter
) -> list[Bound]:
    """Return the messages of a request, without thinking that is bound to another prefix.

    Args:
        messages: of a view.
        prefix: what the request begins with.
        known: of an earlier request with the same prefix; a beginning that both share is not hashed again.
        counter: text to tokens.
    """
    bound: list[Bound] = []
    for shown, before in zip(messages, known, strict=False):
        if shown is not before.shown and shown is not before.sent:
            break
        bound.append(before)
    bound += await bound_after(bound[-1].digest if bound else prefix.digest, messages[len(bound) :], prefix, counter)
    return bound


async def bound_after(
    digest: bytes, messages: Sequence[RenderedMessage], prefix: RequestPrefix, counter: TokenCounter
) -> list[Bound]:
    """Return the messages at the end of a request, without thinking that is bound to another prefix.

    Args:
        digest: hash of the request before them.
        messages: of a view.
        prefix: what the request begins with.
        counter: text to tokens.
    """
    return await in_thread_if(
        are_large(shown.message for shown in messages), _bound_after, digest, messages, prefix, counter
    )


def _bound_after(
    digest: bytes, messages: Sequence[RenderedMessage], prefix: RequestPrefix, counter: TokenCounter
) -> list[Bound]:
    bound: list[Bound] = []
    for shown in messages:
        sent: RenderedMessage | None = shown
        if shown.prefix != digest.hex() and is_bound(shown, prefix):
            sent = stripped(shown, counter)
        if sent is not None:
            digest = hashlib.blake2b(digest + content_hash(sent.message), digest_size=16).digest()
        bound.append(Bound(shown, sent, digest))
    return bound


def stripped(shown: RenderedMessage, counter: TokenCounter) -> RenderedMessage | None:
    """Return a message without its thinking, counted; None if nothing is left."""
    message = without_thinking(shown.message)
    return None if message is None else shown.with_message(message, counter)


def _described(name: str, tool: object) -> bytes:
    """Return what a request states of a tool. An attribute that is missing, or fails to be read, counts as None."""
    parts: list[object] = [name]
    for attribute in ("description", "input_schema"):
        try:
            parts.append(json.dumps(getattr(tool, attribute, None), default=repr))
        except Exception:  # noqa: BLE001 - a fault of a tool must not end the request
            parts.append(None)
    return json.dumps(parts).encode()


def tools_of(mounted: object) -> Tools:
    """Return the tools that a coordinator has mounted; none if it answers with anything else."""
    return cast("Mapping[str, Any]", mounted) if isinstance(mounted, Mapping) else {}


def is_bound(shown: RenderedMessage, prefix: RequestPrefix) -> bool:
    """True if a message has thinking that is bound in a request with this prefix."""
    return shown.message["role"] == "assistant" and is_signed(shown.message) and prefix.binds(shown)
