"""What a strategy is: a draft and a goal in, a draft out, the same object when nothing changed.

A strategy sees rounds, never a flat list, so it cannot part a call from its result. It works oldest first and stops
as soon as the goal is met. Every strategy also runs by itself on a plain list of messages, for people without the
kernel: ``await TruncateToolOutputs(500).compact(messages)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ..checkpoint import Draft, Piece, piece_of
from ..messages import INSTRUCTING, Message, read_message
from ..render import Rendered, Summaries
from ..rounds import rounds_of, task_of
from ..tokens import TokenCounter, approx_token_counter, count_message_tokens
from ..transcript import Transcript

Score = Callable[[Message], float]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a compaction wants.

    Attributes:
        target: tokens the view should come down to.
        budget: tokens it must not exceed.
        counter: text to tokens.
        recent: lowest seqs of the rounds that are recent: touched only when nothing older is left to give.
        human_tokens: tokens that messages humans wrote keep for themselves, whatever else must go.
        protected_results: how many of the newest tool rounds keep their outputs.
        chapter_tokens: tokens that all chapters together may fill.
        summaries: short forms registered for tool results.
        focus: what the caller asked a summary to dwell on.
        settled: highest seq whose place in the view is not to be touched when humans' words are folded; 0 for none.
        ceiling: tokens that chapters are condensed for when all else was given in vain; 0 when there is no need.
    """

    target: int
    budget: int
    counter: TokenCounter = approx_token_counter
    recent: frozenset[int] = frozenset()
    human_tokens: int = 0
    protected_results: int = 0
    chapter_tokens: int = 1 << 62
    summaries: Summaries = field(default_factory=dict[int, Mapping[str, str]])
    focus: str | None = None
    settled: int = 0
    ceiling: int = 0

    def met_by(self, draft: Draft) -> bool:
        """Is the draft small enough?"""
        return draft.tokens <= self.target

    @property
    def is_last_resort(self) -> bool:
        """Is there nothing else to give: nothing recent, nothing of what humans wrote, nothing settled?"""
        return not (self.recent or self.human_tokens or self.settled)

    def may_touch(self, piece: Piece) -> bool:
        """May a strategy change this piece: not of the floor, not recent?"""
        return not piece.floor and piece.first not in self.recent


class Strategy:
    """Base of all strategies; by itself it does nothing.

    Attributes:
        name: how it is named in config, reports and events.
    """

    name: ClassVar[str] = "keep"

    async def apply(self, draft: Draft, goal: Goal) -> Draft:
        """Bring the draft nearer to the goal; return the same object if there was nothing to do."""
        return draft

    def goal(self, draft: Draft) -> Goal:
        """The goal when run by itself on a list: all that the strategy can free."""
        return Goal(target=0, budget=0)

    async def compact(self, messages: list[Message]) -> list[Message]:
        """Run by itself on a plain list of messages.

        System messages at the head, the task (first human message) and pinned messages always stay. The list given is
        not changed; the same list object comes back when there was nothing to do.

        Raises:
            InvalidMessage: a message is malformed.
        """
        head, draft = draft_of(messages, self.counter)
        done = await self.apply(draft, self.goal(draft))
        return messages if done is draft else [*head, *done.messages]

    @property
    def counter(self) -> TokenCounter:
        """Text to tokens when run by itself."""
        return approx_token_counter

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def draft_of(messages: Sequence[Message], counter: TokenCounter, **counting: Any) -> tuple[list[Message], Draft]:
    """The leading system messages of a plain list, and the draft of the rest, its messages as they were given."""
    transcript = Transcript()
    for message in messages:
        copied, reading = read_message(message)
        tokens = count_message_tokens(copied, counter, **counting)
        transcript.append(transcript.draft(copied, reading, tokens, created=""))
    entries = list(transcript.snapshot())
    leading = 0
    while leading < len(entries) and entries[leading].role in INSTRUCTING:
        leading += 1
    rounds = rounds_of(entries[leading:])
    task = task_of(rounds)
    pieces: list[Piece] = []
    for held in rounds:
        shown = [Rendered(messages[entry.seq - 1], entry.tokens, entry.seq) for entry in held.entries]
        piece = piece_of(held, shown)
        floor = "task" if held is task else "pinned" if held.is_pinned else ""
        pieces.append(floored(piece, floor))
    fixed = sum(entry.tokens for entry in entries[:leading])
    return list(messages[:leading]), Draft(tuple(pieces), fixed)


def floored(piece: Piece, why: str) -> Piece:
    """The piece with the reason why it may not be removed."""
    if piece.floor == why:
        return piece
    return replace(piece, floor=why)


def at_least(least: int, value: int, name: str) -> int:
    """`value`, if it is a whole number of at least `least`; else a ValueError that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return value
