"""A view: a checkpoint and, after it, the rounds since (its tail), kept up to date as the history grows.

Between two checkpoints a view only grows at its end, at the cost of the new entries only. Not locked: the `Compactor`
lets one task in at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from ..compaction.checkpoint import Checkpoint, Segment, segment_of
from ..compaction.digest import with_round
from ..compaction.distant import DistantHistory, distant_end
from ..compaction.recalled import RecalledSize, recalled_size
from ..economics.trigger import CompactionBackoff
from ..futures import YIELD_EVERY, in_thread, in_thread_if
from ..messages.parsing import SYSTEM_ROLES
from ..messages.tokens import TokenCounter, are_large, count_message_tokens
from ..rendering.renderer import OPENING, RenderedMessage, RenderedRound, Renderer
from ..rendering.rounds import Round, RoundList, rounds_with
from ..transcript.entry import Entry
from ..transcript.transcript import Snapshot


class View:
    """One checkpoint, or none, and the rendered rounds since."""

    def __init__(
        self, checkpoint: Checkpoint | None, budget: int, renderer: Renderer, beginning: DistantHistory
    ) -> None:
        self.checkpoint = checkpoint  # covers the beginning of the history; None when all of it is shown
        self.budget = budget  # tokens of the requests it was made for
        self.backoff: CompactionBackoff | None = None
        self._renderer = renderer
        self.beginning = beginning  # up to the end of the gap, if the history has one; if not, it has only the pins
        # Of the history at the last update, or that the checkpoint is of; -1 for that of the first update.
        self.revision = -1
        self._interrupted: frozenset[int] = frozenset()
        self._opening_index: int | None = None
        self.reset()

    def reset(self) -> None:
        """Drop the rounds since the checkpoint; the next update adds them again."""
        self._renderer = self._renderer.without_calls(self._interrupted, self.made_at)
        self._distant: list[Segment] = []  # chapters of distant history, which is before the tail
        self.tail = ViewTail(self._renderer, self.checkpoint.covered if self.checkpoint else 0)
        self._messages: list[RenderedMessage] | None = None  # None if any may have changed
        before = self.checkpoint.segments if self.checkpoint else ()
        self.recalled_before = sum((recalled_size(segment.shown) for segment in before), RecalledSize())
        if self.checkpoint:
            self._renderer.register_shown_calls(self.checkpoint.shown)

    async def update(self, history: Snapshot, unchanged: int, interrupted: frozenset[int]) -> bool:
        """Bring the view up to date; return False if its checkpoint is not of this history any more. `unchanged`:
        entries after the leading instructions that are as they were at the last update; `interrupted`: turns whose open
        calls were stopped. Raises `NotLoaded`: it needs an entry that is only in the store.
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
        renderer, are_many = self._renderer, len(history) - leading > YIELD_EVERY
        end = await in_thread_if(are_many, distant_end, history, leading, self.budget, renderer)
        if end > leading:
            distant = self.beginning.copied() if history.gap else DistantHistory(self.beginning.pins)
            await in_thread(distant.extend, history[leading + distant.length : end])
            self._distant = await in_thread(distant.segments, renderer, self.counter)
            self.tail = ViewTail(renderer, end - leading)
            self._messages = None

    def hashed(self, history: Snapshot) -> tuple[int, bytes]:
        """Return how many entries after the leading instructions are hashed already, and their hash."""
        if self.checkpoint:
            return self.checkpoint.covered, self.checkpoint.digest
        return (self.beginning.length, self.beginning.digest) if history.gap else (0, b"")

    @cached_property
    def opening(self) -> RenderedMessage:
        return RenderedMessage(OPENING, count_message_tokens(OPENING, self.counter))

    @property
    def opening_tokens(self) -> int:
        return self.opening.tokens if self.opening_index is not None else 0

    @property
    def opening_index(self) -> int | None:
        """Index of the opening among the messages; None if the view needs none."""
        self.messages()
        return self._opening_index

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
        """Without the system prompt. Do not mutate the list: another one takes its place when the view changes.

        The opening comes right before the first message that is no instruction, unless that is a user's. Instructions
        that were sent before that message came keep their index.
        """
        if self._messages is None:
            shown = [*messages_of(self.head), *self.tail.messages()]
            roles = ((index, one.message["role"]) for index, one in enumerate(shown))
            index, role = next((one for one in roles if one[1] not in SYSTEM_ROLES), (0, "user"))
            self._opening_index = index if role != "user" else None
            if role != "user":
                shown.insert(index, self.opening)
            self._messages = shown
        return self._messages

    @property
    def head(self) -> Sequence[Segment]:
        return self.checkpoint.segments if self.checkpoint else self._distant

    def mentions(self, seq: int) -> bool:
        """True if the view shows this entry, clipped or as it was stored, or a carrier that replaces it."""
        return any(message.seq == seq for message in self.messages())

    def shows(self, seq: int) -> bool:
        """True if the view shows this entry as it was stored, or a carrier that replaces it: then requests that require
        the entry show it all the same.
        """
        changed = (one.shown for one in (self.checkpoint.segments if self.checkpoint else ()) if one.state != "kept")
        return self.mentions(seq) and not any(message.seq == seq for shown in changed for message in shown)

    async def show_verbatim(self, seq: int, history: Snapshot) -> None:
        """Show the round of an entry verbatim again, in its place, if the checkpoint folded or shortened it.

        The round is taken out of its chapter: no two segments begin with the same entry.
        """
        if seq in self.tail or self.shows(seq):
            return
        held = (one.round for one in self.head if one.round and any(entry.seq == seq for entry in one.round.entries))
        round_ = next(held, None)
        if round_ is None:  # in a chapter
            # Search only what the checkpoint covers: a late result after it is in the view already.
            covered = history[history.leading_count : history.leading_count + self.tail.start]
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


def with_segments(checkpoint: Checkpoint, segments: Sequence[Segment]) -> Checkpoint:
    """No other session may use the checkpoint."""
    tokens = sum(segment.tokens for segment in segments)
    return replace(checkpoint, segments=tuple(segments), tokens=tokens, from_content=False)


def messages_of(segments: Iterable[Segment]) -> list[RenderedMessage]:
    return [message for segment in segments for message in segment.shown]


class ViewTail:
    """The rounds of a view after its checkpoint, rendered. Indexes count from the first entry after the leading
    instructions: `start` is that of its first entry, `end` that of the next one to add.

    A round is immutable: an entry that joins it makes a new one, and one that joins two rounds moves all rounds after
    them. So a rendered round is found by the identity of its round, never by its index.
    """

    def __init__(self, renderer: Renderer, start: int) -> None:
        self.start = self.end = start
        self.newest_seq = 0  # highest seq of its entries; 0 before the first
        self.tokens = 0
        self.responses = 0
        self.recalled = RecalledSize()
        self.has_human = False
        self._renderer = renderer
        self._rounds = RoundList()
        self._indexes: dict[int, int] = {}  # by seq
        self._shown: list[tuple[Round, RenderedRound]] = []  # the rounds as they were rendered last
        self._stale = 0  # index in `_rounds` of the first round that may differ from what was rendered

    def __contains__(self, seq: int) -> bool:
        return seq in self._indexes

    def add(self, entry: Entry) -> None:
        self._indexes[entry.seq] = self.end
        self.end += 1
        self.newest_seq = max(self.newest_seq, entry.seq)
        self._renderer.register_calls(entry)
        self.responses += entry.role == "assistant"
        self.has_human |= entry.human
        self._stale = min(self._stale, self._rounds.add(entry))

    async def render(self) -> None:
        """Render the rounds that are new or changed; if this is cancelled, the next call continues."""
        known = {id(round_): (round_, rendered) for round_, rendered in self._shown[self._stale :]}
        del self._shown[self._stale :]
        for _, rendered in known.values():
            self.tokens -= rendered.tokens
            self.recalled -= recalled_size(rendered.messages)
        rounds = self._rounds.rounds
        while self._stale < len(rounds):
            batch = rounds[self._stale : self._stale + YIELD_EVERY]
            new = [round_ for round_ in batch if id(round_) not in known]
            for round_, rendered in zip(new, await rendered_rounds(self._renderer, new), strict=True):
                known[id(round_)] = (round_, rendered)
            shown = [known.pop(id(round_)) for round_ in batch]
            self.tokens += sum(rendered.tokens for _, rendered in shown)
            self.recalled = sum((recalled_size(rendered.messages) for _, rendered in shown), self.recalled)
            self._shown.extend(shown)
            self._stale = len(self._shown)
            if self._stale < len(rounds):
                await asyncio.sleep(0)

    @property
    def is_stale(self) -> bool:
        return self._stale < len(self._rounds.rounds)

    def messages(self) -> list[RenderedMessage]:
        return [message for _, rendered in self._shown for message in rendered.messages]

    def segments(self) -> list[Segment]:
        return _segments(self._shown)

    def parted(self, open_room: int) -> tuple[list[Segment], list[Segment]]:
        """Return the leading rounds that a checkpoint may cover, and those after them, as far as they show anything.

        `open_room`: tokens of rounds at the end that stay out, though a checkpoint could cover them: their host may
        replace a result of theirs again.
        """
        count = self._closed_count(open_room)
        return _segments(self._shown[:count]), _segments(self._shown[count:])

    def closed_end(self, open_room: int) -> int:
        """Return the index of the first entry that a checkpoint may not cover, see `parted`."""
        return self.start + sum(len(round_.entries) for round_ in self._rounds.rounds[: self._closed_count(open_room)])

    @property
    def fixes(self) -> dict[int, tuple[str, ...]]:
        """By the lowest seq of the round."""
        return {round_.first: rendered.fixes for round_, rendered in self._shown if rendered.fixes}

    def _closed_count(self, open_room: int) -> int:
        """Return how many leading rounds may be covered, of those rendered last: all closed, none with an entry after
        one of the rest.
        """
        closed, final = self._rounds.closed, self._rounds.final
        if sum(rendered.tokens for _, rendered in self._shown[final:closed]) <= open_room:
            closed = final
        cut = ends = 0
        furthest = self.start - 1
        for index, round_ in enumerate(self._rounds.rounds[:closed]):
            furthest = max(furthest, *(self._indexes[entry.seq] for entry in round_.entries))
            ends += len(round_.entries)
            if furthest == self.start + ends - 1:
                cut = index + 1
        return cut


async def rendered_rounds(renderer: Renderer, rounds: Sequence[Round]) -> list[RenderedRound]:
    """Large rounds are rendered in a thread.

    A renderer only reads while it renders, so nothing is lost if the caller is cancelled meanwhile.
    """

    def render() -> list[RenderedRound]:
        return [renderer.render(round_) for round_ in rounds]

    return await in_thread_if(are_large(entry.message for round_ in rounds for entry in round_.entries), render)


def _segments(shown: Sequence[tuple[Round, RenderedRound]]) -> list[Segment]:
    return [segment_for(round_, rendered) for round_, rendered in shown if rendered.messages]


def segment_for(round_: Round, rendered: RenderedRound) -> Segment:
    return segment_of(round_, rendered.messages, rendered.fixes)
