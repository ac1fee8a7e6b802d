"""Merge neighbours of one role, for models that demand strict alternation (`merge_consecutive: true`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, cast

from ..messages.carriers import is_carrier
from ..messages.parsing import SEALED_KEYS, THINKING_BLOCKS, Message, metadata_of

_MERGED = frozenset({"user", "assistant"})


def merge_consecutive(messages: Sequence[Message]) -> list[Message]:
    """Merge consecutive user messages, and assistant messages up to one with calls; leave others as they are.

    A message that carries a provider's own compaction is left as it is.

    Contents are joined in order. Only thinking that begins a message is put before text of another, because a model
    may demand that a message with calls begins with it (docs/caching.md). Other keys are taken from the first message,
    copies of thinking from the last that has any, metadata where all messages agree.
    """
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last is not None and message["role"] == last["role"] and _joins(last) and not is_carrier(message):
            merged[-1] = _merged(last, message)
        else:
            merged.append(message)
    return merged


def _joins(message: Message) -> bool:
    return message["role"] in _MERGED and not message.get("tool_calls") and not is_carrier(message)


def _merged(first: Message, second: Message) -> Message:
    copies = {key: second[key] for key in SEALED_KEYS if second.get(key)}
    both: Message = {**second, **first, **copies, "content": _join(first["content"], second["content"])}
    ours, theirs = metadata_of(first), metadata_of(second)
    agreed = {key: value for key, value in ours.items() if key in theirs and theirs[key] == value}
    both.pop("metadata", None)
    return {**both, "metadata": agreed} if agreed else both


def _join(first: object, second: object) -> str | list[dict[str, Any]]:
    if not second:
        return cast("str | list[dict[str, Any]]", first)  # null content beside calls
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}" if first and second else first or second
    ours, theirs = _blocks(first), _blocks(second)
    thoughts = [] if ours and _is_thinking(ours[0]) else list(takewhile(_is_thinking, theirs))
    return [*thoughts, *ours, *theirs[len(thoughts) :]]


def _is_thinking(block: dict[str, Any]) -> bool:
    return block.get("type") in THINKING_BLOCKS


def _blocks(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return cast("list[dict[str, Any]]", content)
