"""What OpenAI refuses in a Chat Completions request, and its words for it.

Sources: the request model of the client library `openai` (types/chat), and errors as users report them: tool calls
without results, RamiAwar/dataline#172; a second result, agno-agi/agno#5116. Rules that depend on the account or on
the age of a model are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..checks.message_shapes import as_list, as_mapping
from .problems import IMAGES, NAME, Model, Refused, is_base64

Json = Mapping[str, Any]

_ARGUMENTS = """
    model messages tools tool_choice max_completion_tokens temperature top_p stop stream response_format
    reasoning_effort metadata store seed user n parallel_tool_calls prompt_cache_key
"""
ARGUMENTS = frozenset(_ARGUMENTS.split())
ROLES = ("system", "assistant", "user", "function", "tool", "developer")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
PARTS = {"user": ("text", "image_url", "file", "input_audio"), "assistant": ("text", "refusal")}
LONGEST_ID, LONGEST_NAME = 40, 64  # characters

_DATA = re.compile(r"data:([\w/+.-]+);base64,(.*)", re.DOTALL)


def check(body: Json, model: Model | None) -> None:
    """Check a request; the model is None if there is none of the name.

    Raises:
        Refused: the first rule that it breaks.
    """
    if unknown := sorted(set(body) - ARGUMENTS):
        raise Refused(f"Unrecognized request argument supplied: {unknown[0]}")
    if not isinstance(body.get("model"), str):
        raise Refused("you must provide a model parameter")
    if model is None:
        text = f"The model `{body['model']}` does not exist or you do not have access to it."
        raise Refused(text, code="model_not_found", status=404)
    messages = _objects(_filled(_given(body, "messages"), "messages"), "messages")
    for index, message in enumerate(messages):
        _message(message, index)
    _pairing(messages)
    _tools(body)
    _settings(body, model, messages)


# --- words that many rules share --------------------------------------------------------------------------------------


def _given(holder: Json, key: str, where: str = "") -> Any:
    if holder.get(key) is None or holder[key] == "":
        where = f"{where}.{key}" if where else key
        raise Refused(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    return holder[key]


def _one_of(value: object, known: Sequence[str], where: str) -> None:
    if value not in known:
        quoted = [f"'{one}'" for one in known]
        listed = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
        raise Refused(f"Invalid value: '{value}'. Supported values are: {listed}.", where, "invalid_value")


def _filled(value: object, where: str) -> list[Any]:
    found = as_list(value)
    if found is None:
        raise Refused(f"Invalid type for '{where}': expected an array.", where, "invalid_type")
    if not found:
        words = "empty array. Expected an array with minimum length 1, but got an empty array instead."
        raise Refused(f"Invalid '{where}': {words}", where, "empty_array")
    return found


def _objects(items: list[Any], where: str) -> list[Json]:
    for index, item in enumerate(items):
        if as_mapping(item) is None:
            spot = f"{where}[{index}]"
            raise Refused(f"Invalid type for '{spot}': expected an object.", spot, "invalid_type")
    return items


def _short(text: str, where: str, longest: int) -> None:
    if len(text) > longest:
        words = f"string too long. Expected a string with maximum length {longest}, but got a string with length"
        raise Refused(f"Invalid '{where}': {words} {len(text)} instead.", where, "string_above_max_length")


def _name(holder: Json, where: str) -> None:
    name, where = str(_given(holder, "name", where)), f"{where}.name"
    _short(name, where, LONGEST_NAME)
    if NAME.fullmatch(name) is None:
        words = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        raise Refused(f"Invalid '{where}': {words}", where, "invalid_value")


# --- messages ---------------------------------------------------------------------------------------------------------


def _message(message: Json, index: int) -> None:
    where, role = f"messages[{index}]", message.get("role")
    _one_of(role, ROLES, f"{where}.role")
    _content(message, where, str(role))
    if message.get("name") is not None:
        _name(message, where)
    if message.get("tool_calls") is not None:
        if role != "assistant":
            raise Refused(f"Unknown parameter: '{where}.tool_calls'.", f"{where}.tool_calls")
        _calls(message, f"{where}.tool_calls")


def _content(message: Json, where: str, role: str) -> None:
    content, where = message.get("content"), f"{where}.content"
    if isinstance(content, str):
        return
    if content is None:
        if role == "assistant" and (message.get("tool_calls") or message.get("refusal")):
            return
        raise Refused("Invalid value for 'content': expected a string, got null.", where)
    for place, part in enumerate(_objects(_filled(content, where), where)):
        kind, spot = str(part.get("type")), f"{where}[{place}]"
        if kind == "image_url" and role != "user":
            words = "Image URLs are only allowed for messages with role 'user', but this message with role"
            raise Refused(f"{words} '{role}' contains an image URL.", spot)
        _one_of(kind, PARTS.get(role, ("text",)), f"{spot}.type")
        if kind == "text" and part.get("text") != "":
            _given(part, "text", spot)
        if kind == "image_url":
            url = str(_given(as_mapping(part.get("image_url")) or {}, "url", f"{spot}.image_url"))
            data = _DATA.fullmatch(url)
            is_data = data is not None and data[1] in IMAGES and is_base64(data[2])
            if not is_data and not url.startswith(("http://", "https://")):
                words = "Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp']."
                raise Refused(f"You uploaded an unsupported image. {words}", spot, "invalid_image_format")


def _calls(message: Json, where: str) -> None:
    for place, call in enumerate(_objects(_filled(message["tool_calls"], where), where)):
        spot = f"{where}[{place}]"
        _short(str(_given(call, "id", spot)), f"{spot}.id", LONGEST_ID)
        _one_of(call.get("type"), ("function",), f"{spot}.type")
        function = as_mapping(_given(call, "function", spot)) or {}
        _name(function, f"{spot}.function")
        if not isinstance(function.get("arguments"), str):
            words = f"Invalid type for '{spot}.function.arguments': expected a string, but got an object instead."
            raise Refused(words, f"{spot}.function.arguments", "invalid_type")


def _pairing(messages: list[Json]) -> None:
    """Check that each call is answered directly after it, once, and that each result answers such a call."""
    waiting: dict[str, int | None] = {}  # the calls that may be answered now: their ids, and where each was
    calling = -1

    def unanswered(index: int) -> None:
        if missing := [call_id for call_id, at in waiting.items() if at is None]:
            words = "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            words += "'tool_call_id'. The following tool_call_ids did not have response messages: "
            raise Refused(words + ", ".join(missing), f"messages.[{index}].role")

    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            call_id = str(_given(message, "tool_call_id", f"messages[{index}]"))
            where = f"messages.[{index}].tool_call_id"
            if calling < 0:
                words = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                raise Refused(f"Invalid parameter: {words}", f"messages.[{index}].role")
            if call_id not in waiting:
                words = f"'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message."
                raise Refused(f"Invalid parameter: {words}", where)
            if (before := waiting[call_id]) is not None:
                words = (
                    f"Duplicate value for 'tool_call_id' of '{call_id}', in messages[{before}] and messages[{index}]."
                )
                raise Refused(f"Invalid parameter: {words}", where)
            waiting[call_id] = index
            continue
        unanswered(index)
        waiting, calling = {}, -1
        for call_id in _ids(message):
            if call_id in waiting:
                words = f"Duplicate value for 'tool_call_id' of '{call_id}' in messages[{index}]."
                raise Refused(f"Invalid parameter: {words}", f"messages.[{index}].tool_calls")
            waiting[call_id], calling = None, index
    unanswered(calling)


def _ids(message: Json) -> Iterator[str]:
    for item in as_list(message.get("tool_calls")) or ():
        yield str((as_mapping(item) or {}).get("id"))


# --- tools and settings -----------------------------------------------------------------------------------------------


def _tools(body: Json) -> None:
    if "tools" not in body:
        if body.get("tool_choice") is not None:
            raise Refused("Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
        return
    names: set[str] = set()
    for place, tool in enumerate(_objects(_filled(body["tools"], "tools"), "tools")):
        where = f"tools[{place}].function"
        function = as_mapping(_given(tool, "function", f"tools[{place}]")) or {}
        _name(function, where)
        name = str(function["name"])
        if name in names:
            raise Refused(f"Invalid 'tools': the function name '{name}' is used twice.", "tools")
        names.add(name)
        kind = (as_mapping(function.get("parameters")) or {}).get("type", "object")
        if kind != "object":
            words = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
            where = f"{where}.parameters"
            raise Refused(f"Invalid schema for function '{name}': {words}", where, "invalid_function_parameters")


def _settings(body: Json, model: Model, messages: list[Json]) -> None:
    limit = body.get("max_completion_tokens")
    if limit is not None:
        where = "max_completion_tokens"
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            words = f"integer below minimum value. Expected a value >= 1, but got {limit} instead."
            raise Refused(f"Invalid '{where}': {words}", where, "integer_below_min_value")
        if limit > model.max_output_tokens:
            words = f"This model supports at most {model.max_output_tokens} completion tokens, whereas you provided"
            raise Refused(f"max_tokens is too large: {limit}. {words} {limit}.", "max_tokens", "invalid_value")
    if body.get("reasoning_effort") is not None:
        _one_of(body["reasoning_effort"], EFFORTS, "reasoning_effort")
    if body.get("metadata") is not None and body.get("store") is not True:
        raise Refused("The 'metadata' parameter is only allowed when 'store' is enabled.", "metadata")
    if (form := as_mapping(body.get("response_format"))) is not None:
        kind = form.get("type")
        _one_of(kind, ("json_object", "json_schema", "text"), "response_format.type")
        if kind == "json_object" and "json" not in str([one.get("content") for one in messages]).lower():
            words = "in some form, to use 'response_format' of type 'json_object'."
            raise Refused(f"'messages' must contain the word 'json' {words}", "messages")
        if kind == "json_schema":
            schema = as_mapping(form.get("json_schema")) or {}
            _name(schema, "response_format.json_schema")
            _given(schema, "schema", "response_format.json_schema")
    if body.get("stream"):
        raise Refused("this server does not stream", "stream")
