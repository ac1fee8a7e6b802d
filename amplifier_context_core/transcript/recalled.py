"""Recalled text: what the recall tool (`amplifier_context_recall`) read back from the history of the same session.

The result of such a call is a copy of other messages, or of items. It names its sources: a line for each one that it
quotes begins with its mark in brackets. By these lines `forget` finds the copies of what it erases.
Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from hashlib import sha256

from ..messages.parsing import calls_of, result_text, results_of
from .entry import Entry

RECALL_TOOL = "context_recall"

_SOURCE = re.compile(r"^\[(m\d+|pool item [^,\]\n]+)[,\]]", re.MULTILINE)
_ESCAPED = {ord(character): f"\\u{ord(character):04x}" for character in "<[],"}  # what ends a mark, or opens a tag
_MAX_ID = 60  # characters of an id in its mark; of a longer one the mark has a hash
_DIGITS = 16  # of that hash


def source_line(mark: str, about: str = "") -> str:
    return f"[{mark}, {about}]" if about else f"[{mark}]"


def item_mark(id: str) -> str:
    """No item with another id has the same mark."""
    name = json.dumps(id).translate(_ESCAPED)
    return f"pool item {name if len(name) <= _MAX_ID else sha256(name.encode()).hexdigest()[:_DIGITS]}"


def sources_in(text: str) -> list[str]:
    """Return the marks of the messages and items that a recalled text quotes, in order."""
    return _SOURCE.findall(text)


def copies_of(history: Iterable[Entry], seqs: Collection[int], lines: Collection[str] = ()) -> set[int]:
    """Return the seqs of the recalled texts that quote any of these messages or items, copies of copies included.

    `lines` are marks of items, and lines that list them.
    """
    wanted = {*(f"m{seq}" for seq in seqs), *lines}
    calls: set[str] = set()  # ids of the calls of the recall tool
    copies: set[int] = set()
    for entry in history:  # a copy comes after its source, so one pass finds copies of copies
        calls.update(call.id for call in calls_of(entry.message) if call.name == RECALL_TOOL)
        if calls.isdisjoint(entry.answered_ids):
            continue
        for result in results_of(entry.message):
            text = result_text(result.content) if result.call_id in calls else ""
            if not wanted.isdisjoint([*sources_in(text), *text.split("\n")]):
                copies.add(entry.seq)
                wanted.add(f"m{entry.seq}")
    return copies
