"""What is searched, and what an index must do. The search itself is loaded by the first search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from ..messages.escapes import read_escapes
from ..messages.parsing import Message, arguments_text, blocks_of, calls_of, result_text, results_of, text_of
from .entry import Entry

# CJK radicals to ideographs with kana and bopomofo between, Hangul, compatibility forms, halfwidth kana and Hangul, and
# the planes of rarer ideographs: text without spaces. A pattern of it takes a millisecond or two to compile.
UNSPACED = "\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"


@runtime_checkable
class SearchIndex(Protocol):
    """Finds entries by words."""

    def search(self, history: Iterable[Entry], query: str, limit: int) -> list[Entry]:
        """Return at most `limit` entries that match `query`, best first."""
        ...


def searchable_text(entry: Entry) -> str:
    return message_text(entry.message)


def message_text(message: Message) -> str:
    """Content, calls and their arguments, outputs of tools: of JSON, its texts as they read."""
    content: object = message.get("content")
    if message.get("role") == "tool" and message.get("tool_call_id"):
        content = None  # all of it is the result
    elif isinstance(content, list):
        content = [block for block in blocks_of(message) if block.get("type") != "tool_result"]
    parts = [text_of(content), *(f"{call.name} {arguments_text(call)}" for call in calls_of(message))]
    parts.extend(read_escapes(result_text(result.content)) for result in results_of(message))
    return "\n".join(part for part in parts if part)
