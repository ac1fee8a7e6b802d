"""Token counters for tests: exact by definition, so that a test can say "ten tokens" and mean it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .checks.message_shapes import CALL_BLOCKS, blocks_of, calls_of

TokenCounter = Callable[[str], int]
"""Text in, tokens out. The core's protocol of the same name; written here again so that nothing is imported."""

PER_MESSAGE = 4  # tokens; role and delimiters
PER_IMAGE = 600  # tokens; a flat figure, since base64 is not text


class WordCounter:
    """Counts words: runs of characters between white space. `calls` and `characters` are the amounts counted."""

    def __init__(self) -> None:
        self.calls = 0
        self.characters = 0

    def __call__(self, text: str) -> int:
        self.calls += 1
        self.characters += len(text)
        return len(text.split())

    def __repr__(self) -> str:
        return f"WordCounter(calls={self.calls}, characters={self.characters})"


def wire_tokens(message: Mapping[str, Any], counter: TokenCounter) -> int:
    """Tokens a provider would bill for one message: its text, each call once, images flat; metadata is not sent.

    Written apart from the core's `count_message_tokens` on purpose: the replaying provider plays the other side, whose
    count may differ.
    """
    total = PER_MESSAGE + _content_tokens(message.get("content"), counter)
    for call in calls_of(message):
        arguments = call.arguments if isinstance(call.arguments, str) else _json(call.arguments)
        total += counter(f"{call.name} {arguments}")
    return total


def _content_tokens(content: object, counter: TokenCounter) -> int:
    if isinstance(content, str):
        return counter(content)
    total = 0
    for _, block in blocks_of(content):
        kind = block.get("type")
        if kind in CALL_BLOCKS:
            continue  # counted with the calls
        if kind in ("image", "image_url"):
            total += PER_IMAGE
        elif kind == "text":
            total += counter(str(block.get("text", "")))
        elif kind == "thinking":
            total += counter(str(block.get("thinking", "")))
        elif kind == "tool_result":
            output = block.get("output", block.get("content"))
            nested = isinstance(output, str) or bool(blocks_of(output))
            total += _content_tokens(output, counter) if nested else counter(_json(output))
        else:
            total += counter(_json({key: value for key, value in block.items() if key != "visibility"}))
    return total


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
