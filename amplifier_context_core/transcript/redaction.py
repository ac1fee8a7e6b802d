"""Redaction of a message whose text must be removed everywhere, for example a pasted secret.

Its index, its role and the ids of its calls and results stay, so that the history around it stays valid. Its text, the
arguments of its calls and its other metadata are removed. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ..messages.parsing import (
    Message,
    arguments_text,
    blocks_of,
    calls_of,
    metadata_of,
    parse_message,
    results_of,
    text_of,
)
from ..messages.timestamps import timestamp_of
from ..messages.tokens import TokenCounter, count_message_tokens
from .entry import Entry

REDACTED_TEXT = "(erased)"
MIN_LENGTH = 6  # characters: a shorter text occurs anywhere
PROBE = 200  # characters: of a longer text only the beginning is looked for, because a copy may be truncated

_KEPT_METADATA = ("source", "ephemeral")  # metadata that decides whether a human wrote it
_MAX_PROBES = 32  # texts that are looked for in one history: each is a pass over all of it
_NOT_HUMAN = "hook"  # the source of a message in the user's role that no human wrote


def redacted(entry: Entry, counter: TokenCounter, trace: str = "") -> Entry:
    """Return the redacted entry, with the same seq, turn and times.

    `trace` is a hash by which an echo of it is recognised (see `history.redactions`); empty for none.
    """
    message, info = parse_message(redacted_message(entry.message, human=entry.human))
    return entry._replace(
        redaction_trace=trace,
        message=message,
        human=info.human,
        call_ids=info.call_ids,
        answered_ids=info.answered_ids,
        tokens=count_message_tokens(message, counter),
        response=replace(entry.response, error=None) if entry.response else None,
    )


def without_prefixes(entries: Sequence[Entry], seq: int) -> list[Entry]:
    """Return the entries, those after `seq` without the hash of their request, from which its text could be guessed.

    Thinking that is bound to such a request is not valid any more.
    """
    return [
        entry._replace(response=replace(entry.response, prefix=None))
        if entry.seq > seq and entry.response is not None and entry.response.prefix is not None
        else entry
        for entry in entries
    ]


def is_redacted(message: Message) -> bool:
    """True if the only content of a message is the text of a redaction."""
    content = message.get("content")
    if isinstance(content, list):
        blocks = blocks_of(message)
        return bool(blocks) and all(REDACTED_TEXT in (block.get("content"), block.get("text")) for block in blocks)
    return content == REDACTED_TEXT


def redacted_message(message: Message, *, human: bool) -> Message:
    role = message["role"]
    left: dict[str, Any] = {"role": role}
    calls, results = list(calls_of(message)), list(results_of(message))
    if role in ("tool", "function") and isinstance(message.get("tool_call_id"), str):
        left |= {"tool_call_id": message["tool_call_id"], "content": REDACTED_TEXT}
        if isinstance(message.get("name"), str):
            left["name"] = message["name"]
    elif results:
        left["content"] = [
            {"type": "tool_result", "tool_use_id": result.call_id, "content": REDACTED_TEXT} for result in results
        ]
        if human:
            left["content"].append({"type": "text", "text": REDACTED_TEXT})
    else:
        left["content"] = REDACTED_TEXT
    if calls:
        left["tool_calls"] = [{"id": call.id, "tool": call.name, "arguments": {}} for call in calls]
    metadata = {key: value for key, value in metadata_of(message).items() if key in _KEPT_METADATA}
    if role == "user" and not human and not results:
        metadata.setdefault("source", _NOT_HUMAN)
    stamp = timestamp_of(message)
    if stamp is not None:
        metadata["timestamp"] = stamp
    if metadata:
        left["metadata"] = metadata
    return left


def texts_of(message: Message) -> set[str]:
    """Return the content, and the arguments of calls; none of a redacted message."""
    if is_redacted(message):
        return set()
    return {text_of(message.get("content")), *map(arguments_text, calls_of(message))} - {""}


def probe_of(text: str) -> str:
    """Return what is looked for to find copies of a text; empty if the text is too short to be looked for."""
    probe = text.strip()[:PROBE].strip()
    return probe if len(probe) >= MIN_LENGTH else ""


def holding(entries: Iterable[Entry], texts: Collection[str]) -> list[Entry]:
    """Return the entries that contain one of these texts: as it is, or as escaped in JSON.

    Of many texts the longest are looked for.
    """
    probes = sorted({probe for text in texts if (probe := probe_of(text))}, key=len)[-_MAX_PROBES:]
    forms = {form for probe in probes for form in forms_of(probe)}
    return [entry for entry in entries if forms and holds(entry.message, forms)]


def forms_of(text: str) -> frozenset[str]:
    """Return a text, and the text as escaped in JSON, once and twice."""
    forms = {text}
    for _ in range(2):
        forms |= {json.dumps(form, ensure_ascii=ascii_only)[1:-1] for form in forms for ascii_only in (True, False)}
    return frozenset(forms)


def holds(value: object, forms: Collection[str]) -> bool:
    if isinstance(value, str):
        return any(form in value for form in forms)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return any(holds(key, forms) or holds(item, forms) for key, item in items)
    return isinstance(value, list) and any(holds(item, forms) for item in cast("list[object]", value))
