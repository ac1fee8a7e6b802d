"""Validity of requests: provider rules, the newest human message, and violations that the recording has itself.

Recordings break rules themselves: interrupted calls, results without calls. A request is *invalid* if it breaks any
rule. It is *faulty* if it breaks a rule more often than the history does at that point, or if the newest human message
is lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from amplifier_context_testing.checks.message_shapes import Message, is_human, text_of
from amplifier_context_testing.checks.request_checker import check_request

_PLACE = re.compile(r"\bmessage \d+|\bblock [\d.]+")
_RECOGNISED = 40  # characters at the start of a message, white space removed, by which a clipped message is recognised


class Faults:
    """Finds the broken rules of the requests of one session; caches the ones of the recording itself."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = [{**message, "content": _or_empty(message)} for message in messages]
        self._own: dict[int, Counter[str]] = {}

    def of(self, view: Sequence[Message], index: int) -> tuple[list[str], list[str]]:
        """Return the rules that a request breaks, and the ones that the history before `index` does not break."""
        broken = check_request(view)
        if not broken:
            return [], []
        own = self._own.get(index)
        if own is None:
            own = self._own[index] = Counter(_kind(sentence) for sentence in check_request(self._messages[:index]))
        left = own.copy()
        added: list[str] = []
        for sentence in broken:
            kind = _kind(sentence)
            if left[kind] > 0:
                left[kind] -= 1
            else:
                added.append(sentence)
        return broken, added


def newest_human(messages: Sequence[Message]) -> Message | None:
    return next((message for message in reversed(messages) if is_human(message)), None)


def holds_human(view: Sequence[Message], human: Message) -> bool:
    """True if a view contains a human message, in full or clipped."""
    wanted = "".join(text_of(human.get("content")).split())[:_RECOGNISED]
    for message in reversed(view):
        if message.get("role") != "user":
            continue
        if not wanted:
            return True  # an image without text
        if wanted in "".join(text_of(message.get("content")).split()):
            return True
    return False


def _kind(sentence: str) -> str:
    return _PLACE.sub("…", sentence)


def _or_empty(message: Mapping[str, Any]) -> Any:
    content = message.get("content")
    return "" if content is None else content
