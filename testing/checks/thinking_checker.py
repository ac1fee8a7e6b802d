"""Checkers of thinking: would the provider of a model take the thinking in a request?

Each is a vendor's rule as code. A checker hears every request and its answer, as the provider does, and remembers for
each answer what it needs to judge it when it comes back. It imports nothing from the core: a judge does not ask the
accused. docs/caching.md gives the sources of the rules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from .message_shapes import CALL_BLOCKS, Message, as_list, as_mapping, blocks_of, calls_of

_THINKING = ("thinking", "redacted_thinking", "reasoning")
_NOT_SENT = frozenset({"metadata", "timestamp", "visibility"})


class ThinkingChecker(Protocol):
    """A vendor's rule for the thinking of earlier answers."""

    def check(self, messages: Sequence[Message], tools: object = ()) -> list[str]:
        """Return the broken rules, each as a sentence that names a message by its index; empty for a valid request."""
        ...

    def answered(self, messages: Sequence[Message], answer: Message, tools: object = ()) -> None: ...


class BoundThinkingChecker:
    """Anthropic, "Preserved thinking": a block is valid only after the request that it answered.

    The prefix is the system prompt, the tools and all messages before it. A block that no request of this checker
    produced is invalid, too.
    """

    def __init__(self) -> None:
        self._prefixes: dict[str, set[str]] = {}  # by seal, hashes of the requests that such a block answered

    def check(self, messages: Sequence[Message], tools: object = ()) -> list[str]:
        digest = _Digest(tools)
        broken: list[str] = []
        for index, message in enumerate(messages):
            if any(digest.now() not in self._prefixes.get(seal, ()) for seal in seals_of(message)):
                broken.append(f"message {index}: its thinking is bound to a different conversation")
            digest.add(message)
        return broken

    def answered(self, messages: Sequence[Message], answer: Message, tools: object = ()) -> None:
        for seal in seals_of(answer):
            self._prefixes.setdefault(seal, set()).add(_Digest(tools, messages).now())


class RequiredThinkingChecker:
    """Anthropic's manual thinking, Gemini 3, DeepSeek: calls of the running loop come with the thinking before them.

    The running loop begins at the last message in the role of the user that is no result of a tool. Gemini seals its
    thinking on the calls themselves (`signature`), and provider-gemini sends it from `tool_calls`.
    """

    def __init__(self) -> None:
        self._thinking: dict[str, str] = {}  # by call id, the thinking of the answer that made it
        self._signatures: dict[str, str] = {}  # by call id, its signature

    def check(self, messages: Sequence[Message], tools: object = ()) -> list[str]:
        last = max((index for index, message in enumerate(messages) if message.get("role") == "user"), default=-1)
        broken: list[str] = []
        for index, message in enumerate(messages[last + 1 :], last + 1):
            wanted = {self._thinking[call.id] for call in calls_of(message) if call.id in self._thinking}
            if message.get("role") == "assistant" and wanted and {_thinking_text(message)} != wanted:
                broken.append(f"message {index}: calls of the running loop without the thinking before them")
            sent = {call["id"]: call.get("signature") for call in message.get("tool_calls") or ()}
            lost = [call.id for call in calls_of(message) if self._signatures.get(call.id) != sent.get(call.id)]
            broken += [f"message {index}: the call {name!r} without its signature, or with another" for name in lost]
        return broken

    def answered(self, messages: Sequence[Message], answer: Message, tools: object = ()) -> None:
        if seals_of(answer):
            self._thinking.update((call.id, _thinking_text(answer)) for call in calls_of(answer))
        blocks = [block for _, block in blocks_of(answer.get("content")) if block.get("type") in CALL_BLOCKS]
        for call in (*blocks, *(answer.get("tool_calls") or ())):
            if call.get("signature"):
                self._signatures[call["id"]] = call["signature"]


class FreeThinkingChecker:
    """OpenAI and others: thinking may come back or not, but never changed."""

    def __init__(self) -> None:
        self._seals: set[str] = set()

    def check(self, messages: Sequence[Message], tools: object = ()) -> list[str]:
        return [
            f"message {index}: thinking that no answer had"
            for index, message in enumerate(messages)
            if not self._seals.issuperset(seals_of(message))
        ]

    def answered(self, messages: Sequence[Message], answer: Message, tools: object = ()) -> None:
        self._seals.update(seals_of(answer))


def seals_of(message: Message) -> list[str]:
    if message.get("role") != "assistant":
        return []
    sealed = [block for block in _wire_blocks(message) if block.get("type") in _THINKING and _is_sealed(block)]
    extra = [message[key] for key in ("thinking_block", "thinking_blocks", "reasoning_details") if message.get(key)]
    return [_canonical(_sent(block)) for block in sealed] + [_canonical(copy) for copy in extra]


class _Digest:
    """A hash of what a provider reads: the tools and the messages, without what is for hosts only."""

    def __init__(self, tools: object, messages: Sequence[Message] = ()) -> None:
        self._hash = hashlib.sha256(_canonical(tools).encode())
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> None:
        self._hash.update(_message_hash(message))

    def now(self) -> str:
        return self._hash.hexdigest()


def _message_hash(message: Message) -> bytes:
    rest = {key: value for key, value in message.items() if key not in _NOT_SENT and key != "content"}
    wire = [_sent(block) for block in _wire_blocks(message)]
    content = message.get("content")
    body: object = wire or (content if isinstance(content, str) else "")
    return hashlib.sha256(_canonical([rest, body]).encode()).digest()


def _wire_blocks(message: Message) -> list[Mapping[str, Any]]:
    """Return the blocks that provider-anthropic would send: the copy of the wire form where it still fits."""
    content = [block for _, block in blocks_of(message.get("content"))]
    own = as_mapping(message.get("metadata")) or {}
    wire = as_list((as_mapping(own.get("anthropic")) or {}).get("wire_content"))
    copied = [block for block in map(as_mapping, wire or ()) if block is not None]
    if not copied or message.get("role") != "assistant":
        return content
    ids = [block.get("id") for block in copied if block.get("type") == "tool_use"]
    if ids != [call.id for call in calls_of(message)]:
        return content
    if isinstance(message.get("content"), list) and _text(copied) != _text(content):
        return content
    return copied


def _text(blocks: Sequence[Mapping[str, Any]]) -> str:
    return "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


def _is_sealed(block: Mapping[str, Any]) -> bool:
    return bool(block.get("signature") or block.get("data") or block.get("content"))


def _thinking_text(message: Message) -> str:
    return _canonical([_sent(block) for block in _wire_blocks(message) if block.get("type") in _THINKING])


def _sent(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in _NOT_SENT}


def _canonical(value: object) -> str:
    return json.dumps(cast("Any", value), sort_keys=True)
