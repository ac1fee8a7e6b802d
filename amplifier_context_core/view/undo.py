"""Taking a compaction back: the originals are shown again where they fit, else the digest's entries alone.

The history is not touched; only the view of the last request changes. A later compaction may fold the same rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Any, Literal, get_args

from ..compaction.checkpoint import Checkpoint, Segment
from ..compaction.digest import with_texts, without_round
from ..futures import YIELD_EVERY
from ..messages.tokens import TokenCounter
from ..rendering.rounds import REACH, Round, rounds_of
from ..transcript.transcript import Snapshot
from .candidate import carrier_of
from .view import View, with_segments

Shows = Literal["originals", "digest", "chapter"]
_SHOWS: tuple[Shows, ...] = get_args(Shows)
UNDONE = "undone"
"""Key beside the states of modules in a stored session: lowest seq of what was taken back without those modules."""


@dataclass(frozen=True, slots=True)
class Undone:
    # ``originals``; ``digest``: they did not fit, and a text of another author was taken out; ``chapter``: they did not
    # fit, and there was nothing else to take out.
    shows: Shows
    first: int  # lowest seq of the chapter
    last: int

    def as_json(self) -> dict[str, Any]:
        return {"first": f"m{self.first}", "last": f"m{self.last}", "shows": self.shows}


def undone_report(done: Sequence[Undone]) -> dict[str, Any]:
    """Return what became of chapters, the first at least: of all together, and of each in the order of the history."""
    shows = _SHOWS[max(_SHOWS.index(one.shows) for one in done)]
    whole = Undone(shows, min(one.first for one in done), max(one.last for one in done))
    chapters = [one.as_json() for one in reversed(done)]
    return {"undone": first_changed(done) is not None, **whole.as_json(), "chapters": chapters}


def first_changed(done: Sequence[Undone]) -> int | None:
    """Return the lowest seq of the chapters that an undo changed; None if it changed none."""
    return min((one.first for one in done if one.shows != "chapter"), default=None)


async def undo_compaction(
    view: View, history: Snapshot, seq: int | None, room: int, counter: TokenCounter
) -> list[Undone]:
    """Take chapters of a view back, the newest first; return what became of each, nothing if there is none.

    The view is up to date with the history, all of which is loaded. `seq`: of a message, whose chapter is taken back;
    None for all chapters of the newest compaction. `room`: tokens that the view may have.
    """
    checkpoint = view.checkpoint
    chapters = [segment for segment in (checkpoint.segments if checkpoint else ()) if segment.chapter]
    chosen = _newest(chapters) if seq is None else [one for one in chapters if one.first <= seq <= one.last]
    return [await _undo_chapter(view, history, chapter, room, counter) for chapter in reversed(chosen)]


def _newest(chapters: Sequence[Segment]) -> list[Segment]:
    """Return the chapters of the newest compaction; the last one where a stored session does not say."""
    newest = max((one.chapter.made_at for one in chapters if one.chapter), default=0)
    return [one for one in chapters if newest and one.chapter and one.chapter.made_at == newest] or list(chapters[-1:])


def _rounds_of(chapter: Segment, history: Snapshot, covered: int) -> list[Round]:
    """Return the rounds of a chapter, with results that came late: they may be after it."""
    entries = history[history.leading_count : history.leading_count + covered]
    places = [index for index, entry in enumerate(entries) if chapter.first <= entry.seq <= chapter.last]
    near = entries[max(0, places[0] - REACH) : places[-1] + REACH] if places else []
    return [one for one in rounds_of(near) if chapter.first <= one.first <= chapter.last]


def _without(segment: Segment, round_: Round, counter: TokenCounter) -> list[Segment]:
    is_in = segment.chapter is not None and segment.first <= round_.first <= segment.last
    return without_round(segment, round_, counter) if is_in else [segment]


async def _with_originals(
    view: View, checkpoint: Checkpoint, chapter: Segment, rounds: Sequence[Round], counter: TokenCounter
) -> tuple[Segment, ...]:
    """Put rounds in the place of their chapter; those shown already stay so."""
    kept = {one.seq for segment in checkpoint.segments if segment.state == "kept" for one in segment.shown}
    left = [round_ for round_ in rounds if round_.first not in kept]
    made: list[Segment] = []
    for start in range(0, len(left), YIELD_EVERY):
        made.extend(await view.verbatim(left[start : start + YIELD_EVERY]))
        await asyncio.sleep(0)
    firsts = {segment.first for segment in made}
    others: list[Segment] = []
    for one in checkpoint.segments:
        parts = [one] if one is not chapter and (one.chapter or one.first not in firsts) else []
        if one.chapter and one.first <= chapter.last and one.last >= chapter.first:  # a result came late
            for round_ in left:
                parts = [part for each in parts for part in _without(each, round_, counter)]
        others.extend(parts)
    return tuple(merge(others, made, key=lambda segment: segment.first))


async def _undo_chapter(view: View, history: Snapshot, chapter: Segment, room: int, counter: TokenCounter) -> Undone:
    checkpoint = view.checkpoint
    if checkpoint is None or chapter.chapter is None:
        raise ValueError(f"{chapter.mark} is no chapter of this view")
    if view.tokens - chapter.tokens + chapter.original_tokens <= room:
        rounds = _rounds_of(chapter, history, checkpoint.covered)
        segments = await _with_originals(view, checkpoint, chapter, rounds, counter)
        view.replace_checkpoint(with_segments(checkpoint, segments))
        if view.tokens <= room:
            return Undone("originals", chapter.first, chapter.last)
        view.replace_checkpoint(checkpoint)  # rendered, they are larger than they are stored
    if not chapter.chapter.texts and carrier_of(chapter) is None:
        return Undone("chapter", chapter.first, chapter.last)
    plain = with_texts(chapter, (), None, counter, "undo")
    segments = [plain if one.first == chapter.first else one for one in checkpoint.segments]
    view.replace_checkpoint(with_segments(checkpoint, segments))
    return Undone("digest", chapter.first, chapter.last)
