"""Names in and near the messages that a search found: paths, ids and numbers, which an agent comes back to.

A sentence that matches a query is seldom in the message that has the path: the call, its result and the next message
have it. So names of the neighbours count too, less with each message between.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from amplifier_context_core.compaction.identifiers import identifiers

from .recall_pages import Counter, Source

NEAR = 2  # messages on each side of a hit
HITS = 10  # hits whose neighbours are looked at
_SCANNED = 40_000  # characters of a message that are read for names
_BEFORE_FIRST = 3  # the first hit counts a quarter more than the second, not twice as much
_DECAY = 0.8  # for each message between
_CALLED = 2.0  # what the agent itself wrote counts twice: it used these names
_SHORT = 8  # characters; a name counts by its length beside these, since long names cost more tokens
_APART = 2  # tokens between two names
_HEADER = 8  # tokens of the line before the names of a message


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A message at or near a hit.

    Attributes:
        source: the message.
        rank: of the hit, from 0.
        distance: messages from the hit.
        is_agents: True if the agent wrote it.
    """

    source: Source
    rank: int
    distance: int
    is_agents: bool

    @property
    def weight(self) -> float:
        """What a name in it counts."""
        return _DECAY**self.distance / (self.rank + _BEFORE_FIRST) * (_CALLED if self.is_agents else 1.0)


def name_sources(near: Iterable[Neighbour], shown: str, tokens: int, counter: Counter) -> list[Source]:
    """Return the best names by message, in the order of the messages; each name once.

    Args:
        near: messages at and near the hits.
        shown: text whose names are left out.
        tokens: that the names may cost, with a line for each message.
        counter: text to tokens.
    """
    weights: dict[str, float] = defaultdict(float)
    best: dict[str, Neighbour] = {}
    for one in near:
        for name in identifiers("\n".join(one.source.lines)[:_SCANNED]):
            weights[name] += one.weight
            if name not in best or one.weight > best[name].weight:
                best[name] = one
    chosen: dict[str, list[str]] = {}
    for name in sorted(weights, key=lambda name: weights[name] / (_SHORT + len(name)), reverse=True):
        if name in shown:
            continue
        mark = best[name].source.mark
        tokens -= counter(name) + _APART + (0 if mark in chosen else _HEADER)
        if tokens < 0:
            break
        chosen.setdefault(mark, []).append(name)
    return [Source(mark, "", (", ".join(chosen[mark]),)) for mark in sorted(chosen, key=_seq)]


def _seq(mark: str) -> int:
    return int(mark[1:])
