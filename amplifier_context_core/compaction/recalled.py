"""Recalled text: results of the recall tool in a view. They come and go; the originals stay in the history.

No compaction is made for them: towards its trigger each counts as one line, whatever its size. So a session with
recalls is compacted when the same session with one-line answers would be. Before the strategies of a compaction run,
they go, but for those in the newest round, which the model has not used yet, and those that are pinned or asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..messages.parsing import calls_of, results_of
from ..messages.tokens import TokenCounter
from ..rendering.renderer import RenderedMessage
from ..transcript.entry import Entry
from ..transcript.recalled import RECALL_TOOL
from .checkpoint import Draft, Segment
from .strategies.outputs import shorten_outputs

ONE_LINE = 16  # tokens that a result of the recall tool counts towards the trigger; its shortest answers have more
_KEPT = ("newest round", "pinned", "asked for")
_LEFT_OUT = "[recalled text left out again]"  # its call, which stays, names what was recalled


@dataclass(frozen=True, slots=True)
class RecalledSize:
    """`count` are the results of the recall tool; `tokens` are theirs, beyond a line each."""

    count: int = 0
    tokens: int = 0

    def __add__(self, other: RecalledSize) -> RecalledSize:
        return RecalledSize(self.count + other.count, self.tokens + other.tokens)

    def __sub__(self, other: RecalledSize) -> RecalledSize:
        return RecalledSize(self.count - other.count, self.tokens - other.tokens)


def recalled_results(shown: Iterable[RenderedMessage]) -> Iterator[RenderedMessage]:
    """Each is a message of its own with its call before it."""
    calls: set[str] = set()
    for one in shown:
        if one.message["role"] == "assistant":
            calls.update(call.id for call in calls_of(one.message) if call.name == RECALL_TOOL)
        elif calls and any(result.call_id in calls for result in results_of(one.message)):
            yield one


def recalled_size(shown: Sequence[RenderedMessage]) -> RecalledSize:
    sizes = [max(0, one.tokens - ONE_LINE) for one in recalled_results(shown)]
    return RecalledSize(len(sizes), sum(sizes))


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
