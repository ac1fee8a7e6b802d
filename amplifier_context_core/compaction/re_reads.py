"""Re-reads: what an agent reads again and again because compactions take it from the view.

A call reads if the name of its tool says so. It is a re-read if chapters list the same call with the same arguments
twice or more: it was read, folded, read again and folded again. Chapters shorten their oldest calls and long arguments,
so some re-reads are not found.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..messages.parsing import Call, arguments_of, calls_of
from ..rendering.json_tables import to_compact_text
from ..rendering.rounds import Results
from .checkpoint import Fact, Segment

_OFTEN = 2  # times that chapters list a call
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_READS = frozenset({"read", "view", "open", "fetch", "get", "show", "cat"})  # words of the names of tools that read

Source = tuple[str, frozenset[str]]  # name of the tool, words of its arguments


class ReReads(NamedTuple):
    """What was read again.

    Attributes:
        sources: how many; one that is read several times is one.
        tokens: of the newest result of each, as the history counts them.
    """

    sources: int = 0
    tokens: int = 0


def re_reads(segments: Sequence[Segment]) -> ReReads:
    """Return what the rounds of a view read again.

    Args:
        segments: of the view before a compaction: rounds since the former one, and chapters.
    """
    listed = Counter(
        source
        for segment in segments
        if segment.chapter
        for entry in segment.chapter.entries
        for fact in entry.facts
        if (source := _listed(fact))
    )
    tokens = _read_again(segments, {source for source, times in listed.items() if times >= _OFTEN})
    return ReReads(len(tokens), sum(tokens.values()))


def _read_again(segments: Sequence[Segment], folded: set[Source]) -> dict[Source, int]:
    """Return the tokens of the newest result of each of these sources that whole rounds read."""
    found: dict[Source, int] = {}
    for segment in segments:
        if not folded or segment.round is None or not segment.round.is_tool_round:
            continue
        results = Results(segment.round.entries)
        for entry in segment.round.entries:
            for call in calls_of(entry.message) if entry.role == "assistant" else ():
                answer = results.take(call.id)
                source = _called(call)
                if answer is not None and source in folded:
                    found[source] = answer[0].tokens // max(1, len(answer[0].answered_ids))
    return found


def _called(call: Call) -> Source | None:
    """Return what a call reads; None for one that does not read."""
    if not _is_reading(call.name):
        return None
    texts = [value if isinstance(value, str) else to_compact_text(value) for value in arguments_of(call).values()]
    return call.name, frozenset(word for text in texts for word in text.split())


def _listed(fact: Fact) -> Source | None:
    """Return what the call of a fact reads; None for another fact."""
    if fact.speaker or " " not in fact.subject:
        return None
    _, name, *words = fact.subject.split()
    return (name, frozenset(word.rpartition("=")[2] for word in words)) if _is_reading(name) else None


def _is_reading(tool: str) -> bool:
    return not _READS.isdisjoint(word.lower() for word in _WORDS.findall(tool[:100]))
