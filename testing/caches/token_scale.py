"""Token counts of messages: one exact count for the lab and for every manager that it measures.

A message is counted as it is sent. Keys that are not sent (metadata, timestamps) have no tokens, and do not make two
messages different.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..checks.texts import visible
from ..counters import TokenCounter

_SENT = ("role", "content", "tool_calls", "tool_call_id", "name")


class TokenScale:
    """Numbers, token counts and texts of messages; each distinct message is counted once.

    Args:
        counter: text to tokens; by default exact (o200k_base). Messages are counted as the core does.
    """

    def __init__(self, counter: TokenCounter | None = None) -> None:
        from amplifier_context_core import count_message_tokens, exact_token_counter

        self.counter: TokenCounter = counter or exact_token_counter()
        self._count = count_message_tokens
        self._numbers: dict[object, int] = {}
        self._tokens: list[int] = []
        self._texts: dict[int, str] = {}
        self.length = cache(self.counter)  # of a text, in tokens; peers count the same texts many times

    def number(self, message: Mapping[str, Any]) -> int:
        """Return the number of a message; two messages have the same number if the same bytes are sent for both."""
        key = _key(message)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self._tokens)
            self._tokens.append(self._count(dict(message), self.counter))
        return known

    def tokens(self, message: Mapping[str, Any]) -> int:
        """Return the tokens that a message contributes to a request."""
        return self._tokens[self.number(message)]

    def tokens_of(self, number: int) -> int:
        """Return the tokens of the message with a number."""
        return self._tokens[number]

    def text(self, message: Mapping[str, Any]) -> str:
        number = self.number(message)
        if number not in self._texts:
            self._texts[number] = visible(message)
        return self._texts[number]


def _key(message: Mapping[str, Any]) -> object:
    content = message.get("content")
    if (content is None or isinstance(content, str)) and not message.get("tool_calls"):
        return message.get("role"), content, message.get("tool_call_id"), message.get("name")
    return json.dumps([message.get(name) for name in _SENT], sort_keys=True, default=str)
