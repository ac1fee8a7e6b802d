"""The rounds of a view after its checkpoint, rendered, and kept up to date as the history grows.

A round is immutable: an entry that joins it makes a new one, and one that joins two rounds moves all rounds after
them. So a rendered round is found by the identity of its round, never by its index.

Indexes of entries count from the first entry after the leading instructions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..compaction.checkpoint import Segment, segment_of
from ..futures import YIELD_EVERY, in_thread_if
from ..messages.tokens import are_large
from ..rendering.recalled import RecalledSize, recalled_size
from ..rendering.renderer import RenderedMessage, RenderedRound, Renderer
from ..rendering.rounds import Round, RoundList
from ..transcript.entry import Entry


class ViewTail:
    """Indexes: `start` of the first entry, `end` of the next one to add."""

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
