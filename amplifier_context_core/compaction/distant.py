"""Distant history: what lies further back than a first compaction looks at round by round, folded at once.

A view without a checkpoint shows all of its history. For an imported history of many budgets that is not possible, and
to render and digest each of its rounds would take minutes. So rounds that lie several budgets back become chapters
before anything is rendered. A chapter lists the newest words of people and counts the other rounds.

The distance is measured in tokens that a view would show at least. A history that fits a view is therefore never
folded here, however long its originals are.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Iterator

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
_BATCH = 5_000  # entries whose rounds are in memory at once
_LISTED = 500  # rounds of people that chapters list, the newest; more would not survive the first condensing
_LINE_SHARE = 0.25  # of a round's tokens that its entry may cost: the default of `FoldRounds`


def distant_end(history: Snapshot, body: int, budget: int, renderer: Renderer) -> int:
    """Return the index of the first entry that is not distant; `body`, where leading instructions end, if none is.

    The budget is in tokens; the renderer knows the limits of tool outputs.
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


class _Survey:
    """The rounds of distant history, in order: figures of all, by number, and the few that are shown or listed."""

    def __init__(self) -> None:
        # Lowest and highest seq of each round, and its tokens in the history. Arrays: there may be a million.
        self.figures = (array("q"), array("q"), array("q"))
        self.kept: dict[int, Round] = {}
        self.people: deque[tuple[int, Round]] = deque(maxlen=_LISTED)  # rounds that people wrote, the newest
        self.parted: dict[int, Round] = {}  # rounds with other messages between theirs
        self.carriers: list[int] = []  # seqs of a provider's own compactions

    def add(self, round_: Round, pins: Collection[int]) -> None:
        number = len(self.figures[0])
        for figures, figure in zip(self.figures, (round_.first, round_.last, round_.tokens), strict=True):
            figures.append(figure)
        pinned = round_.is_pinned or any(entry.seq in pins for entry in round_.entries)
        stays = pinned or round_.holds_loaded_tools or round_.is_native_context
        if stays or (round_.is_human and not self.people):
            self.kept[number] = round_
        if round_.is_native_context:
            self.carriers.append(round_.first)
        if round_.last - round_.first >= len(round_.entries):
            self.parted[number] = round_
        if round_.is_human:
            self.people.append((number, round_))

    def finish(self) -> None:
        """Keep what shows only at the end: the newest round of a person, and results from after a carrier."""
        self.kept |= list(self.people)[-1:]
        if self.carriers:
            self.kept |= {number: one for number, one in self.parted.items() if one.has_result_after(self.carriers)}


def fold_distant(
    history: Snapshot, body: int, end: int, pins: Collection[int], renderer: Renderer, counter: TokenCounter
) -> list[Segment]:
    """Return the entries from index `body` to `end` as chapters around the rounds that must stay.

    The first and the newest round of a person stay, pinned rounds, rounds that carry loaded tools or a provider's own
    compaction, and rounds with a result from after the latter.
    """
    survey = _Survey()
    for round_ in _rounds(history, body, end):
        survey.add(round_, pins)
    survey.finish()
    segments: list[Segment] = []
    start = 0
    for number in (*sorted(survey.kept), len(survey.figures[0])):
        if number > start:
            segments.append(_chapter(survey, start, number, history, counter))
        if (kept := survey.kept.get(number)) is not None:
            for entry in kept.entries:
                renderer.register_calls(entry)
            rendered = renderer.render(kept)
            segments.append(segment_of(kept, rendered.messages, rendered.fixes))
        start = number + 1
    return segments


def _chapter(survey: _Survey, start: int, stop: int, history: Snapshot, counter: TokenCounter) -> Segment:
    firsts, lasts, sizes = (figures[start:stop] for figures in survey.figures)
    span, tokens = (min(firsts), max(lasts)), sum(sizes)
    known: set[str] = set()
    entries = [
        digest_round(round_, known, counter, share=_LINE_SHARE)
        for number, round_ in survey.people
        if start <= number < stop and number not in survey.kept
    ]
    left_out = stop - start - len(entries)
    chapter, shown = chapter_of(entries, counter, left_out=left_out, original_tokens=tokens, span=span)
    first = history.find(span[0])
    turn = first.turn_id if first else ""
    return Segment(*span, turn, (shown,), shown.tokens, tokens, "folded", "distant", None, chapter)


def _rounds(history: Snapshot, start: int, stop: int) -> Iterator[Round]:
    """Yield the rounds between two indices, paired in batches so that few are in memory."""
    rounds = RoundList()
    for index in range(start, stop):
        rounds.add(history[index])
        if len(rounds) < _BATCH and index < stop - 1:
            continue
        closed = rounds.closed if index < stop - 1 else len(rounds)
        yield from rounds.rounds[:closed]
        rounds = RoundList(entry for round_ in rounds.rounds[closed:] for entry in round_.entries)
