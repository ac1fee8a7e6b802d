"""Search in a history, for originals that were folded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, cast, runtime_checkable

from ..failures import Report, failure
from ..messages.parsing import Message, arguments_text, calls_of, result_text, results_of, text_of
from .candidates import Wanted, answered, look_up, weight_nearby
from .entry import Entry
from .ranking import Query, Text, finder, fold, grams, has_phrase, rank, significant, spelled
from .transcript import CopyingSnapshot, Snapshot
from .word_forms import begins, stem


@runtime_checkable
class SearchIndex(Protocol):
    """Finds entries by words."""

    def search(self, history: Iterable[Entry], query: str, limit: int) -> list[Entry]:
        """Return at most `limit` entries that match `query`, best first."""
        ...


class ScanIndex:
    """Scans the whole history on every search, and keeps nothing. It finds what an index finds, in the same order."""

    def search(self, history: Iterable[Entry], query: str, limit: int) -> list[Entry]:
        parsed = Query(query)
        if not parsed or limit < 1:
            return []
        entries = list(history)
        raw = [searchable_text(entry) for entry in entries]
        texts = list(map(fold, raw))
        names: list[str] = []  # of each text, made for the first term that looks for parts of them

        def having(wanted: Wanted) -> list[int]:
            (term,) = wanted.terms
            if term.is_inside:
                names.extend(map(grams, raw[len(names) :]))
                phrase = spelled("".join(term.parts))
                return [position for position, text in enumerate(names) if phrase in text]
            if len(term.parts) > 1 and not term.unspaced:
                return [position for position, text in enumerate(texts) if has_phrase(text, term)]
            # Of most texts the beginning of a term says that they do not have it, sooner than a pattern does.
            beginning = begins(stem(term.text)) if term.is_word else "".join(term.parts[:1])
            find = finder(wanted.terms)
            return [position for position, text in enumerate(texts) if beginning in text and find(text)]

        found = answered(look_up(parsed, len(texts)), having)
        frequency = {term: len(positions) for term, positions in found.items()}
        counting = {term: found[term] for term in significant(frequency)}
        candidates = sorted({position for positions in counting.values() for position in positions})
        nearby = weight_nearby(candidates, counting, len(texts))
        ranked = rank(
            parsed, ((at, ranked_text(entries[at], raw[at])) for at in candidates), frequency, nearby, len(texts)
        )
        return [entries[position] for position in ranked[:limit]]


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
    return message_text(entry.message)


def ranked_text(entry: Entry, text: str | None = None) -> Text:
    """Return what is ranked of an entry, whose text the caller may have."""
    given = entry.message.get("name") if entry.role in ("user", "assistant") else None  # others are names of tools
    name = given if isinstance(given, str) else ""
    return Text(searchable_text(entry) if text is None else text, entry.role, entry.created, name)


def message_text(message: Message) -> str:
    """Return all text of a message: its content, its calls and their arguments, outputs of tools."""
    parts = [text_of(message.get("content"))]
    parts.extend(f"{call.name} {arguments_text(call)}" for call in calls_of(message))
    parts.extend(result_text(result.content) for result in results_of(message) if result.content.__class__ is dict)
    return "\n".join(part for part in parts if part)
