"""Summaries of tool results: the short form a host registered for one, or the ``compact_summary`` it brought itself.

An entry may hold many results, and each of them is asked for by its call. So an entry is read once, not once a result.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from ..messages.parsing import block_answers, blocks_of, metadata_of
from ..transcript.transcript import Entry
from .quoting import without_surrogates

Summaries = Mapping[int, Mapping[str, str]]  # short forms of tool results: seq of the result, call id, text


class ResultSummaries:
    """The summaries of the results of some entries, for as long as these are worked on.

    Args:
        registered: short forms registered for tool results.
    """

    def __init__(self, registered: Summaries) -> None:
        self._registered = registered
        self._own: dict[int, Mapping[str, str]] = {}  # by seq and call id, what the blocks of an entry bring

    def of(self, entry: Entry, call_id: str) -> str | None:
        """Return the summary of a result; None when it has none.

        Args:
            entry: the entry that holds the result.
            call_id: the call it answers, as stored or as sent.
        """
        registered = self._registered.get(entry.seq, {})
        candidates = [registered.get(call_id), metadata_of(entry.message).get("compact_summary")]
        if len(entry.answered_ids) == 1:  # the id it is sent under may differ from the one it has
            candidates.extend(registered.values())
        if entry.seq not in self._own:
            self._own[entry.seq] = _brought(entry)
        candidates.append(self._own[entry.seq].get(call_id))
        return next((without_surrogates(found) for found in candidates if _says_something(found)), None)


def _brought(entry: Entry) -> Mapping[str, str]:
    """By call id, the first ``compact_summary`` that the result blocks of an entry have."""
    brought: dict[str, str] = {}
    for block in blocks_of(entry.message):
        if block.get("type") == "tool_result" and _says_something(summary := block.get("compact_summary")):
            brought.setdefault(block_answers(block), summary)
    return brought


def _says_something(summary: object) -> TypeGuard[str]:
    return isinstance(summary, str) and summary.strip() != ""
