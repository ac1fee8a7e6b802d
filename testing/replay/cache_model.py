"""A model of a provider's prompt cache: the tokens of a request, and how many of them the provider has cached.

Providers cache a request's prefix: as long as the first messages are, byte for byte, the same as before, they
are read from the cache. The meter plays that cache, so that a context manager that disturbs its prefix shows up as
fewer cache reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..counters import TokenCounter, wire_tokens

NOT_SENT = frozenset({"metadata"})
"""Keys providers do not send, so that a change in them breaks no cache."""


@dataclass(frozen=True, slots=True)
class Weight:
    """The token counts of one request.

    Attributes:
        cached: tokens of the prefix shared, byte for byte, with the request before.
        tools: tokens of the tool definitions, part of `tokens`.
    """

    tokens: int
    cached: int
    shared: int
    tools: int


@dataclass(frozen=True, slots=True)
class Weighing:
    """Token counts, and the prefix that the next request is compared with after an answer."""

    weight: Weight
    marks: tuple[bytes, ...]
    known: Mapping[bytes, int]
    tools: tuple[bytes, int]


class RequestMeter:
    """Weighs request after request; a message counted once is not counted again while it stays in the requests.

    Args:
        counter: text to tokens.
    """

    def __init__(self, counter: TokenCounter, *, ratio: float = 1.0) -> None:
        self._counter = counter
        self._ratio = ratio
        self._before = Weighing(Weight(0, 0, 0, 0), (), {}, (b"", 0))

    def weigh(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> Weighing:
        before = self._before
        marks: list[bytes] = []
        known: dict[bytes, int] = {}
        for message in messages:
            mark = _mark({key: value for key, value in message.items() if key not in NOT_SENT})
            marks.append(mark)
            if mark not in known:
                tokens = before.known.get(mark)
                known[mark] = wire_tokens(message, self._counter) if tokens is None else tokens
        tool_mark, tool_tokens = self._weigh_tools(tools)
        shared = 0
        if tool_mark == before.tools[0]:  # tools come before the messages: with other tools there is no shared prefix
            for mine, theirs in zip(marks, before.marks, strict=False):
                if mine != theirs:
                    break
                shared += 1
        cached = sum(known[mark] for mark in marks[:shared]) + (tool_tokens if shared else 0)
        total = sum(known[mark] for mark in marks) + tool_tokens
        weight = Weight(self._scaled(total), self._scaled(cached), shared, self._scaled(tool_tokens))
        return Weighing(weight, tuple(marks), known, (tool_mark, tool_tokens))

    def keep(self, weighing: Weighing) -> None:
        """Put an answered request into the cache; a refused request does not change the cache."""
        self._before = weighing

    def tokens_of(self, message: Mapping[str, Any]) -> int:
        return self._scaled(wire_tokens(message, self._counter))

    def _weigh_tools(self, tools: Sequence[Any] | None) -> tuple[bytes, int]:
        text = json.dumps(list(tools), ensure_ascii=False, default=str) if tools else ""
        mark = _mark(text)
        if mark == self._before.tools[0]:
            return self._before.tools
        return mark, self._counter(text) if text else 0

    def _scaled(self, tokens: int) -> int:
        return round(tokens * self._ratio)


def _mark(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
