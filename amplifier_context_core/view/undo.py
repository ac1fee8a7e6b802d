"""Taking a chapter back: its originals are shown again where they fit, else the digest's entries alone.

The history is not touched; only the view of the last request changes. A later compaction may fold the same rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..compaction.checkpoint import Segment
from ..compaction.digest import with_texts
from ..messages.tokens import TokenCounter
from ..rendering.rounds import rounds_of
from ..transcript.transcript import Snapshot
from .view import View

UNDONE = "undone"
"""Key beside the states of modules in a saved session: lowest seq of what was taken back while they were not there."""


@dataclass(frozen=True, slots=True)
class Undone:
    """What became of a chapter.

    Attributes:
        shows: ``originals``; ``digest``: they did not fit, and a text of another author was taken out; ``chapter``:
            they did not fit, and there was nothing else to take out.
        first: lowest seq of the chapter.
        last: highest seq.
        tokens: of the view now, without its system prompt.
    """

    shows: Literal["originals", "digest", "chapter"]
    first: int
    last: int
    tokens: int


async def undo_chapter(
    view: View, history: Snapshot, seq: int | None, room: int, counter: TokenCounter
) -> Undone | None:
    """Take a chapter of a view back; return what became of it, None if there is no such chapter.

    Args:
        view: up to date with the history.
        history: all of it is loaded.
        seq: of a message in the chapter; None for the newest chapter.
        room: tokens that the view may have.
        counter: text to tokens.
    """
    checkpoint = view.checkpoint
    chapters = [segment for segment in (checkpoint.segments if checkpoint else ()) if segment.chapter]
    if seq is not None:
        chapters = [segment for segment in chapters if segment.first <= seq <= segment.last]
    if not chapters or checkpoint is None:
        return None
    chapter = chapters[-1]
    leading = history.leading_count
    covered = history[leading : leading + checkpoint.covered]
    rounds = rounds_of(entry for entry in covered if chapter.first <= entry.seq <= chapter.last)
    if view.tokens - chapter.tokens + chapter.original_tokens <= room:
        for round_ in rounds:
            await view.show_verbatim(round_.first, history)
        if view.tokens <= room:
            return Undone("originals", chapter.first, chapter.last, view.tokens)
        view.checkpoint = checkpoint  # rendered, they are larger than they are stored
    if chapter.chapter is None or not chapter.chapter.texts:
        return Undone("chapter", chapter.first, chapter.last, view.tokens)
    plain = with_texts(chapter, (), None, counter, "undo")
    segments: tuple[Segment, ...] = tuple(plain if one is chapter else one for one in checkpoint.segments)
    tokens = sum(segment.tokens for segment in segments)
    view.checkpoint = replace(checkpoint, segments=segments, tokens=tokens, from_content=False)
    return Undone("digest", chapter.first, chapter.last, view.tokens)
