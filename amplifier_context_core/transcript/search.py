"""Search in a history, for originals that were folded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol, cast, runtime_checkable

from ..failures import Report, failure
from ..messages.parsing import arguments_text, calls_of, result_text, results_of, text_of
from .transcript import CopyingSnapshot, Entry, Snapshot

_WORD = re.compile(r"[\w./:@#-]+")
_PUNCTUATION = ".:-"  # punctuation of the sentence, at the end of a word


@runtime_checkable
class SearchIndex(Protocol):
    """Finds entries by words."""

    def search(self, history: Iterable[Entry], query: str, limit: int) -> list[Entry]:
        """Return at most `limit` entries that match `query`, best first."""
        ...


class ScanIndex:
    """Scans the whole history on every search. It keeps no index, which suits one session in memory.

    The score of an entry is the number of query words in it, weighted by rarity. Entries that contain the whole query
    come first. Newer entries win ties.
    """

    def search(self, history: Iterable[Entry], query: str, limit: int) -> list[Entry]:
        found_words = (word.rstrip(_PUNCTUATION) or word for word in _WORD.findall(query))
        words = list(dict.fromkeys(word.lower() for word in found_words))
        if not words or limit < 1:
            return []
        hits: list[tuple[Entry, frozenset[str], bool]] = []
        spread = dict.fromkeys(words, 0)
        whole = query.strip().lower()
        for entry in history:
            text = searchable_text(entry).lower()
            found = frozenset(word for word in words if word in text)
            if found:
                hits.append((entry, found, whole in text))
                for word in found:
                    spread[word] += 1
        ranked = sorted(
            hits, key=lambda hit: (hit[2], sum(1 / spread[word] for word in hit[1]), hit[0].seq), reverse=True
        )
        return [entry for entry, _, _ in ranked[:limit]]


class GuardedIndex:
    """An index of a plug-in. Where it fails, or returns no entries, the history is scanned instead.

    Args:
        index: the index.
        name: its name in config.
        report: called with a line for each fault.
    """

    def __init__(self, index: SearchIndex, name: str, report: Report) -> None:
        self._index = index
        self._name = name
        self._report = report

    def search(self, history: Snapshot, query: str, limit: int) -> list[Entry]:
        try:
            found: Any = self._index.search(CopyingSnapshot(history), query, limit)
        except Exception as problem:  # noqa: BLE001 - other people's code: reported
            fault = failure(problem, self._index)
        else:
            if isinstance(found, list) and all(isinstance(entry, Entry) for entry in cast("list[Any]", found)):
                return cast("list[Entry]", found)[:limit]
            fault = "returned no list of entries"
        self._report(f"search index {self._name} {fault}; the history is scanned instead")
        return ScanIndex().search(history, query, limit)


def searchable_text(entry: Entry) -> str:
    """Return all text of an entry: its content, its calls and their arguments, outputs of tools."""
    parts = [text_of(entry.message.get("content"))]
    parts.extend(f"{call.name} {arguments_text(call)}" for call in calls_of(entry.message))
    parts.extend(
        result_text(result.content) for result in results_of(entry.message) if result.content.__class__ is dict
    )
    return "\n".join(part for part in parts if part)
