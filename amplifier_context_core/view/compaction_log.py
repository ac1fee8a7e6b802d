"""The accepted compactions: how many; of the last, when, why, and what they did. No content, so `forget` leaves it.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from ..messages.parsing import copy_json

_MOST = 100  # compactions; it is written with each save of the session's state
_KEYS = ("trigger", "budget", "before_tokens", "after_tokens", "prefix_given_up_tokens")


class CompactionLog:
    """The newest row is last."""

    def __init__(self) -> None:
        self.count = self.tokens_saved = 0  # of all, also those that have no row, or none yet
        self._rows: deque[dict[str, Any]] = deque(maxlen=_MOST)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [copy_json(row) for row in self._rows]

    def restore(self, count: int, tokens_saved: int, rows: Iterable[Mapping[str, Any]]) -> None:
        self.count, self.tokens_saved = count, tokens_saved
        self._rows = deque(map(dict, rows), maxlen=_MOST)

    def accepted(self, report: Mapping[str, Any]) -> None:
        self.count += 1
        self.tokens_saved += report["before_tokens"] - report["after_tokens"]

    def add(self, at: str, report: Mapping[str, Any]) -> str:
        """Add the report of a compaction at a time (ISO 8601); return its line of text."""
        names = [strategy["name"] for strategy in report["strategies"] if strategy["freed"]]
        row = {"at": at, **{key: report[key] for key in _KEYS}, "strategies": names}
        self._rows.append(row)
        return line_of_compaction(row)


def line_of_compaction(row: Mapping[str, Any]) -> str:
    """The time is left out."""
    sizes = f"{row['before_tokens']:,} to {row['after_tokens']:,} tokens of {row['budget']:,}"
    return f"{row['trigger']}, {sizes}, {row['prefix_given_up_tokens']:,} of the cached prefix written again"
