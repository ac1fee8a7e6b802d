"""Re-reads: what an agent reads again and again because compactions take it from the view.

A call reads if the name of its tool says so. It is a re-read if chapters list the same call with the same arguments
twice or more: it was read, folded, read again and folded again. Chapters shorten their oldest calls and long arguments,
so some re-reads are not found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import NamedTuple

from ..messages.parsing import Call, arguments_of, calls_of
from ..rendering.json_tables import to_compact_text
from ..rendering.rounds import Results
from .checkpoint import Fact, Segment
from .states import words_of_tool

_OFTEN = 2  # times that chapters list a call
_READS = frozenset({"read", "view", "open", "fetch", "get", "show", "cat"})  # words of the names of tools that read

Source = tuple[str, frozenset[str]]  # name of the tool, words of its arguments


class ReReads(NamedTuple):
    sources: int = 0  # how many; one that is read several times is one
    tokens: int = 0  # of the newest result of each, as the history counts them


def re_reads(segments: Sequence[Segment]) -> ReReads:
    """Return what rounds since the former compaction read again, given the segments of a view before the next one."""
    newest = _newest_reads(segments)
    tools = {tool for tool, _ in newest}
    entries = (entry for segment in segments if segment.chapter for entry in segment.chapter.entries)
    listed = (_listed(fact, tools) for entry in entries for fact in entry.facts if not fact.speaker)
    times = Counter(source for source in listed if source is not None and source in newest)
    again = [newest[source] for source, count in times.items() if count >= _OFTEN]
    return ReReads(len(again), sum(again))


def _newest_reads(segments: Sequence[Segment]) -> dict[Source, int]:
    """Return what whole rounds read, with the tokens of the newest result of each."""
    found: dict[Source, int] = {}
    for segment in segments:
        if segment.round is None or not segment.round.is_tool_round:
            continue
        results = Results(segment.round.entries)
        for entry in segment.round.entries:
            for call in calls_of(entry.message) if entry.role == "assistant" else ():
                answer = results.take(call.id)
                source = _called(call)
                if answer is not None and source is not None:
                    found[source] = answer[0].tokens // max(1, len(answer[0].answered_ids))
    return found


def _called(call: Call) -> Source | None:
    """Return what a call reads; None for one that does not read."""
    if _READS.isdisjoint(words_of_tool(call.name)):
        return None
    texts = [value if isinstance(value, str) else to_compact_text(value) for value in arguments_of(call).values()]
    return call.name, frozenset(word for text in texts for word in text.split())


def _listed(fact: Fact, tools: Container[str]) -> Source | None:
    """Return what the call of a fact reads; None if it is of no such tool."""
    _, tool, *words = (*fact.subject.split(), "", "")
    return (tool, frozenset(word.rpartition("=")[2] for word in words if word)) if tool in tools else None
