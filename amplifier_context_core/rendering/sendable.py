"""What of a stored message is sent at all: rows, keys and characters that no provider gets are left out here."""

from __future__ import annotations

from typing import Any, cast

import orjson

from ..messages.parsing import Message, metadata_of, with_metadata
from ..messages.reminders import REFERENCE_ONLY
from .provider_limits import safe_speaker_name, safe_tool_name
from .quoting import without_surrogates

INSTRUCTION = "amplifier:instruction"  # docs/kernel.md: rows of newer hosts; providers refuse retired ones
RESPONSE_ID = "openai:response_id"  # docs/kernel.md: makes the server continue from the response that it holds
_RETIRED = frozenset({"retired", "anchor_pruned"})
_NOT_SENT = frozenset({"timestamp", "amplifier_public_message", "amplifier_public_copy_source"})


def is_left_out(message: Message) -> bool:
    """True for rows that are never sent: retired instructions, reference-only originals (docs/kernel.md)."""
    metadata = metadata_of(message)
    if not metadata:
        return False
    instruction = metadata.get(INSTRUCTION)
    retired = isinstance(instruction, dict) and (
        cast("dict[str, Any]", instruction).get("disposition") in _RETIRED
        or cast("dict[str, Any]", instruction).get("retired") is True
    )
    return retired or metadata.get(REFERENCE_ONLY) is True


def sendable(message: Message) -> Message:
    """Return a shallow copy without keys that are for the history only (timestamps, originals of hosts)."""
    sent = {key: value for key, value in message.items() if key != "timestamp"}
    metadata = sent.get("metadata")
    if isinstance(metadata, dict):
        kept = {key: value for key, value in cast("dict[str, Any]", metadata).items() if key not in _NOT_SENT}
        if kept:
            sent["metadata"] = kept
        else:
            del sent["metadata"]
    elif "metadata" in sent:
        del sent["metadata"]
    for key in ("name", "tool_call_id"):
        if key in sent and not isinstance(sent[key], str):
            del sent[key]
    if "name" in sent:
        name = sent.pop("name")
        if name.strip():
            sent["name"] = safe_tool_name(name) if sent["role"] == "tool" else safe_speaker_name(name)
    return sent


def without_response_id(message: Message) -> Message:
    """Leave out the id of a response that the server holds, because the view differs from it."""
    metadata = metadata_of(message)
    if RESPONSE_ID not in metadata:
        return message
    kept = {key: value for key, value in metadata.items() if key != RESPONSE_ID}
    return with_metadata(message, kept)


def scrub(message: Message) -> Message:
    """No provider takes lone surrogates. Return the same object if the message has none."""
    try:
        orjson.dumps(message)
        return message
    except (orjson.JSONEncodeError, UnicodeError, ValueError):
        return cast(Message, _scrubbed(message))


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, dict):
        return {_scrubbed(key): _scrubbed(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_scrubbed(item) for item in cast("list[Any]", value)]
    return value
