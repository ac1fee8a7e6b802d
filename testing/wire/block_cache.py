"""Anthropic's prompt cache on the server's side: it reads and writes where a request has breakpoints.

The lab's model (`caches.anthropic`) works on messages and places the breakpoints itself; this one finds them in the
request. Times to live and the look-back are the lab's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from amplifier_context_core import TokenCounter

from ..caches.anthropic import LOOK_BACK, TTL
from ..caches.bill import Bill
from ..caches.entries import Entries
from ..caches.request import prefixes
from ..checks.message_shapes import as_list, as_mapping, blocks_of
from ..counters import PER_IMAGE, PER_MESSAGE


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the prefix: a tool, a system block, a content block of a message.

    Attributes:
        text: what identifies it, without its breakpoint.
    """

    text: str
    tokens: int
    marked: bool


class BlockCache:
    """The cache of one account.

    Args:
        counter: text to tokens.
        minimum: tokens that a prefix needs to be cached.
    """

    def __init__(self, counter: TokenCounter, minimum: int = 0) -> None:
        self._counter = counter
        self._minimum = minimum
        self._entries = Entries(TTL)
        self._sizes: dict[str, int] = {}

    def bill(self, body: Mapping[str, Any], at: float) -> Bill:
        """Return the bill of a request, and store its prefixes.

        Args:
            at: when it comes, in seconds.
        """
        parts = self._parts(body)
        chain = prefixes(hash(part.text) for part in parts)
        offsets = list(accumulate((part.tokens for part in parts), initial=0))
        marks = [end for end, part in enumerate(parts, 1) if part.marked and offsets[end] >= self._minimum]
        hit = self._longest(chain, marks, at)
        self._entries.use([chain[end] for end in {*marks, hit} if end], at)
        cached = offsets[marks[-1]] if marks else 0
        return Bill(offsets[hit], cached - offsets[hit], offsets[-1] - cached)

    def size(self, body: Mapping[str, Any]) -> int:
        """Return the tokens of a request."""
        return sum(part.tokens for part in self._parts(body))

    def tokens(self, text: str) -> int:
        """Return the tokens of a text."""
        return self._counter(text)

    def _longest(self, chain: list[int], marks: list[int], at: float) -> int:
        """Return where the longest stored prefix within reach of a breakpoint ends; 0 if there is none."""
        for mark in reversed(marks):
            for end in range(mark, max(0, mark - LOOK_BACK - 1), -1):
                if self._entries.holds(chain[end], at):
                    return end
        return 0

    def _parts(self, body: Mapping[str, Any]) -> list[Part]:
        found = [self._part("tool", as_mapping(tool) or {}) for tool in as_list(body.get("tools")) or ()]
        system = body.get("system")
        if isinstance(system, str):
            system = [{"type": "text", "text": system}]
        found += [self._part("system", block) for _, block in blocks_of(system)]
        for item in as_list(body["messages"]) or ():
            message = as_mapping(item) or {}
            content = message["content"]
            blocks = [block for _, block in blocks_of(content)] or [{"type": "text", "text": content}]
            opening = PER_MESSAGE
            for block in blocks:
                found.append(self._part(str(message["role"]), block, opening))
                opening = 0
        return found

    def _part(self, place: str, block: Mapping[str, Any], opening: int = 0) -> Part:
        plain = {key: value for key, value in block.items() if key != "cache_control"}
        text = f"{place} {json.dumps(plain, ensure_ascii=False, sort_keys=True)}"
        size = self._sizes.get(text)
        if size is None:
            size = self._sizes[text] = self._size(plain)
        return Part(text, size + opening, block.get("cache_control") is not None)

    def _size(self, block: Mapping[str, Any]) -> int:
        match block.get("type"):
            case "text":
                return self._counter(str(block["text"]))
            case "image":
                return PER_IMAGE
            case "tool_use":
                return self._counter(f"{block['name']} {json.dumps(block['input'], ensure_ascii=False)}")
            case "tool_result":
                content = block.get("content")
                if isinstance(content, str):
                    return self._counter(content)
                return sum(self._size(inner) for _, inner in blocks_of(content))
            case "thinking":
                return self._counter(str(block["thinking"]))
            case _:
                return self._counter(json.dumps(block, ensure_ascii=False))
