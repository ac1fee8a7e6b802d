"""Recalled text: what the recall tool (`amplifier_context_recall`) read back from the history of the same session.

The result of such a call is a copy of other messages. It names its sources: a line for each message that it quotes
begins with the mark in brackets. By these lines `forget` finds the copies of what it erases.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from ..messages.parsing import calls_of, result_text, results_of
from .transcript import Entry

RECALL_TOOL = "context_recall"

_SOURCE = re.compile(r"^\[m(\d+)[,\]]", re.MULTILINE)


def source_line(mark: str, about: str = "") -> str:
    """Return the line that names the source of the text that follows it."""
    return f"[{mark}, {about}]" if about else f"[{mark}]"


def sources_in(text: str) -> list[int]:
    """Return the seqs of the messages that a recalled text quotes, in order and each once."""
    return list(dict.fromkeys(int(number) for number in _SOURCE.findall(text)))


def copies_of(history: Iterable[Entry], seqs: Collection[int]) -> set[int]:
    """Return the seqs of the recalled texts that quote any of these messages, copies of copies included."""
    wanted = set(seqs)
    calls: set[str] = set()
    copies: set[int] = set()
    for entry in history:  # a copy comes after its source, so one pass finds copies of copies
        calls.update(call.id for call in calls_of(entry.message) if call.name == RECALL_TOOL)
        if calls.isdisjoint(entry.answered_ids):
            continue
        for result in results_of(entry.message):
            if result.call_id in calls and not wanted.isdisjoint(sources_in(result_text(result.content))):
                copies.add(entry.seq)
                wanted.add(entry.seq)
    return copies
