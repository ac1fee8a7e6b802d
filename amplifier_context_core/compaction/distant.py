"""Distant history: what lies further back than a first compaction looks at round by round, folded at once.

A view without a checkpoint shows all of its history. For an imported history of many budgets that is not possible, and
to render and digest each of its rounds would take minutes. So rounds that lie several budgets back become chapters
before anything is rendered. A chapter lists the newest words of people and counts the other rounds.

The distance is measured in tokens that a view would show at least. A history that fits a view is therefore never
folded here, however long its originals are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from itertools import groupby
from typing import NamedTuple

from ..messages.parsing import text_of
from ..messages.tokens import TokenCounter
from ..rendering.renderer import Renderer
from ..rendering.rounds import Round, RoundList
from ..rendering.sendable import is_left_out
from ..transcript.entry import Entry
from ..transcript.transcript import Snapshot
from .checkpoint import Segment, segment_of
from .digest import chapter_of, digest_round

_REACH = 8  # budgets of history before the newest entry that a first compaction looks at round by round
_LISTED = 500  # rounds of people that chapters list, the newest; more would not survive the first condensing
_AT_ONCE = 2_000  # rounds that are held until those that no chapter shows are let go
_LINE_SHARE = 0.25  # of a round's tokens that its entry may cost: the default of `FoldRounds`


def distant_end(history: Snapshot, body: int, budget: int, renderer: Renderer) -> int:
    """Return the index of the first entry that is not distant; `body`, where leading instructions end, if none is.

    The budget is in tokens; the renderer knows the limits of tool outputs. Raises `NotLoaded`: it is only in the store.
    """
    enough = _REACH * budget
    seen = 0
    end = len(history)
    while end > body and seen < enough:
        end -= 1
        seen += _least_shown(history[end], renderer)
    if seen < enough:
        return body
    while end > body and history[end].answered_ids:
        end -= 1  # a call stays with the results that follow it
    return end


def _least_shown(entry: Entry, renderer: Renderer) -> int:
    """Return the least tokens that an entry costs in a view: tool outputs are clipped, or shown as tables."""
    if is_left_out(entry.message):
        return 0
    if not entry.answered_ids:
        return entry.tokens
    text = text_of(entry.message.get("content"))
    if renderer.tables and text[:1] in ("[", "{"):
        return 0  # how small a table is shows only when it is made
    results = len(entry.answered_ids)
    within_bytes = entry.tokens * results * renderer.output_bytes // max(4 * len(text), 1)
    return min(entry.tokens, results * renderer.output_limit, within_bytes)


class _Part(NamedTuple):
    """A round, or neighbouring rounds that are only counted."""

    first: int  # lowest seq
    last: int
    turn: str  # turn id of the entry with the lowest seq
    tokens: int  # in the history
    rounds: int = 1
    round: Round | None = None
    stays: bool = False
    is_of_person: bool = False

    @classmethod
    def of(cls, round_: Round, *, stays: bool) -> _Part:
        lowest = min(round_.entries, key=lambda entry: entry.seq)
        is_of_person = any(entry.human and not is_left_out(entry.message) for entry in round_.entries)
        return cls(lowest.seq, round_.last, lowest.turn_id, round_.tokens, 1, round_, stays, is_of_person)

    @classmethod
    def over(cls, parts: Sequence[_Part]) -> _Part:
        lowest, last = min(parts, key=lambda part: part.first), max(part.last for part in parts)
        tokens, rounds = sum(part.tokens for part in parts), sum(part.rounds for part in parts)
        return cls(lowest.first, last, lowest.turn, tokens, rounds)


class DistantHistory:
    """Distant history as far as its chapters show it. It takes little memory, however long it is.

    The first and the newest round of a person stay, pinned rounds, rounds that carry loaded tools or a provider's own
    compaction, and rounds with a result from after the latter. Of the others, the newest of people are listed, and all
    are counted. A result that comes after its call was given up may count as a round of its own.
    """

    def __init__(self, pins: Collection[int]) -> None:
        self.length = self.turns = 0  # entries, and turns that begin in them
        self.digest = b""  # hash of them, as a checkpoint has it; empty if it is not needed
        self.pins = pins
        self._parts: list[_Part] = []
        self._entries: list[Entry] = []  # those after the parts
        self._rounds = RoundList()  # of these entries

    def copied(self) -> DistantHistory:
        made = copy(self)
        made._entries, made._rounds = [*self._entries], RoundList(self._entries)
        return made

    def extend(self, entries: Collection[Entry]) -> None:
        for entry in entries:
            if len(self._rounds) >= _AT_ONCE and not entry.answered_ids and self._rounds.closed == len(self._rounds):
                self._count_rounds()
            self._rounds.add(entry)
            self._entries.append(entry)
            self.turns += entry.human
        self.length += len(entries)

    def segments(self, renderer: Renderer, counter: TokenCounter) -> list[Segment]:
        """Return chapters around the rounds that stay."""
        self._count_rounds()
        shown = _whole(self._parts, people=1)
        segments: list[Segment] = []
        for is_shown, neighbours in groupby(self._parts, key=lambda part: part.first in shown):
            parts = list(neighbours)
            rounds = [part.round for part in parts if part.round]
            segments += [_verbatim(one, renderer) for one in rounds] if is_shown else [_chapter(parts, rounds, counter)]
        return segments

    def _count_rounds(self) -> None:
        """Let go of the rounds that no chapter will show."""
        rounds = self._rounds.rounds
        carriers = [round_.first for round_ in rounds if round_.is_native_context]
        found = [*self._parts, *(_Part.of(one, stays=_stays(one, self.pins, carriers)) for one in rounds)]
        whole = _whole(found, people=_LISTED)
        self._parts, self._entries, self._rounds = [], [], RoundList()
        for is_whole, neighbours in groupby(found, key=lambda part: part.first in whole):
            parts = list(neighbours)
            self._parts += parts if is_whole else [_Part.over(parts)]


def _whole(parts: Sequence[_Part], people: int) -> set[int]:
    """Return the lowest seqs of the rounds that stay, and of the first and the newest rounds of people."""
    spoken = [part.first for part in parts if part.is_of_person]
    return {part.first for part in parts if part.stays} | {*spoken[:1], *spoken[-people:]}


def _stays(round_: Round, pins: Collection[int], carriers: Collection[int]) -> bool:
    is_pinned = round_.is_pinned or any(entry.seq in pins for entry in round_.entries)
    is_state = round_.holds_loaded_tools or round_.is_native_context
    is_parted = round_.last - round_.first >= len(round_.entries)  # few are: not each is compared with all carriers
    return is_pinned or is_state or (is_parted and round_.has_result_after(carriers))


def _verbatim(round_: Round, renderer: Renderer) -> Segment:
    for entry in round_.entries:
        renderer.register_calls(entry)
    rendered = renderer.render(round_)
    return segment_of(round_, rendered.messages, rendered.fixes)


def _chapter(parts: Sequence[_Part], listed: Sequence[Round], counter: TokenCounter) -> Segment:
    whole, known = _Part.over(parts), set[str]()
    span = whole.first, whole.last
    entries = [digest_round(round_, known, counter, share=_LINE_SHARE) for round_ in listed]
    left_out = whole.rounds - len(entries)
    chapter, shown = chapter_of(entries, counter, left_out=left_out, original_tokens=whole.tokens, span=span)
    return Segment(*span, whole.turn, (shown,), shown.tokens, whole.tokens, "folded", "distant", None, chapter)
