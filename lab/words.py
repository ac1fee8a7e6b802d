"""Word recall: the share of the plain words that an agent uses again and that were still in the view.

A word is a run of letters that is part of no name, path or address, lower case after its first letter, five letters
or more; its first seven letters, in lower case, represent its forms. As for identifiers, only words of few earlier
messages count, and *far* words were last used outside the newest quarter of the budget.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from amplifier_context_testing.caches.request import Memo, Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import SYSTEM_ROLES, Message
from amplifier_context_testing.checks.texts import spoken

from .sentences import written
from .shares import Places, union

STEM = 7  # letters
FEW = 3  # messages, or a twentieth of the history if that is more
_WORD = re.compile(r"(?<![\w./@#:-])[A-Za-z][a-z]{4,}(?![\w/@#:]|\.\w)")


def stems(text: str) -> frozenset[str]:
    """Return the first seven letters, in lower case, of each plain word of a text."""
    return frozenset(word[:STEM].lower() for word in _WORD.findall(text))


class Words:
    """The words that the agent of one session uses again."""

    def __init__(self, messages: Sequence[Message], scale: TokenScale) -> None:
        self._scale = scale
        self._in_view = Memo(self._bits_of)
        stems_of = [stems(spoken(message)) for message in messages]
        used = {i: stems(written(m)) for i, m in enumerate(messages) if m.get("role") == "assistant"}
        self._places = Places()
        self._places.bits(word for words in used.values() for word in words)
        self._last: dict[int, dict[str, int]] = {}  # by assistant message: where each word of it was last used
        last: dict[str, int] = {}
        spread: dict[str, int] = {}
        before = 0
        for index, message in enumerate(messages):
            if index in used:
                few = max(FEW, before / 20)
                self._last[index] = {word: last[word] for word in used[index] if word in last and spread[word] <= few}
            if message.get("role") not in SYSTEM_ROLES:
                before += 1
                for word in stems_of[index] & self._places.keys():
                    last[word] = index
                    spread[word] = spread.get(word, 0) + 1

    def wanted(self, near: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        """Return the words to search for, by index of the assistant message, and those of them that are far.

        Sets of bits; `near` as `course.near` returns it.
        """
        bits = self._places.bits
        return {
            index: (bits(last), bits(word for word in last if last[word] < near[index]))
            for index, last in self._last.items()
        }

    def in_view(self, request: Request) -> int:
        return union(self._in_view.each(request))

    def _bits_of(self, message: Message) -> int:
        return self._places.bits(stems(self._scale.text(message)) & self._places.keys())
