"""Results of the recall tool in a view. They come and go: no compaction is made for them, and at the next one they go.

Towards the trigger of a compaction a recalled text counts as one line, whatever its size. So a session with recalls is
compacted when the same session with one-line answers would be. The originals stay in the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..messages.parsing import calls_of, results_of
from ..transcript.recalled import RECALL_TOOL
from .renderer import RenderedMessage

ONE_LINE = 16  # tokens that a result of the recall tool counts towards the trigger; its shortest answers have more


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
