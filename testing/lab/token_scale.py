"""Weighing messages: one exact count for the judge and for everybody who is judged.

A message is weighed as it is sent. What is not sent (metadata, timestamps) neither weighs nor tells two messages apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from amplifier_context_core import TokenCounter, count_message_tokens, exact_token_counter

from .text import visible

_SENT = ("role", "content", "tool_calls", "tool_call_id", "name")


class TokenScale:
    """Numbers, weights and texts of messages; each different message is weighed once.

    Args:
        counter: text to tokens; exact (o200k_base) when not given.
    """

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self.counter: TokenCounter = counter or exact_token_counter()
        self._numbers: dict[object, int] = {}
        self._tokens: list[int] = []
        self._texts: list[str | None] = []
        self._lengths: dict[str, int] = {}

    def number(self, message: Mapping[str, Any]) -> int:
        """A number that two messages share when the same bytes are sent for both."""
        key = _key(message)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self._tokens)
            self._tokens.append(count_message_tokens(dict(message), self.counter))
            self._texts.append(None)
        return known

    def tokens(self, message: Mapping[str, Any]) -> int:
        """Tokens a message contributes to a request."""
        return self._tokens[self.number(message)]

    def tokens_of(self, number: int) -> int:
        """Tokens of the message with this number."""
        return self._tokens[number]

    def length(self, text: str) -> int:
        """Tokens of a text; each is counted once. For peers, who count the same texts again and again."""
        known = self._lengths.get(text)
        if known is None:
            known = self._lengths[text] = self.counter(text)
        return known

    def text(self, message: Mapping[str, Any]) -> str:
        """What a model can read in a message."""
        number = self.number(message)
        known = self._texts[number]
        if known is None:
            known = self._texts[number] = visible(message)
        return known


def _key(message: Mapping[str, Any]) -> object:
    content = message.get("content")
    if (content is None or isinstance(content, str)) and not message.get("tool_calls"):
        return message.get("role"), content, message.get("tool_call_id"), message.get("name")
    return json.dumps([message.get(name) for name in _SENT], sort_keys=True, default=str)
