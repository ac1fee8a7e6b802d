"""Merge neighbours of one role, for models that demand strict alternation (`merge_consecutive: true`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ..messages.carriers import is_carrier
from ..messages.parsing import THINKING_BLOCKS, Message, metadata_of

_MERGED = frozenset({"user", "assistant"})


def merge_consecutive(messages: Sequence[Message]) -> list[Message]:
    """Merge consecutive user messages, and assistant messages up to one with calls; leave others as they are.

    A message that carries a provider's own compaction is left as it is.

    Contents are joined in order. Other keys are taken from the first message, metadata where all messages agree.
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
    both: Message = {**second, **first, "content": _join(first["content"], second["content"])}
    ours, theirs = metadata_of(first), metadata_of(second)
    agreed = {key: value for key, value in ours.items() if key in theirs and theirs[key] == value}
    both.pop("metadata", None)
    return {**both, "metadata": agreed} if agreed else both


def _join(first: object, second: object) -> str | list[dict[str, Any]]:
    if not second:
        return cast("str | list[dict[str, Any]]", first)  # null content beside calls
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}" if first and second else first or second
    # Signed thinking may only begin a message. Models that demand alternation sign none.
    after = [block for block in _blocks(second) if block.get("type") not in THINKING_BLOCKS]
    return [*_blocks(first), *after]


def _blocks(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return cast("list[dict[str, Any]]", content)
