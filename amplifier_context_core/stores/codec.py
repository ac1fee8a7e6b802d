"""How stores encode an entry, and how they decode it.

A message is kept as JSON, unchanged. What follows from it (role, calls, whether a human wrote it) is parsed from it
again. Beside it a store keeps seq, turn, tokens and, in `extra`, what does not follow from the message: the session it
came from, its times and its response.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import cache
from typing import Any, cast

import orjson
from pydantic import TypeAdapter, ValidationError

from ..errors import InvalidMessage, StoreError
from ..messages.parsing import Message, ParsedMessage, info_of, is_plain, parse_message
from ..messages.timestamps import timestamp_of
from ..messages.usage import Response
from ..transcript.entry import Entry

_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19
_LONG_NUMBER = re.compile(rb"[0-9]{19,}")
_BEFORE_NUMBER = b" \t\r\n:,[-"  # precede a number in JSON, and rarely the digits of an id or a text


def message_json(message: Message) -> bytes:
    """Return a message as one line of UTF-8 JSON, without a line end. Lone surrogates are escaped."""
    try:
        return orjson.dumps(message)
    except (orjson.JSONEncodeError, UnicodeError):
        return json.dumps(message, separators=(",", ":")).encode()


def encode_extra(entry: Entry, session_id: str) -> dict[str, Any]:
    """Return what an entry of this session holds beyond its message. Mostly empty."""
    extra: dict[str, Any] = {}
    if entry.session_id != session_id:
        extra["session_id"] = entry.session_id
    if entry.created != (timestamp_of(entry.message) or ""):
        extra["created"] = entry.created
    if entry.completed != entry.created:
        extra["completed"] = entry.completed
    if entry.response is not None:
        extra["response"] = _responses().dump_python(entry.response, exclude_none=True)
    if entry.is_redacted:
        extra["erased"] = entry.redaction_trace
    return extra


def decode_entry(
    session_id: str, seq: int, turn: int, tokens: int, message: bytes | str, extra: dict[str, Any] | None = None
) -> Entry:
    """Return an entry as it was when it was encoded. Raise `StoreError` if it is damaged."""
    try:
        read, info = _parsed(message)
    except (ValueError, InvalidMessage, RecursionError) as problem:
        raise StoreError(f"m{seq} of session {session_id!r} is damaged ({type(problem).__name__})") from None
    stamp = timestamp_of(read) or ""
    if not extra:  # as of most
        role, calls, answered, human = info
        return Entry(seq, read, role, turn, human, calls, answered, tokens, session_id, stamp, stamp)
    created = _text(extra.get("created"))
    entry = Entry.of(
        seq,
        read,
        info,
        turn=turn,
        tokens=tokens,
        session_id=_text(extra.get("session_id")) or session_id,
        created=stamp if created is None else created,
        completed=_text(extra.get("completed")),
        response=_response(extra.get("response")),
    )
    trace = _text(extra.get("erased"))
    return entry if trace is None else entry._replace(redaction_trace=trace)


def _parsed(data: bytes | str) -> ParsedMessage:
    """Parse a message. Objects that orjson made are not copied: they are JSON, and no other code holds them."""
    try:
        message = orjson.loads(data)
    except orjson.JSONDecodeError:
        return parse_message(loads(data))
    if message.__class__ is dict and is_plain(message):
        return message, info_of(message)
    return parse_message(loads(data))


def decode_extra(origin: str | None, extra: str | bytes | None) -> dict[str, Any]:
    """Return what `encode_extra` gave, of columns for the session it came from and for the rest; damage is left out."""
    fields: dict[str, Any] = {"session_id": origin} if origin else {}
    if extra:
        try:
            loaded = loads(extra)
        except (ValueError, RecursionError):
            loaded = None
        if isinstance(loaded, dict):
            fields |= cast("dict[str, Any]", loaded)
    return fields


def loads(data: bytes | str) -> Any:
    """Parse JSON that may hold lone surrogates, or integers beyond 64 bits, which orjson would turn into floats."""
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    if _may_hold_long_number(raw):
        return json.loads(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)


def _may_hold_long_number(raw: bytes) -> bool:
    # The first check is ten times as fast as the second, and mostly sufficient.
    first = raw.translate(_ZEROS).find(_LONG)
    if first < 0:
        return False
    found = (number.start() for number in _LONG_NUMBER.finditer(raw, first))
    return any(at == 0 or raw[at - 1] in _BEFORE_NUMBER for at in found)


@cache
def _responses() -> TypeAdapter[Response]:
    """Make it with the first response, not before: it takes milliseconds."""
    return TypeAdapter(Response)


def _response(given: object) -> Response | None:
    with suppress(ValidationError):
        return _responses().validate_python(given) if given is not None else None
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
