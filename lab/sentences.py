"""The sentences of a session: what people wrote, the rules in it, what the agent wrote; looked for word for word.

A sentence ends after `.`, `!`, `?` or `:` before white space, or at the end of a line. It has 25 characters or more;
white space is folded on both sides before it is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from amplifier_context_testing.caches.request import Memo, Request
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import Message, blocks_of
from amplifier_context_testing.checks.texts import is_rule

from .shares import NOTHING, Places, Share, union

SHORTEST = 25  # characters of a sentence
PASTED = 4_000  # characters: a message from this length on is a paste, and states no rules

_END = re.compile(r"(?<=[.!?:])\s+|[\r\n]+")
_TAGGED = re.compile(r"<([A-Za-z][\w.:-]*)(?:\s[^<>]*)?>.*?</\1\s*>", re.DOTALL)  # hosts' reminders, command output


def folded(text: str) -> str:
    return " ".join(text.split())


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, white space folded, in order."""
    return [sentence for part in _END.split(text) if len(sentence := folded(part)) >= SHORTEST]


def written(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text") or "") for _, block in blocks_of(content) if block.get("type") == "text")


@dataclass(frozen=True, slots=True)
class Stated:
    """Sentences by kind, each as a set of bits."""

    people: int = 0
    rules: int = 0
    agent: int = 0

    def __or__(self, other: Stated) -> Stated:
        return Stated(*(mine | theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def kept_in(self, view: int) -> Kept:
        return Kept(*(Share.of_bits(bits, view) for bits in astuple(self)))


@dataclass(frozen=True, slots=True)
class Kept:
    """How many sentences of each kind are in a view, or in several."""

    people: Share = NOTHING
    rules: Share = NOTHING
    agent: Share = NOTHING

    def __add__(self, other: Kept) -> Kept:
        return Kept(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def as_json(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name).as_json() for one in fields(self)}


NONE_KEPT = Kept()


class Sentences:
    """The sentences of one session. A sentence that is written twice is one sentence.

    Attributes:
        before: what was written before each message, and in all of them at the end.
    """

    def __init__(self, messages: Sequence[Message], scale: TokenScale, *, host: frozenset[int] = frozenset()) -> None:
        self._places = Places()
        self._scale = scale
        self._found = Memo(self._sentences_in)
        self.before = [Stated()]
        for index, message in enumerate(messages):
            self.before.append(self.before[-1] | self._stated(message, index in host))

    def in_view(self, request: Request) -> int:
        return union(self._found.each(request))

    def _stated(self, message: Message, by_host: bool) -> Stated:
        role = message.get("role")
        if role == "assistant":
            return Stated(agent=self._places.bits(sentences(written(message))))
        if role != "user" or by_host:
            return Stated()
        own = _TAGGED.sub(" ", written(message))
        found = sentences(own)
        stated = found if len(own) < PASTED else []
        return Stated(self._places.bits(found), self._places.bits(filter(is_rule, stated)))

    def _sentences_in(self, message: Message) -> int:
        text = folded(self._scale.text(message))
        return union(1 << place for sentence, place in self._places.items() if sentence in text)
