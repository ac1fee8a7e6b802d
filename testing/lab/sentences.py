"""The sentences of a session: what people wrote, the rules in it, what the agent wrote; looked for word for word.

A sentence ends after `.`, `!`, `?` or `:` before white space, or at the end of a line. It has 25 characters or more;
white space is folded on both sides before it is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

from ..checks.message_shapes import Message, blocks_of
from .request import Memo, Request
from .shares import NOTHING, Share
from .token_scale import TokenScale

SHORTEST = 25  # characters of a sentence
PASTED = 4_000  # characters: a message from this length on is a paste, and states no rules

_END = re.compile(r"(?<=[.!?:])\s+|[\r\n]+")
_TAGGED = re.compile(r"<([A-Za-z][\w.:-]*)(?:\s[^<>]*)?>.*?</\1\s*>", re.DOTALL)
# English, and Chinese: the languages people write in the development data (memorybank_en_cn for Chinese). A Chinese
# word is a word in the pattern only where it is not part of a frequent longer one.
_RULE = re.compile(
    r"\b(?:never|always|don['’]t|do\s+not|only|instead|make\s+sure|please|(?:must|should)(?:n['’]t)?)\b"
    r"|从不|从来不|永远|总是|始终|必须|务必|一定要|不要|不准|不许|不能|请勿|禁止|只能|只要|仅|而不是|确保|保证|应该|应当|(?<![邀申聘])请(?![教客假问求])",
    re.IGNORECASE,
)


def folded(text: str) -> str:
    """Return a text with each run of white space as one blank."""
    return " ".join(text.split())


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, white space folded, in order."""
    return [sentence for part in _END.split(text) if len(sentence := folded(part)) >= SHORTEST]


def written(message: Mapping[str, Any]) -> str:
    """Return the text of a message itself: neither results nor arguments of calls nor thinking."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text") or "") for _, block in blocks_of(content) if block.get("type") == "text")


def without_tags(text: str) -> str:
    """Return a text without its tagged spans: `<name …>…</name>`, as hosts mark reminders and command output."""
    return _TAGGED.sub(" ", text)


def is_rule(sentence: str) -> bool:
    """True if a sentence holds a word that rules are stated with."""
    return _RULE.search(sentence) is not None


@dataclass(frozen=True, slots=True)
class Stated:
    """Sentences by kind, each as a set of bits.

    Attributes:
        people: what people wrote.
        rules: of that, the rules.
        agent: what the agent wrote.
        planted: rules that were planted into the recording.
        own: what people wrote, without pastes.
    """

    people: int = 0
    rules: int = 0
    agent: int = 0
    planted: int = 0
    own: int = 0

    def __or__(self, other: Stated) -> Stated:
        return Stated(*(mine | theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def kept_in(self, view: int) -> Kept:
        """Return how many of them are among the sentences of a view."""
        return Kept(*(Share.of_bits(bits, view) for bits in astuple(self)))

    def missing_in(self, view: int) -> dict[str, int]:
        """Return the sentences that a view does not contain, by kind."""
        return {kind: bits & ~view for kind, bits in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Kept:
    """How many sentences of each kind are in a view, or in several."""

    people: Share = NOTHING
    rules: Share = NOTHING
    agent: Share = NOTHING
    planted: Share = NOTHING
    own: Share = NOTHING

    def __add__(self, other: Kept) -> Kept:
        return Kept(
            self.people + other.people,
            self.rules + other.rules,
            self.agent + other.agent,
            self.planted + other.planted,
            self.own + other.own,
        )

    def as_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {one.name: getattr(self, one.name).as_json() for one in fields(self)}


NONE_KEPT = Kept()


class Sentences:
    """The sentences of one session. A sentence that is written twice is one sentence.

    Args:
        messages: as recorded.
        host: indices of messages with the role of a user that no person wrote.
        planted: sentences that were planted.
        scale: gives the text of a message in a view.

    Attributes:
        before: what was written before each message, and in all of them at the end.
        texts: the sentences, by bit.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        scale: TokenScale,
        *,
        host: frozenset[int] = frozenset(),
        planted: Iterable[str] = (),
    ) -> None:
        self._bits: dict[str, int] = {}
        self._scale = scale
        self._found = Memo(self._sentences_in)
        planted = frozenset(planted)
        self.before = [Stated()]
        for index, message in enumerate(messages):
            self.before.append(self.before[-1] | self._stated(message, index in host, planted))
        self.texts = list(self._bits)

    def in_view(self, request: Request) -> int:
        """Return the sentences of a view, as a set of bits."""
        held = 0
        for found in self._found.each(request):
            held |= found
        return held

    def of(self, bits: int) -> list[str]:
        """Return the sentences of a set of bits."""
        return [text for place, text in enumerate(self.texts) if bits >> place & 1]

    def _stated(self, message: Message, by_host: bool, planted: frozenset[str]) -> Stated:
        role = message.get("role")
        if role == "assistant":
            return Stated(agent=self._set_of(sentences(written(message))))
        if role != "user" or by_host:
            return Stated()
        own = without_tags(written(message))
        found = sentences(own)
        unpasted = found if len(own) < PASTED else []
        return Stated(
            people=self._set_of(found),
            rules=self._set_of(sentence for sentence in unpasted if is_rule(sentence)),
            planted=self._set_of(sentence for sentence in found if sentence in planted),
            own=self._set_of(unpasted),
        )

    def _set_of(self, found: Iterable[str]) -> int:
        bits = 0
        for sentence in found:
            bits |= 1 << self._bits.setdefault(sentence, len(self._bits))
        return bits

    def _sentences_in(self, message: Message) -> int:
        text = folded(self._scale.text(message))
        bits = 0
        for sentence, place in self._bits.items():
            if sentence in text:
                bits |= 1 << place
        return bits
