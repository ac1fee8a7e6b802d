"""The index that is always there, a scan of the history, and what guards the index of a plug-in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, cast

from ..failures import Report, failure
from .entry import Entry
from .query import PARTS, Query, Term, fold, names, root
from .ranking import Text, finder, search
from .searchable import SearchIndex, searchable_text
from .transcript import CopyingSnapshot, Snapshot


class ScanIndex:
    """Scans the whole history on every search, and keeps nothing."""

    def search(self, history: Iterable[Entry], query: str, limit: int) -> list[Entry]:
        entries = list(history)
        found = search(Query(query), _Scan(entries), len(entries), limit)
        return [entries[key] for key in found]


class _Scan:
    """See `ranking.Index`; the keys are the places in a list."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._raw = list(map(searchable_text, entries))
        self._folded = list(map(fold, self._raw))

    @cached_property
    def _names(self) -> list[str]:
        return list(map(names, self._raw))

    def having(self, terms: Sequence[Term], limit: int) -> list[int]:
        found = [self._having(term) for term in terms]
        return [key for key in reversed(range(len(self._entries))) if all(key in one for one in found)][:limit]

    def _having(self, term: Term) -> set[int]:
        if term.is_inside:
            return {key for key, text in enumerate(self._names) if "".join(term.parts) in text}
        if len(term.parts) > 1 and not term.unspaced:
            return {key for key, text in enumerate(self._folded) if has_phrase(text, term)}
        # Of most texts the beginning of a term says that they do not have it, sooner than a pattern does.
        beginning = root(term.text) if term.is_word else "".join(term.parts[:1])
        find = finder([term])
        return {key for key, text in enumerate(self._folded) if beginning in text and find(text)}

    def texts(self, keys: Sequence[int]) -> Iterator[tuple[int, Text]]:
        return ((key, ranked_text(self._entries[key], self._raw[key])) for key in keys)


class GuardedIndex:
    """An index of a plug-in, by its name in config. Where it fails, that is reported, and the history is scanned."""

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


def has_phrase(text: str, term: Term) -> bool:
    """True if a folded text has the words of a term in their order.

    Linear; the pattern of a term is not, where a text repeats its words.
    """
    if not all(part in text for part in term.parts):
        return False
    words = " ".join(found.group() for found in PARTS.finditer(text))
    return f" {' '.join(term.parts)}{'' if term.is_prefix else ' '}" in f" {words} "


def ranked_text(entry: Entry, text: str | None = None) -> Text:
    given = entry.message.get("name") if entry.role in ("user", "assistant") else None  # others are names of tools
    name = given if isinstance(given, str) else ""
    return Text(searchable_text(entry) if text is None else text, entry.role, entry.created, name)
