"""A view: a checkpoint and, after it, the rounds since (its tail), kept up to date as the history grows.

Between two checkpoints a view only grows at its end, at the cost of the new entries only.

Not locked: the `Compactor` lets one task in at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from ..compaction.checkpoint import Checkpoint, Segment
from ..compaction.digest import with_round
from ..compaction.distant import distant_end, fold_distant
from ..economics.trigger import CompactionBackoff
from ..futures import YIELD_EVERY, in_thread, in_thread_if
from ..messages.parsing import SYSTEM_ROLES
from ..messages.tokens import TokenCounter, count_message_tokens
from ..rendering.recalled import RecalledSize, recalled_size
from ..rendering.renderer import OPENING, RenderedMessage, Renderer
from ..rendering.rounds import Round, rounds_with
from ..transcript.transcript import Snapshot
from .tail import ViewTail, rendered_rounds, segment_for


class View:
    """One checkpoint, or none, and the rendered rounds since."""

    def __init__(
        self,
        checkpoint: Checkpoint | None,
        budget: int,
        renderer: Renderer,
        *,
        keep: Collection[int],
        revision: int = -1,
        backoff: CompactionBackoff | None = None,
    ) -> None:
        self.checkpoint = checkpoint  # covers the beginning of the history; None when all of it is shown
        self.budget = budget  # tokens of the requests it was made for
        self.backoff = backoff
        self._renderer = renderer
        self.keep = keep  # seqs of entries that distant history must show
        # Of the history at the last update, or that the checkpoint is of; -1 for that of the first update.
        self.revision = revision
        self._interrupted: frozenset[int] = frozenset()
        self.reset()

    def reset(self) -> None:
        """Drop the rounds since the checkpoint; the next update adds them again."""
        self._renderer = self._renderer.without_calls(self._interrupted, self.made_at)
        self._distant: list[Segment] = []  # chapters of distant history, which is before the tail
        self.tail = ViewTail(self._renderer, self.checkpoint.covered if self.checkpoint else 0)
        self._messages: list[RenderedMessage] | None = None  # without the opening; None if any may have changed
        before = self.checkpoint.segments if self.checkpoint else ()
        self.recalled_before = sum((recalled_size(segment.shown) for segment in before), RecalledSize())
        if self.checkpoint:
            self._renderer.register_shown_calls(self.checkpoint.shown)

    async def update(self, history: Snapshot, unchanged: int, interrupted: frozenset[int]) -> bool:
        """Bring the view up to date; return False if its checkpoint is not of this history any more.

        Args:
            unchanged: entries after the leading instructions that are as they were at the last update.
            interrupted: turns whose open calls were stopped.
        """
        if self.revision not in (-1, history.revision):
            if self.checkpoint and unchanged < self.checkpoint.covered:
                return False
            if unchanged < self.tail.end:
                self.reset()
        if interrupted != self._interrupted:
            self._interrupted = interrupted
            self.reset()
        self.revision = history.revision
        leading = history.leading_count
        if self.tail.end == 0:
            await self._fold_distant(history, leading)
        while (start := leading + self.tail.end) < len(history):
            for entry in history[start : start + YIELD_EVERY]:
                self.tail.add(entry)
            if leading + self.tail.end < len(history):
                await asyncio.sleep(0)
        if self.tail.is_stale:
            self._messages = None
            await self.tail.render()
        return True

    async def _fold_distant(self, history: Snapshot, leading: int) -> None:
        """Fold what is many budgets back in an imported history, without rendering it."""
        are_many = len(history) - leading > YIELD_EVERY
        end = await in_thread_if(are_many, distant_end, history, leading, self.budget, self._renderer)
        if end > leading:
            self._distant = await in_thread(
                fold_distant, history, leading, end, self.keep, self._renderer, self.counter
            )
            self.tail = ViewTail(self._renderer, end - leading)
            self._messages = None

    @cached_property
    def opening(self) -> RenderedMessage:
        return RenderedMessage(OPENING, count_message_tokens(OPENING, self.counter))

    @property
    def opening_tokens(self) -> int:
        return self.opening.tokens if self.opening_index() is not None else 0

    @property
    def counter(self) -> TokenCounter:
        return self._renderer.counter

    @property
    def tokens(self) -> int:
        """Without the system prompt. A request may be sent less (`outgoing`)."""
        before = self.checkpoint.tokens if self.checkpoint else sum(segment.tokens for segment in self._distant)
        return before + self.tail.tokens + self.opening_tokens

    @property
    def recalled(self) -> RecalledSize:
        return self.recalled_before + self.tail.recalled

    @property
    def made_at(self) -> int:
        """Newest seq of the history when the checkpoint was made; 0 without one."""
        return self.checkpoint.made_at if self.checkpoint else 0

    @property
    def newest_seq(self) -> int:
        return max(self.made_at, self.tail.newest_seq)

    def messages(self) -> list[RenderedMessage]:
        """Without the system prompt. Do not mutate them."""
        if (opening := self.opening_index()) is None:
            return self._all_messages()
        messages = self._all_messages()
        return [*messages[:opening], self.opening, *messages[opening:]]

    def _all_messages(self) -> list[RenderedMessage]:
        """Return a list that is replaced, never mutated."""
        if self._messages is None:
            self._messages = [*messages_of(self.head), *self.tail.messages()]
        return self._messages

    @property
    def head(self) -> Sequence[Segment]:
        return self.checkpoint.segments if self.checkpoint else self._distant

    @property
    def is_empty(self) -> bool:
        """True if it shows nothing yet; then it has no checkpoint."""
        return self.tail.end == 0

    @property
    def covered(self) -> int:
        """Entries after the system prompt that the checkpoint, or chapters of distant history, cover."""
        return self.tail.start

    def mentions(self, seq: int) -> bool:
        """True if the view shows this entry, clipped or as it was stored, or a carrier that replaces it."""
        return any(message.seq == seq for message in self.messages())

    def shows(self, seq: int) -> bool:
        """True if the view shows this entry as it was stored, or a carrier that replaces it.

        Where a carrier replaces it, requests that require it show it all the same.
        """
        for segment in self.checkpoint.segments if self.checkpoint else ():
            if segment.state != "kept" and any(shown.seq == seq for shown in segment.shown):
                return False
        return self.mentions(seq)

    async def show_verbatim(self, seq: int, history: Snapshot) -> None:
        """Show the round of an entry verbatim again, in its place, if the checkpoint folded or shortened it.

        The round is taken out of its chapter: no two segments begin with the same entry.
        """
        if seq in self.tail or self.shows(seq):
            return
        # Search only what the checkpoint covers: a late result after it is in the view already.
        covered = history[history.leading_count : history.leading_count + self.covered]
        round_ = rounds_with((seq,), covered).get(seq)
        if round_ is None:
            return
        (fresh,) = await self.verbatim((round_,))
        segments = with_round(self.head, fresh, round_, self.counter)
        self._messages = None
        if self.checkpoint is None:
            self._distant = segments
            return
        self.replace_checkpoint(with_segments(self.checkpoint, segments))

    def rerendered(self) -> list[Segment]:
        """Return the head, with segments rendered again that were clipped where protected segments did not fit."""
        return [
            segment_for(one.round, self._renderer.render(one.round)) if one.rule == "floor" and one.round else one
            for one in self.head
        ]

    async def verbatim(self, rounds: Sequence[Round]) -> list[Segment]:
        """The view stays as it is."""
        for entry in (entry for round_ in rounds for entry in round_.entries):
            self._renderer.register_calls(entry)
        rendered = await rendered_rounds(self._renderer, rounds)
        return [segment_for(*one) for one in zip(rounds, rendered, strict=True)]

    def replace_checkpoint(self, checkpoint: Checkpoint) -> None:
        """The new one is of the same entries."""
        self.checkpoint = checkpoint
        self._messages = None

    def segments(self) -> list[Segment]:
        return [*self.head, *self.tail.segments()]

    @property
    def output_limit(self) -> int:
        return self._renderer.output_limit

    def opening_index(self) -> int | None:
        """Return the index of the opening message; None if the view needs none.

        It comes right before the first message that is no instruction, unless that is a user's. Instructions that were
        sent before that message came keep their index.
        """
        for index, message in enumerate(self._all_messages()):
            if message.message["role"] not in SYSTEM_ROLES:
                return index if message.message["role"] != "user" else None
        return None


def with_segments(checkpoint: Checkpoint, segments: Sequence[Segment]) -> Checkpoint:
    """No other session may use the checkpoint."""
    tokens = sum(segment.tokens for segment in segments)
    return replace(checkpoint, segments=tuple(segments), tokens=tokens, from_content=False)


def messages_of(segments: Iterable[Segment]) -> list[RenderedMessage]:
    return [message for segment in segments for message in segment.shown]
