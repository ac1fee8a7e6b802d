"""Summaries of tool results: a short form that a host registered, or the ``compact_summary`` in the message.

An entry may hold many results, and each is looked up by its call. So an entry is parsed once, not once per result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard

from ..messages.parsing import block_answers, blocks_of, metadata_of
from ..transcript.entry import Entry
from .quoting import without_surrogates

Summaries = Mapping[int, Mapping[str, str]]  # short forms of tool results: seq of the result, call id, text


class ResultSummaries:
    """The summaries of the results of some entries, during one rendering."""

    def __init__(self, registered: Summaries) -> None:
        self._registered = registered
        self._own: dict[int, Mapping[str, str]] = {}  # by seq and call id, the summaries in the blocks of an entry

    def of(self, entry: Entry, call_id: str) -> str | None:
        """The call may have its id as stored or as sent."""
        registered = self.registered(entry, call_id)
        if registered is not None:
            return registered
        candidates: list[object] = [metadata_of(entry.message).get("compact_summary")]
        if entry.seq not in self._own:
            self._own[entry.seq] = _brought(entry)
        candidates.append(self._own[entry.seq].get(call_id))
        return _first_of(candidates)

    def registered(self, entry: Entry, call_id: str) -> str | None:
        registered = self._registered.get(entry.seq, {})
        # The id under which the only result is sent may differ from the stored one.
        others = registered.values() if len(entry.answered_ids) == 1 else ()
        return _first_of((registered.get(call_id), *others))


def _brought(entry: Entry) -> Mapping[str, str]:
    """Return the first ``compact_summary`` of the result blocks of an entry, by call id."""
    brought: dict[str, str] = {}
    for block in blocks_of(entry.message):
        if block.get("type") == "tool_result" and _says_something(summary := block.get("compact_summary")):
            brought.setdefault(block_answers(block), summary)
    return brought


def _first_of(candidates: Iterable[object]) -> str | None:
    return next((without_surrogates(found) for found in candidates if _says_something(found)), None)


def _says_something(summary: object) -> TypeGuard[str]:
    return isinstance(summary, str) and summary.strip() != ""
