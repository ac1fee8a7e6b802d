"""What OpenAI refuses in the messages of a Chat Completions request, and its words for it.

Sources: the request model of the client library `openai` (types/chat), and errors as users report them: tool calls
without results, RamiAwar/dataline#172; a second result, agno-agi/agno#5116. Rules that depend on the account or on
the age of a model are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..checks.message_shapes import as_list, as_mapping, blocks_of
from .problems import IMAGES, NAME, Model, Refused, is_base64

Json = Mapping[str, Any]

ARGUMENTS = ("model", "messages", "tools", "max_completion_tokens", "temperature", "reasoning_effort")
ROLES = ("system", "assistant", "user", "function", "tool", "developer")
PARTS = {"user": ("text", "image_url", "file", "input_audio"), "assistant": ("text", "refusal")}
LONGEST_ID, LONGEST_NAME = 40, 64  # characters

_DATA = re.compile(r"data:([\w/+.-]+);base64,(.*)", re.DOTALL)


def check(body: Json, model: Model) -> None:
    """Check a request.

    Raises:
        Refused: the first rule that it breaks.
    """
    if unknown := sorted(set(body) - set(ARGUMENTS)):
        raise Refused(f"Unrecognized request argument supplied: {unknown[0]}")
    messages = _filled(body.get("messages"), "messages")
    for index, message in enumerate(messages):
        _message(message, f"messages[{index}]")
    _pairing(messages)
    if "tools" in body:
        for place, tool in enumerate(_filled(body["tools"], "tools")):
            _name(as_mapping(tool.get("function")) or {}, f"tools[{place}].function")
    if (limit := body.get("max_completion_tokens") or 1) > model.max_output_tokens:
        words = f"This model supports at most {model.max_output_tokens} completion tokens, whereas you provided"
        raise Refused(f"max_tokens is too large: {limit}. {words} {limit}.", "invalid_value")


def refuse_long(body: Json, tokens: int, model: Model) -> None:
    """Raise `Refused` where a request of so many tokens and its answer exceed the window."""
    wanted = tokens + int(body.get("max_completion_tokens") or 0)
    if wanted > (window := model.context_window):
        words = f"However, you requested {wanted} tokens. Please reduce the length of the messages or completion."
        raise Refused(f"This model's maximum context length is {window} tokens. {words}", "context_length_exceeded")


# --- words that many rules share --------------------------------------------------------------------------------------


def _given(holder: Json, key: str, where: str) -> Any:
    if holder.get(key) in (None, ""):
        raise Refused(f"Missing required parameter: '{where}.{key}'.", "missing_required_parameter")
    return holder[key]


def _one_of(value: object, known: Sequence[str], where: str) -> None:
    if value not in known:
        listed = ", ".join(f"'{one}'" for one in known)
        raise Refused(f"Invalid value: '{value}'. Supported values are: {listed}. ({where})", "invalid_value")


def _filled(value: object, where: str) -> list[Any]:
    found = as_list(value)
    if found is None or any(as_mapping(item) is None for item in found):
        raise Refused(f"Invalid type for '{where}': expected an array of objects.", "invalid_type")
    if not found:
        words = "empty array. Expected an array with minimum length 1, but got an empty array instead."
        raise Refused(f"Invalid '{where}': {words}", "empty_array")
    return found


def _short(text: str, where: str, longest: int) -> None:
    if len(text) > longest:
        words = f"string too long. Expected a string with maximum length {longest}, but got a string with length"
        raise Refused(f"Invalid '{where}': {words} {len(text)} instead.", "string_above_max_length")


def _name(holder: Json, where: str) -> None:
    name = str(_given(holder, "name", where))
    _short(name, f"{where}.name", LONGEST_NAME)
    if NAME.fullmatch(name) is None:
        words = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        raise Refused(f"Invalid '{where}.name': {words}", "invalid_value")


# --- messages ---------------------------------------------------------------------------------------------------------


def _message(message: Json, where: str) -> None:
    role = message.get("role")
    _one_of(role, ROLES, f"{where}.role")
    _content(message, f"{where}.content", str(role))
    if message.get("name") is not None:
        _name(message, where)
    if message.get("tool_calls") is None:
        return
    if role != "assistant":
        raise Refused(f"Unknown parameter: '{where}.tool_calls'.")
    for place, call in enumerate(_filled(message["tool_calls"], f"{where}.tool_calls")):
        spot = f"{where}.tool_calls[{place}]"
        _short(str(_given(call, "id", spot)), f"{spot}.id", LONGEST_ID)
        _one_of(call.get("type"), ("function",), f"{spot}.type")
        function = as_mapping(_given(call, "function", spot)) or {}
        _name(function, f"{spot}.function")
        if not isinstance(function.get("arguments"), str):
            words = "expected a string, but got an object instead."
            raise Refused(f"Invalid type for '{spot}.function.arguments': {words}", "invalid_type")


def _content(message: Json, where: str, role: str) -> None:
    content = message.get("content")
    if isinstance(content, str):
        return
    if content is None:
        if role == "assistant" and (message.get("tool_calls") or message.get("refusal")):
            return
        raise Refused("Invalid value for 'content': expected a string, got null.")
    _filled(content, where)
    for place, part in blocks_of(content):
        kind = str(part.get("type"))
        if kind == "image_url" and role != "user":
            words = "Image URLs are only allowed for messages with role 'user', but this message with role"
            raise Refused(f"{words} '{role}' contains an image URL.")
        _one_of(kind, PARTS.get(role, ("text",)), f"{where}[{place}].type")
        if kind == "text" and not isinstance(part.get("text"), str):
            raise Refused(f"Missing required parameter: '{where}[{place}].text'.", "missing_required_parameter")
        if kind == "image_url":
            url = str((as_mapping(part.get("image_url")) or {}).get("url"))
            data = _DATA.fullmatch(url)
            is_data = data is not None and data[1] in IMAGES and is_base64(data[2])
            if not is_data and not url.startswith(("http://", "https://")):
                words = "Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp']."
                raise Refused(f"You uploaded an unsupported image. {words}", "invalid_image_format")


def _pairing(messages: list[Json]) -> None:
    """Check that each call is answered directly after it, once, and that each result answers such a call."""
    waiting: dict[str, int | None] = {}  # the calls that may be answered now: their ids, and where each was
    calling = -1

    def unanswered() -> None:
        if missing := [call_id for call_id, at in waiting.items() if at is None]:
            words = "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            words += "'tool_call_id'. The following tool_call_ids did not have response messages: "
            raise Refused(words + ", ".join(missing))

    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            call_id = str(_given(message, "tool_call_id", f"messages[{index}]"))
            if calling < 0:
                words = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                raise Refused(f"Invalid parameter: {words}")
            if call_id not in waiting:
                words = f"'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message."
                raise Refused(f"Invalid parameter: {words}")
            if (before := waiting[call_id]) is not None:
                words = (
                    f"Duplicate value for 'tool_call_id' of '{call_id}', in messages[{before}] and messages[{index}]"
                )
                raise Refused(f"Invalid parameter: {words}.")
            waiting[call_id] = index
            continue
        unanswered()
        waiting, calling = {}, -1
        for call in message.get("tool_calls") or ():
            if call["id"] in waiting:
                words = f"Duplicate value for 'tool_call_id' of '{call['id']}' in messages[{index}]."
                raise Refused(f"Invalid parameter: {words}")
            waiting[call["id"]], calling = None, index
    unanswered()
