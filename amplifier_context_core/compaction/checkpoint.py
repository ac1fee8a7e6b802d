"""Checkpoints: the frozen, compacted rendering of a prefix of the history.

A `Segment` is one round as it is shown now, or a chapter that replaces many. A `Draft` is the segments of a view while
a compaction works on them; a `Checkpoint` is a draft that was accepted. It is also its own report: every segment names
the entries it covers, its state, and the rule that set the state.

Saved sessions hold these values, with the names of their fields as keys: to rename one takes a new version of
`view/session_state.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Literal, NamedTuple

from ..messages.hashing import chain_hash, content_hash
from ..messages.parsing import Message
from ..messages.tokens import TokenCounter
from ..rendering.renderer import RenderedMessage
from ..rendering.rounds import Round
from ..transcript.entry import Entry
from .identifiers import identifiers, with_parts
from .speech import Sentence, Speaker, joined

State = Literal["kept", "clipped", "cleared", "superseded", "folded"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a chapter: the speaker or the call, how the call ended, and names first seen there.

    Line breaks in it become spaces, and tags that would close the chapter are escaped, when the chapter is rendered.
    """

    subject: str  # the mark of the original (``m12``), then the speaker, or the tool and its arguments
    outcome: str = ""  # how a call ended; empty for speech
    names: tuple[str, ...] = ()  # identifiers, in the order they appeared
    scores: tuple[float, ...] = ()  # for each name, how likely it is to be needed again
    speaker: Speaker = ""  # empty for a call and for what a host wrote
    sentences: tuple[Sentence, ...] = ()
    changed: str = ""  # path of the file that a call writes: it stays as long as the line

    @property
    def scored_names(self) -> list[tuple[str, float]]:
        """1.0 for a name without a score."""
        return list(zip(self.names, (*self.scores, *repeat(1.0, len(self.names) - len(self.scores))), strict=False))

    @property
    def text(self) -> str:
        return f"{self.statement}; {' '.join(self.names)}" if self.names else self.statement

    @property
    def statement(self) -> str:
        line = f"{self.subject}: {joined(self.sentences)}" if self.sentences else self.subject
        return f"{line} -> {self.outcome}" if self.outcome else line


class _Derived:
    """Holds what is derived from a value once: no field, so it is neither compared nor saved."""

    __slots__ = ("_names", "_read_names")
    _names: tuple[str, ...]
    _read_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DigestEntry(_Derived):
    """What a chapter says of one round."""

    first: int  # lowest seq of the round
    last: int
    turn: str  # its turn id, ``a3``
    facts: tuple[Fact, ...]
    tokens: int  # of the text
    original_tokens: int  # of the round in the history

    @classmethod
    def of(cls, described: Round, facts: Sequence[Fact], counter: TokenCounter) -> DigestEntry:
        entry = cls(described.first, described.last, described.head.turn_id, (), 0, described.tokens)
        return entry.with_facts(facts, counter)

    def with_facts(self, facts: Sequence[Fact], counter: TokenCounter) -> DigestEntry:
        return replace(self, facts=tuple(facts), tokens=sum(counter(fact.text) + 1 for fact in facts))

    @property
    def text(self) -> str:
        return "\n".join(fact.text for fact in self.facts)

    @property
    def names(self) -> tuple[str, ...]:
        """The identifiers in the text. It is read once: each compaction asks for them again."""
        try:
            return self._names
        except AttributeError:
            text = self.text
            listed = {name: name for fact in self.facts for name in fact.names}  # most are: no second copy is kept
            names = tuple(listed.get(name, name) for name in identifiers(text, limit=len(text)))
            object.__setattr__(self, "_names", names)
            return names

    @property
    def read_names(self) -> tuple[str, ...]:
        """Them, and the names that are parts of them. Each fold of a compaction asks for those of all chapters."""
        try:
            return self._read_names
        except AttributeError:
            object.__setattr__(self, "_read_names", names := tuple(with_parts(self.names)))
            return names


class ChapterText(NamedTuple):
    """A text about seqs `first` to `last` that another author than the digest wrote; shown before the entries."""

    first: int
    last: int
    text: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """Rounds folded into a short text."""

    entries: tuple[DigestEntry, ...]  # one for each round the chapter still describes, in order
    original_tokens: int  # of all its rounds in the history
    left_out: int = 0  # rounds in the range that no entry describes
    author: str = "digest"  # ``digest`` (rules) or ``summary`` (a model)
    texts: tuple[ChapterText, ...] = ()  # of the other author, the oldest first
    # The entries as they are shown beside the texts, in less room; None if they are shown as they are. The entries
    # themselves stay those of the digest, so a text that goes leaves nothing behind.
    beside: tuple[DigestEntry, ...] | None = None
    made_at: int = 0  # highest seq in the history at the compaction that folded its rounds; 0 if that is not known

    @property
    def listed(self) -> tuple[DigestEntry, ...]:
        return self.entries if self.beside is None else self.beside


@dataclass(frozen=True, slots=True)
class Segment:
    """A round, or a chapter, as a view shows it. Immutable; its messages must never be changed in place.

    Attributes:
        first: lowest seq it covers. It identifies the segment within a draft.
        last: highest seq it covers.
        turn: turn id of its first message, ``u3`` or ``a3``.
        tokens: the sum of those of its messages.
        original_tokens: of the same rounds in the history.
        rule: the strategy or rule that set the state; empty while it is kept as it was.
        round: None for a chapter.
        chapter: None for a round.
        protected_because: why no strategy may remove it, as `mark_protected` says; empty when they may.
    """

    first: int
    last: int
    turn: str
    shown: tuple[RenderedMessage, ...]
    tokens: int
    original_tokens: int
    state: State = "kept"
    rule: str = ""
    round: Round | None = None
    chapter: Chapter | None = None
    protected_because: str = ""

    @property
    def mark(self) -> str:
        return f"m{self.first}"

    @property
    def is_human(self) -> bool:
        return self.newest_human > 0

    @property
    def newest_human(self) -> int:
        """The turn of the newest message of a person that it shows; 0 when it shows none.

        A person's words beside a late result are shown with the round of its call, before newer rounds. A message that
        was edited has a higher seq than newer ones, and its former turn.
        """
        entry = self.human_entry
        return entry.turn if entry else 0

    @property
    def human_entry(self) -> Entry | None:
        """The newest message of a person that it shows, as it was stored."""
        if self.round is None or not self.round.is_human:
            return None
        humans = {entry.seq: entry for entry in self.round.entries if entry.human}
        shown = (humans[message.seq] for message in self.shown if message.seq in humans)
        return max(shown, key=lambda entry: entry.turn, default=None)

    def rendered_as(self, shown: Sequence[RenderedMessage], state: State, rule: str) -> Segment:
        """Return the same segment, shown differently by the strategy or rule of this name.

        `RenderedMessage.with_message` makes a message of another text. A call and its result stay.
        """
        messages = tuple(shown)
        return replace(self, shown=messages, tokens=sum(m.tokens for m in messages), state=state, rule=rule)


def content_digest(entries: Iterable[Entry], before: bytes = b"") -> bytes:
    """Return the hash of entries by seq and content; `before` is that of the entries before them."""
    for entry in entries:
        before = chain_hash(before, entry.seq, content_hash(entry.message))
    return before


def segment_of(round_: Round, shown: Sequence[RenderedMessage], fixes: Sequence[str] = ()) -> Segment:
    messages, rule = tuple(shown), "corrected" if fixes else ""
    tokens = sum(message.tokens for message in messages)
    first, last, turn = round_.first, round_.last, round_.head.turn_id
    return Segment(first, last, turn, messages, tokens, round_.tokens, "kept", rule, round_)


@dataclass(frozen=True, slots=True)
class Draft:
    """The segments of a view while strategies work on them. Immutable: a change makes a new draft.

    Attributes:
        segments: chapters, and the rounds whose calls all have their results.
        fixed: tokens of the view outside the segments: the system prompt, and rounds that wait for results.
    """

    segments: tuple[Segment, ...]
    fixed: int = 0

    @property
    def tokens(self) -> int:
        return self.fixed + sum(segment.tokens for segment in self.segments)

    @property
    def has_texts(self) -> bool:
        """True if a chapter holds a text that another author than the digest wrote, or a carrier."""
        return any(one.chapter is not None and (one.chapter.texts or len(one.shown) > 1) for one in self.segments)

    @property
    def messages(self) -> list[Message]:
        return [shown.message for segment in self.segments for shown in segment.shown]

    def with_segments(self, segments: Iterable[Segment]) -> Draft:
        """Return a draft of these segments, with the same fixed part; this one if its segments are the same objects."""
        given = tuple(segments)
        is_same = len(given) == len(self.segments) and all(map(operator.is_, given, self.segments))
        return self if is_same else Draft(given, self.fixed)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Checkpoint:
    """An accepted draft. It never changes, and replaces the first `covered` entries of the history in a view."""

    covered: int  # entries it replaces, counted from the first after the leading instructions
    upto: int  # highest seq among them
    # Hash of what it covers, by content: the same history in another session has the same. Empty where it is saved.
    digest: bytes
    segments: tuple[Segment, ...]
    tokens: int
    made_at: int  # highest seq in the history when it was made
    budget: int  # tokens of the request it was made for
    # True if nothing but the content it covers went into it. Only then may another session use it: pins, registered
    # short forms, a focus and interrupted turns belong to one session.
    from_content: bool = False

    @property
    def mark(self) -> str:
        """Its name in reports: the mark of the last message it covers."""
        return f"m{self.upto}"

    @property
    def clips_newest_human(self) -> bool:
        """True if the newest message of a person that it shows is clipped for want of room."""
        newest = max(self.segments, key=lambda segment: segment.newest_human, default=None)
        return newest is not None and newest.is_human and newest.rule == "floor"

    @property
    def shown(self) -> Iterable[RenderedMessage]:
        for segment in self.segments:
            yield from segment.shown
