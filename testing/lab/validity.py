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

from ..checker import check_request
from ..shapes import Message, is_human, text_of

_PLACE = re.compile(r"\bmessage \d+|\bblock [\d.]+")
_RECOGNISED = 80  # characters, white space folded: by so much of its start a clipped message is known


def faults(view: Sequence[Message], history: Sequence[Message]) -> tuple[list[str], list[str]]:
    """The rules a request breaks, and those of them that the history up to here does not break by itself."""
    broken = check_request(view)
    if not broken:
        return [], []
    own = Counter(_kind(sentence) for sentence in check_request([{**m, "content": _or_empty(m)} for m in history]))
    added: list[str] = []
    for sentence in broken:
        kind = _kind(sentence)
        if own[kind] > 0:
            own[kind] -= 1
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
