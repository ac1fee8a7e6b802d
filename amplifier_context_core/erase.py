"""Erasing: what is left of a message whose text must go everywhere, a pasted secret for instance.

Its place, its role and the ids that tie calls to results stay, so that the history around it stays valid; whatever it
said, called with, or carried as metadata does not.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .align import timestamp_of
from .messages import Message, calls_of, metadata_of, read_message, results_of
from .tokens import TokenCounter, count_message_tokens
from .transcript import Entry

ERASED = "(erased)"

_TELLING = ("source", "ephemeral")  # metadata that says whether a human wrote it
_NOT_HUMAN = "hook"  # the source of what stood in the user's role without being written by one


def erased(entry: Entry, counter: TokenCounter) -> Entry:
    """The entry as it stays behind, with the same seq, turn and times.

    Args:
        entry: what is erased.
        counter: text to tokens, for what is left.
    """
    message, reading = read_message(_left(entry))
    return entry._replace(
        message=message,
        human=reading.human,
        calls=reading.calls,
        answers=reading.answers,
        tokens=count_message_tokens(message, counter),
        response=replace(entry.response, error=None) if entry.response else None,
    )


def _left(entry: Entry) -> Message:
    message, role = entry.message, entry.role
    left: dict[str, Any] = {"role": role}
    calls, results = list(calls_of(message)), list(results_of(message))
    if role in ("tool", "function") and isinstance(message.get("tool_call_id"), str):
        left |= {"tool_call_id": message["tool_call_id"], "content": ERASED}
        if isinstance(message.get("name"), str):
            left["name"] = message["name"]
    elif results:
        left["content"] = [
            {"type": "tool_result", "tool_use_id": result.call_id, "content": ERASED} for result in results
        ]
        if entry.human:
            left["content"].append({"type": "text", "text": ERASED})
    else:
        left["content"] = ERASED
    if calls:
        left["tool_calls"] = [{"id": call.id, "tool": call.name, "arguments": {}} for call in calls]
    metadata = {key: value for key, value in metadata_of(message).items() if key in _TELLING}
    if role == "user" and not entry.human and not results:
        metadata.setdefault("source", _NOT_HUMAN)
    stamp = timestamp_of(message)
    if stamp is not None:
        metadata["timestamp"] = stamp
    if metadata:
        left["metadata"] = metadata
    return left
