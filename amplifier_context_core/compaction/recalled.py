"""A step of each compaction, before its strategies: recalled text goes.

It stays in the newest round, where the model has not used it yet, and where it is pinned or the request asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..messages.tokens import TokenCounter
from ..rendering.recalled import ONE_LINE, recalled_results, recalled_size
from ..transcript.entry import Entry
from .checkpoint import Draft, Segment
from .strategies.outputs import shorten_outputs

_KEPT = ("newest round", "pinned", "asked for")
_LEFT_OUT = "[recalled text left out again]"  # its call, which stays, names what was recalled


def without_recalled(draft: Draft, counter: TokenCounter) -> Draft:
    """Put a line in the place of each recalled text."""
    return draft.with_segments(
        segment if segment.protected_because in _KEPT else _shortened(segment, counter) for segment in draft.segments
    )


def newest_recalled(segments: Sequence[Segment]) -> int:
    """Return the tokens beyond a line each of recalled text in the newest round, which a compaction keeps."""
    return recalled_size(segments[-1].shown).tokens if segments else 0


def _shortened(segment: Segment, counter: TokenCounter) -> Segment:
    long = {one.seq for one in recalled_results(segment.shown) if one.tokens > ONE_LINE}
    if not long:
        return segment

    def shorten(text: str, entry: Entry | None, call: str) -> str:
        return _LEFT_OUT if entry is not None and entry.seq in long else text

    return shorten_outputs(segment, counter, "clipped", "recalled", shorten)
