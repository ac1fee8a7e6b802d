"""Checkpoints: the frozen, compacted rendering of a prefix of the history.

A `Piece` is one round as it is shown now (kept, clipped, cleared, superseded), or a chapter that stands for many. A
`Draft` is the pieces of a view while a compaction works on them; a `Checkpoint` is a draft that was accepted. It is
also its own report: every piece says what it stands for, what became of it, and by which rule.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import orjson

from .messages import Message
from .render import Rendered
from .rounds import Round

State = Literal["kept", "clipped", "cleared", "superseded", "folded"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a chapter: who spoke or which tool ran, how it ended, and names first seen there.

    Attributes:
        head: begins with the mark; who spoke and what, or which tool was called on what.
        outcome: how a call ended; empty for speech.
        names: identifiers, in the order they appeared.
        worth: for each name, how likely it is to be needed again; what is condensed loses the least first.
    """

    head: str
    outcome: str = ""
    names: tuple[str, ...] = ()
    worth: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """As it stands in the chapter: one line."""
        said = f"{self.head} -> {self.outcome}" if self.outcome else self.head
        return f"{said}; {' '.join(self.names)}" if self.names else said


@dataclass(frozen=True, slots=True)
class DigestLine:
    """What a chapter says of one round.

    Attributes:
        first: lowest seq of the round.
        last: highest seq.
        turn: its turn id, ``a3``.
        facts: what happened, each naming its mark and who spoke or which tool ran.
        tokens: cost of the text.
        before: tokens of the round as it stood in history.
    """

    first: int
    last: int
    turn: str
    facts: tuple[Fact, ...]
    tokens: int
    before: int

    @property
    def text(self) -> str:
        """As it stands in the chapter, on one or more lines."""
        return "\n".join(fact.text for fact in self.facts)


@dataclass(frozen=True, slots=True)
class Chapter:
    """Rounds folded into a short text.

    Attributes:
        lines: one for each round still spoken of, in order.
        left_out: rounds in the range that no line speaks of any more.
        before: tokens of all its rounds as they stood in history.
        author: ``digest`` (rules) or ``summary`` (a model).
    """

    lines: tuple[DigestLine, ...]
    before: int
    left_out: int = 0
    author: str = "digest"


@dataclass(frozen=True, slots=True)
class Piece:
    """A round, or a chapter, as a view shows it.

    Attributes:
        first: lowest seq it stands for.
        last: highest seq it stands for.
        turn: turn id of its first message.
        shown: the messages sent for it.
        tokens: their cost.
        before: what the same rounds cost as they stand in history.
        state: what became of it.
        rule: which strategy or rule did that; empty while it is kept as it was.
        round: the entries behind it; None for a chapter.
        chapter: what it says, for a chapter.
        floor: why no strategy may remove it (``task``, ``pinned`` ...); empty when they may.
    """

    first: int
    last: int
    turn: str
    shown: tuple[Rendered, ...]
    tokens: int
    before: int
    state: State = "kept"
    rule: str = ""
    round: Round | None = None
    chapter: Chapter | None = None
    floor: str = ""

    @property
    def mark(self) -> str:
        """Mark of its first message."""
        return f"m{self.first}"

    @property
    def is_human(self) -> bool:
        """Is it a message a human wrote, still standing by itself?"""
        return self.round is not None and self.round.is_human

    def showing(self, shown: Sequence[Rendered], state: State, rule: str) -> Piece:
        """The same piece, shown differently."""
        messages = tuple(shown)
        return replace(self, shown=messages, tokens=sum(m.tokens for m in messages), state=state, rule=rule)


def piece_of(held: Round, shown: Sequence[Rendered], mends: Sequence[str] = ()) -> Piece:
    """A round as it stands, before any strategy touched it."""
    messages = tuple(shown)
    return Piece(
        held.first,
        held.last,
        held.head.turn_id,
        messages,
        sum(message.tokens for message in messages),
        held.tokens,
        "kept",
        "mended" if mends else "",
        held,
    )


@dataclass(frozen=True, slots=True)
class Draft:
    """The pieces of a view while strategies work on them. Immutable: a change makes a new draft.

    Attributes:
        pieces: in the order of the view.
        fixed: tokens of the view outside the pieces (system prompt, rounds still open).
    """

    pieces: tuple[Piece, ...]
    fixed: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of the whole view."""
        return self.fixed + sum(piece.tokens for piece in self.pieces)

    @property
    def messages(self) -> list[Message]:
        """The messages of the pieces, in order."""
        return [shown.message for piece in self.pieces for shown in piece.shown]

    def with_pieces(self, pieces: Iterable[Piece]) -> Draft:
        """A draft of other pieces."""
        return Draft(tuple(pieces), self.fixed)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Checkpoint:
    """An accepted draft. Never changes; stands for the first `covered` entries of the history.

    Attributes:
        covered: entries it stands for, counted from the first after the leading instructions.
        upto: highest seq among them.
        digest: hash of what it covers, by content: the same history in another session has the same.
        pieces: what is shown for them.
        tokens: cost of that.
        made_at: highest seq in the history when it was made.
        budget: tokens of the request it was made for.
    """

    covered: int
    upto: int
    digest: bytes
    pieces: tuple[Piece, ...]
    tokens: int
    made_at: int
    budget: int

    @property
    def mark(self) -> str:
        """How it is named in reports: by the last message it covers."""
        return f"m{self.upto}"

    @property
    def shown(self) -> Iterable[Rendered]:
        """All its messages, in order."""
        for piece in self.pieces:
            yield from piece.shown


def content_hash(message: Message) -> bytes:
    """Sixteen bytes that are the same for the same content, whenever it was said."""
    timeless = {key: value for key, value in message.items() if key not in ("timestamp", "metadata")}
    metadata = message.get("metadata")
    if isinstance(metadata, dict):
        kept = {key: value for key, value in metadata.items() if key != "timestamp"}  # pyright: ignore[reportUnknownVariableType]
        if kept:
            timeless["metadata"] = kept
    try:
        data = orjson.dumps(timeless, option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONEncodeError, UnicodeError):
        data = json.dumps(timeless, sort_keys=True).encode()
    return hashlib.blake2b(data, digest_size=16).digest()


def chain(before: bytes, seq: int, content: bytes) -> bytes:
    """Hash of a run of entries: the hash of those before, then one more, by its seq and its content."""
    return hashlib.blake2b(before + seq.to_bytes(8, "big") + content, digest_size=16).digest()
