"""Entries as rows: what a store writes down of an entry, and how it is read back.

A message is kept as JSON, as it was given. What it says of itself (role, calls, whether a human wrote it) is read from
it again; beside it stand seq, turn, tokens and, only where they say something the message does not, the session it came
from, its times and its response.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

import orjson

from ..errors import InvalidMessage, StoreError
from ..messages.parsing import Message, parse_message
from ..messages.timestamps import timestamp_of
from ..messages.usage import Response, Usage
from ..transcript.transcript import Entry

_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19
_LONG_NUMBER = re.compile(rb"[0-9]{19,}")
_BEFORE_NUMBER = b" \t\r\n:,[-"  # what stands before one in JSON; rarely before the digits of an id or a text


def message_json(message: Message) -> bytes:
    """A message as one line of JSON, without the line's end. UTF-8; what that cannot hold (lone surrogates) escaped."""
    try:
        return orjson.dumps(message)
    except (orjson.JSONEncodeError, UnicodeError):
        return json.dumps(message, separators=(",", ":")).encode()


def encode_extra(entry: Entry, session_id: str) -> dict[str, Any]:
    """What an entry of this session knows that its message does not say. Mostly empty."""
    extra: dict[str, Any] = {}
    if entry.session_id != session_id:
        extra["session_id"] = entry.session_id
    if entry.created != (timestamp_of(entry.message) or ""):
        extra["created"] = entry.created
    if entry.completed != entry.created:
        extra["completed"] = entry.completed
    response = entry.response
    if response is not None:
        told = {name: getattr(response, name) for name in ("model", "provider", "finish_reason", "error")}
        if response.usage is not None:
            told["usage"] = {name: getattr(response.usage, name) for name in Usage.__slots__}
        extra["response"] = {name: value for name, value in told.items() if value is not None}
    if entry.is_redacted:
        extra["erased"] = entry.redaction_trace
    return extra


def decode_entry(
    session_id: str, seq: int, turn: int, tokens: int, message: bytes | str, extra: dict[str, Any] | None = None
) -> Entry:
    """An entry as it was when it was written down.

    Raises:
        StoreError: the message cannot be read: it is damaged.
    """
    try:
        read, info = parse_message(loads(message))
    except (ValueError, InvalidMessage, RecursionError) as problem:
        raise StoreError(f"m{seq} of session {session_id!r} is damaged ({type(problem).__name__})") from None
    told = extra or {}
    created = _text(told.get("created"))
    if created is None:
        created = timestamp_of(read) or ""
    completed = _text(told.get("completed"))
    return Entry(
        seq,
        read,
        info.role,
        turn,
        info.human,
        info.call_ids,
        info.answered_ids,
        tokens,
        _text(told.get("session_id")) or session_id,
        created,
        created if completed is None else completed,
        _response(told.get("response")),
        _text(told.get("erased")),
    )


def loads(data: bytes | str) -> Any:
    """JSON as history may hold it: lone surrogates too, and integers past 64 bits (orjson makes floats of those)."""
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    if _may_hold_long_number(raw):
        return json.loads(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)


def _may_hold_long_number(raw: bytes) -> bool:
    # The first look is ten times as fast as the second, and mostly enough.
    first = raw.translate(_ZEROS).find(_LONG)
    if first < 0:
        return False
    found = (number.start() for number in _LONG_NUMBER.finditer(raw, first))
    return any(at == 0 or raw[at - 1] in _BEFORE_NUMBER for at in found)


def _response(told: object) -> Response | None:
    if not isinstance(told, dict):
        return None
    told = cast("dict[str, Any]", told)
    usage = cast("dict[str, Any] | None", told.get("usage") if isinstance(told.get("usage"), dict) else None)
    figures = {name: usage[name] for name in Usage.__slots__ if isinstance(usage.get(name), int)} if usage else {}
    return Response(
        _text(told.get("model")),
        _text(told.get("provider")),
        Usage(**figures) if "input_tokens" in figures else None,
        _text(told.get("finish_reason")),
        _text(told.get("error")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
