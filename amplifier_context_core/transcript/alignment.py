"""Alignment of a list of messages from a host with the stored history.

Hosts save transcripts, filter them (no system messages, no thinking, no null keys), repair them, and pass them back. A
stored message must not be added twice, and a change by the host must not be lost. A message that matches keeps its
entry, and with it its seq and its tokens. Everything else is an edit. Pure: no I/O, no clock.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any, cast

from ..messages.parsing import (
    SYSTEM_ROLES,
    Call,
    Message,
    MessageInfo,
    ParsedMessage,
    arguments_of,
    blocks_of,
    calls_of,
    json_text,
    metadata_of,
    text_of,
)
from ..messages.timestamps import timestamp_of
from .entry import Entry
from .transcript import count_leading

_EXHAUSTIVE = 40_000  # comparisons; larger middles are matched greedily
_SILENT_BLOCKS = frozenset({"thinking", "redacted_thinking", "reasoning", "tool_call", "tool_use", "text"})
# Metadata that decides how a message is shown. A host that changes it edits the history.
_SEMANTIC_METADATA = (
    "pinned",
    "ephemeral",
    "source",
    "compact_summary",
    "amplifier:instruction",
    "amplifier_public_reference_only",
)

Key = tuple[object, ...]
BareKey = tuple[object, ...]  # role, ids of calls, names of tools, ids of answers, and three parts of content


Order = list[Entry | ParsedMessage]  # a new history: stored entries that stay, and new messages


def align(stored: Sequence[Entry], incoming: Sequence[ParsedMessage]) -> Order:
    """Match messages with entries by role, call ids, names of tools and normalized content, in order.

    Stored system and developer messages that a filter left out stay where they are, unless no other message matches.
    """
    if not stored:
        return [*incoming]
    pairs = _pairs(stored, incoming)
    matched = dict(pairs)
    spoken = [place for place, entry in enumerate(stored) if entry.role not in SYSTEM_ROLES]
    is_filtered = bool(incoming) and (not spoken or any(place in matched for place in spoken))
    gone = spoken if is_filtered else range(len(stored))
    new: dict[int, list[ParsedMessage]] = {}
    start = 0
    for place, other in [*pairs, (len(stored), len(incoming))]:
        new[place] = list(incoming[start:other])
        start = other + 1
    return arranged(stored, incoming, set(matched.values()), matched, set(gone), new)


def arranged(
    stored: Sequence[Entry],
    incoming: Sequence[ParsedMessage],
    known: Collection[int],
    kept: Collection[int],
    gone: Collection[int],
    new: Mapping[int, Sequence[ParsedMessage]],
) -> Order:
    """Return the new history. Leading instructions go if the list has leading instructions of its own.

    Args:
        known: indices of the messages of the list that are not new.
        kept: places of the entries that stay, whatever `gone` says.
        gone: places of entries that do not.
        new: messages by the place of the entry that they come before.
    """
    lead = count_leading(stored, len(stored))
    own = takewhile(lambda index: incoming[index][1].role in SYSTEM_ROLES, range(len(incoming)))
    replaced = range(lead if any(index not in known for index in own) else 0)
    order: Order = []
    for place, entry in enumerate(stored):
        order.extend(new.get(place, ()))
        if place in kept or not (place in gone or place in replaced):
            order.append(entry)
    return [*order, *new.get(len(stored), ())]


def same_message(entry: Entry, message: Message, info: MessageInfo) -> bool:
    """True if it is the same message, apart from what the filters of hosts remove."""
    if entry.message == message:
        return True
    return _key(entry.message, entry) == _key(message, info)


def normalized_content(message: Message, calls: tuple[str, ...]) -> bytes:
    """Return the content that the filters of hosts keep: text, arguments of calls, other blocks.

    It is JSON; empty if there is no such content.
    """
    parts = _content(message, calls)
    return json_text(parts).encode() if any(parts) else b""


def bare_key(message: Message, info: MessageInfo | Entry) -> BareKey:
    """Hosts may keep no metadata."""
    names = tuple(call.name for call in calls_of(message)) if info.call_ids else ()
    return info.role, info.call_ids, names, info.answered_ids, *_content(message, info.call_ids)


def semantic_metadata(message: Message) -> tuple[tuple[str, str], ...]:
    metadata = metadata_of(message)
    return tuple((name, json_text(metadata[name])) for name in _SEMANTIC_METADATA if metadata.get(name) is not None)


def _key(message: Message, info: MessageInfo | Entry) -> Key:
    return (*bare_key(message, info), semantic_metadata(message))


def _content(message: Message, calls: tuple[str, ...]) -> tuple[str, tuple[str, ...], str]:
    other = [block for block in blocks_of(message) if block.get("type") not in _SILENT_BLOCKS]
    return (
        text_of(message.get("content")).strip(),
        tuple(_arguments(call) for call in calls_of(message)) if calls else (),
        json_text(_without_nulls(other)) if other else "",
    )


def _arguments(call: Call) -> str:
    given = call.arguments
    return given if isinstance(given, str) else json_text(_without_nulls(arguments_of(call)))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: _without_nulls(item) for key, item in items if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in cast("list[Any]", value)]
    return value


def _pairs(stored: Sequence[Entry], incoming: Sequence[ParsedMessage]) -> list[tuple[int, int]]:
    """Return index pairs of equal messages, rising on both sides. Pairs of equal timestamps come first."""
    ours = [_key(entry.message, entry) for entry in stored]
    theirs = [_key(message, info) for message, info in incoming]
    anchors = matching_pairs(
        [(*key, timestamp_of(entry.message)) for key, entry in zip(ours, stored, strict=True)],
        [(*key, timestamp_of(item[0])) for key, item in zip(theirs, incoming, strict=True)],
    )
    pairs: list[tuple[int, int]] = []
    mine = other = 0
    for a, b in [*anchors, (len(ours), len(theirs))]:
        if a > mine and b > other:
            pairs.extend((mine + i, other + j) for i, j in matching_pairs(ours[mine:a], theirs[other:b]))
        pairs.append((a, b))
        mine, other = a + 1, b + 1
    return pairs[:-1]


def matching_pairs(ours: list[Key], theirs: list[Key]) -> list[tuple[int, int]]:
    start = 0
    while start < len(ours) and start < len(theirs) and ours[start] == theirs[start]:
        start += 1
    end = 0
    while end < min(len(ours), len(theirs)) - start and ours[-1 - end] == theirs[-1 - end]:
        end += 1
    middle_ours = ours[start : len(ours) - end]
    middle_theirs = theirs[start : len(theirs) - end]
    pairs = [(index, index) for index in range(start)]
    if len(middle_ours) * len(middle_theirs) <= _EXHAUSTIVE:
        matcher = difflib.SequenceMatcher(None, middle_ours, middle_theirs, autojunk=False)
        for block in matcher.get_matching_blocks():
            pairs.extend((start + block.a + k, start + block.b + k) for k in range(block.size))
    else:
        places: dict[Key, list[int]] = {}
        for index in range(len(middle_ours) - 1, -1, -1):
            places.setdefault(middle_ours[index], []).append(index)
        newest = -1
        for index, key in enumerate(middle_theirs):
            waiting = places.get(key, [])
            while waiting and waiting[-1] <= newest:
                waiting.pop()
            if waiting:
                newest = waiting.pop()
                pairs.append((start + newest, start + index))
    pairs.extend((len(ours) - end + k, len(theirs) - end + k) for k in range(end))
    return pairs
