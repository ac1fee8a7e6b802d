"""Thinking in messages: where providers take it, and how a message is sent without it.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import Any, cast

from ..messages.parsing import THINKING_BLOCKS, Message


def only_thinking(content: str | list[dict[str, Any]]) -> bool:
    """True if the content is only thinking, which no provider takes alone."""
    return isinstance(content, list) and all(block.get("type") in THINKING_BLOCKS for block in content)


def thinking_in_place(content: str | list[dict[str, Any]], *, calls: bool) -> tuple[str | list[dict[str, Any]], bool]:
    """Return the content without thinking where no provider takes it, and whether it changed.

    Signed thinking must begin its message and be followed by other content (Anthropic). Otherwise all of it is dropped.
    """
    if isinstance(content, str):
        return content, False
    thoughts = [index for index, block in enumerate(content) if block.get("type") in THINKING_BLOCKS]
    if not thoughts or len(thoughts) == len(content):
        return content, False
    closes = thoughts[-1] == len(content) - 1 and not calls
    signed = any(content[index].get("signature") or "data" in content[index] for index in thoughts)
    if not closes and (not signed or content[0].get("type") in ("thinking", "redacted_thinking")):
        return content, False
    return [block for block in content if block.get("type") not in THINKING_BLOCKS], True


def without_thinking(message: Message) -> Message | None:
    """Return the message without thinking and sealed state, for another provider than its own; None if nothing is left.

    The streaming loop keeps a copy of the thinking under `thinking_block`.
    """
    content = message.get("content")
    kept: Message = {key: value for key, value in message.items() if key != "thinking_block"}
    if isinstance(content, list):
        blocks = [block for block in cast("list[dict[str, Any]]", content) if block.get("type") not in THINKING_BLOCKS]
        kept["content"] = blocks or ""
    if not kept.get("content") and not kept.get("tool_calls"):
        return None
    return kept
