"""Would a provider take the request, is anybody still asking something in it, and whose fault is it if not?

Recordings break rules by themselves: calls that were interrupted, results without calls. A request is *invalid* when it
breaks any rule; it is *faulty* when it breaks one more often than the plain history does at that moment, or when the
newest human message is lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..checks.message_shapes import Message, is_human, text_of
from ..checks.request_checker import check_request

_PLACE = re.compile(r"\bmessage \d+|\bblock [\d.]+")
_RECOGNISED = 40  # characters, white space folded: by so much of its start a clipped message is known


class Faults:
    """What is wrong with the requests of one session; remembers what is wrong with the recording itself."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = [{**message, "content": _or_empty(message)} for message in messages]
        self._own: dict[int, Counter[str]] = {}

    def of(self, view: Sequence[Message], index: int) -> tuple[list[str], list[str]]:
        """The rules a request breaks, and those of them that the history before `index` does not break by itself."""
        broken = check_request(view)
        if not broken:
            return [], []
        own = self._own.get(index)
        if own is None:
            own = self._own[index] = Counter(_kind(said) for said in check_request(self._messages[:index]))
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
    """The last message a person wrote."""
    return next((message for message in reversed(messages) if is_human(message)), None)


def holds_human(view: Sequence[Message], human: Message) -> bool:
    """Is this message of a person's in the view, whole or clipped?"""
    wanted = "".join(text_of(human.get("content")).split())[:_RECOGNISED]
    for message in reversed(view):
        if message.get("role") != "user":
            continue
        if not wanted:
            return True  # an image without a word
        if wanted in "".join(text_of(message.get("content")).split()):
            return True
    return False


def _kind(sentence: str) -> str:
    return _PLACE.sub("…", sentence)


def _or_empty(message: Mapping[str, Any]) -> Any:
    content = message.get("content")
    return "" if content is None else content
