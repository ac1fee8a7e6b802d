"""Joining neighbours of one role, for models that demand strict alternation (`merge_consecutive: true`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from .messages import THINKING_BLOCKS, Message

_MERGED = frozenset({"user", "assistant"})


def merge_consecutive(messages: Sequence[Message]) -> list[Message]:
    """Consecutive user messages become one, likewise assistant messages without calls; all others stay as they are.

    The first message of a run gives its other keys; contents are joined in order.
    """
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last is not None and message["role"] == last["role"] and _joins(message) and _joins(last):
            merged[-1] = {**last, "content": _join(last["content"], message["content"])}
        else:
            merged.append(message)
    return merged


def _joins(message: Message) -> bool:
    return message["role"] in _MERGED and not message.get("tool_calls")


def _join(first: object, second: object) -> str | list[dict[str, Any]]:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}" if first and second else first or second
    # Signed thinking may only begin a message, and who demands alternation signs none.
    after = [block for block in _blocks(second) if block.get("type") not in THINKING_BLOCKS]
    return [*_blocks(first), *after]


def _blocks(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return cast("list[dict[str, Any]]", content)
