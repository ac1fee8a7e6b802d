"""What OpenAI refuses in a Chat Completions request, and its words for it.

Sources: the request model of the client library `openai` (types/chat), and errors as users report them: tool calls
without results, RamiAwar/dataline#172; a second result, agno-agi/agno#5116. Rules that depend on the account or on
the age of a model are left out.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..checks.message_shapes import as_list, as_mapping
from .problems import IMAGES, NAME, Model, Refused

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


def check(body: Mapping[str, Any], model: Model | None) -> None:
    """Check a request.

    Args:
        model: that it names; None if there is no such model.

    Raises:
        Refused: the first rule that it breaks.
    """
    if unknown := sorted(set(body) - ARGUMENTS):
        raise Refused(f"Unrecognized request argument supplied: {unknown[0]}")
    if not isinstance(body.get("model"), str):
        raise Refused("you must provide a model parameter")
    if model is None:
        raise Refused(
            f"The model `{body['model']}` does not exist or you do not have access to it.",
            status=404,
            code="model_not_found",
        )
    messages = _messages(body)
    for index, message in enumerate(messages):
        _message(message, index)
    _pairing(messages)
    _tools(body)
    _settings(body, model, messages)


def _messages(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = as_list(body.get("messages"))
    if found is None:
        raise Refused("Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    if not found:
        raise _empty("messages")
    messages: list[Mapping[str, Any]] = []
    for index, item in enumerate(found):
        message = as_mapping(item)
        if message is None:
            raise Refused(
                f"Invalid type for 'messages[{index}]': expected an object.",
                param=f"messages[{index}]",
                code="invalid_type",
            )
        messages.append(message)
    return messages


def _message(message: Mapping[str, Any], index: int) -> None:
    where, role = f"messages[{index}]", message.get("role")
    if role not in ROLES:
        raise Refused(
            f"Invalid value: '{role}'. Supported values are: {_listed(ROLES)}.",
            param=f"{where}.role",
            code="invalid_value",
        )
    _content(message, where, str(role))
    name = message.get("name")
    if name is not None:
        _name(name, f"{where}.name")
    if message.get("tool_calls") is not None:
        if role != "assistant":
            raise Refused(f"Unknown parameter: '{where}.tool_calls'.", param=f"{where}.tool_calls")
        _calls(message, f"{where}.tool_calls")


def _content(message: Mapping[str, Any], where: str, role: str) -> None:
    content = message.get("content")
    if isinstance(content, str):
        return
    if content is None:
        if role == "assistant" and (message.get("tool_calls") or message.get("refusal")):
            return
        raise Refused(
            "Invalid value for 'content': expected a string, got null.", param=f"messages.[{where[9:-1]}].content"
        )
    parts = as_list(content)
    if parts is None:
        raise Refused(
            f"Invalid type for '{where}.content': expected one of a string or array of objects.",
            param=f"{where}.content",
            code="invalid_type",
        )
    if not parts:
        raise _empty(f"{where}.content")
    known = PARTS.get(role, ("text",))
    for place, item in enumerate(parts):
        part = as_mapping(item) or {}
        kind = str(part.get("type"))
        spot = f"{where}.content[{place}]"
        if kind == "image_url" and role != "user":
            raise Refused(
                f"Image URLs are only allowed for messages with role 'user', but this message with role '{role}' "
                "contains an image URL.",
                param=spot,
            )
        if kind not in known:
            raise Refused(
                f"Invalid value: '{kind}'. Supported values are: {_listed(known)}.",
                param=f"{spot}.type",
                code="invalid_value",
            )
        if kind == "text" and not isinstance(part.get("text"), str):
            raise Refused(f"Missing required parameter: '{spot}.text'.", code="missing_required_parameter")
        if kind == "image_url":
            _image(part, spot)


def _image(part: Mapping[str, Any], spot: str) -> None:
    url = (as_mapping(part.get("image_url")) or {}).get("url")
    if not isinstance(url, str) or not url:
        raise Refused(f"Missing required parameter: '{spot}.image_url.url'.", code="missing_required_parameter")
    if url.startswith(("http://", "https://")):
        return
    data = _DATA.fullmatch(url)
    if data is None or data[1] not in IMAGES or not _is_base64(data[2]):
        raise Refused(
            "You uploaded an unsupported image. Please make sure your image has of one the following formats: "
            "['png', 'jpeg', 'gif', 'webp'].",
            code="invalid_image_format",
        )


def _calls(message: Mapping[str, Any], where: str) -> None:
    calls = as_list(message.get("tool_calls"))
    if not calls:
        raise _empty(where)
    for place, item in enumerate(calls):
        call, spot = as_mapping(item) or {}, f"{where}[{place}]"
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id:
            raise Refused(
                f"Missing required parameter: '{spot}.id'.", param=f"{spot}.id", code="missing_required_parameter"
            )
        _short(call_id, f"{spot}.id", LONGEST_ID)
        function = as_mapping(call.get("function"))
        if call.get("type") != "function" or function is None:
            raise Refused(
                f"Invalid value: '{call.get('type')}'. Supported values are: 'function' and 'custom'.",
                param=f"{spot}.type",
                code="invalid_value",
            )
        _name(function.get("name"), f"{spot}.function.name")
        if not isinstance(function.get("arguments"), str):
            raise Refused(
                f"Invalid type for '{spot}.function.arguments': expected a string, but got an object instead.",
                param=f"{spot}.function.arguments",
                code="invalid_type",
            )


def _pairing(messages: list[Mapping[str, Any]]) -> None:
    """Check that each call is answered directly after it, once, and that each result answers such a call."""
    waiting: dict[str, int | None] = {}  # the calls that may be answered now: their ids, and where each was
    calling = -1

    def unanswered(index: int) -> None:
        if missing := [call_id for call_id, at in waiting.items() if at is None]:
            raise Refused(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. The following tool_call_ids did not have response messages: " + ", ".join(missing),
                param=f"messages.[{index}].role",
            )

    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if not isinstance(call_id, str):
                raise Refused(
                    f"Missing required parameter: 'messages[{index}].tool_call_id'.", code="missing_required_parameter"
                )
            if calling < 0:
                raise Refused(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    param=f"messages.[{index}].role",
                )
            if call_id not in waiting:
                raise Refused(
                    f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message.",
                    param=f"messages.[{index}].tool_call_id",
                )
            if (before := waiting[call_id]) is not None:
                raise Refused(
                    f"Invalid parameter: Duplicate value for 'tool_call_id' of '{call_id}', in messages[{before}] and "
                    f"messages[{index}].",
                    param=f"messages.[{index}].tool_call_id",
                )
            waiting[call_id] = index
            continue
        unanswered(index)
        waiting, calling = {}, -1
        for call_id in _ids(message):
            if call_id in waiting:
                raise Refused(
                    f"Invalid parameter: Duplicate value for 'tool_call_id' of '{call_id}' in messages[{index}].",
                    param=f"messages.[{index}].tool_calls",
                )
            waiting[call_id], calling = None, index
    unanswered(calling)


def _ids(message: Mapping[str, Any]) -> Iterator[str]:
    for item in as_list(message.get("tool_calls")) or ():
        yield str((as_mapping(item) or {}).get("id"))


def _tools(body: Mapping[str, Any]) -> None:
    if "tools" not in body:
        if body.get("tool_choice") is not None:
            raise Refused("Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
        return
    tools = as_list(body["tools"])
    if not tools:
        raise _empty("tools")
    names: set[str] = set()
    for place, item in enumerate(tools):
        tool = as_mapping(item) or {}
        function = as_mapping(tool.get("function"))
        if tool.get("type") != "function" or function is None:
            raise Refused(f"Missing required parameter: 'tools[{place}].function'.", code="missing_required_parameter")
        name = function.get("name")
        _name(name, f"tools[{place}].function.name")
        if name in names:
            raise Refused(f"Invalid 'tools': the function name '{name}' is used twice.", param="tools")
        names.add(str(name))
        parameters = as_mapping(function.get("parameters"))
        if parameters is not None and parameters.get("type", "object") != "object":
            raise Refused(
                f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got "
                f"'type: \"{parameters.get('type')}\"'.",
                param=f"tools[{place}].function.parameters",
                code="invalid_function_parameters",
            )


def _settings(body: Mapping[str, Any], model: Model, messages: list[Mapping[str, Any]]) -> None:
    limit = body.get("max_completion_tokens")
    if limit is not None:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise Refused(
                f"Invalid 'max_completion_tokens': integer below minimum value. Expected a value >= 1, but got {limit} "
                "instead.",
                param="max_completion_tokens",
                code="integer_below_min_value",
            )
        if limit > model.max_output_tokens:
            raise Refused(
                f"max_tokens is too large: {limit}. This model supports at most {model.max_output_tokens} completion "
                f"tokens, whereas you provided {limit}.",
                param="max_tokens",
                code="invalid_value",
            )
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in EFFORTS:
        raise Refused(
            f"Invalid value: '{effort}'. Supported values are: {_listed(EFFORTS)}.",
            param="reasoning_effort",
            code="invalid_value",
        )
    if body.get("metadata") is not None and body.get("store") is not True:
        raise Refused("The 'metadata' parameter is only allowed when 'store' is enabled.", param="metadata")
    form = as_mapping(body.get("response_format"))
    if form is not None:
        _response_format(form, messages)
    if body.get("stream"):
        raise Refused("this server does not stream", param="stream")


def _response_format(form: Mapping[str, Any], messages: list[Mapping[str, Any]]) -> None:
    kind = form.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise Refused(
            f"Invalid value: '{kind}'. Supported values are: 'json_object', 'json_schema', and 'text'.",
            param="response_format.type",
            code="invalid_value",
        )
    if kind == "json_object" and "json" not in str([message.get("content") for message in messages]).lower():
        raise Refused(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            param="messages",
        )
    if kind == "json_schema":
        given = as_mapping(form.get("json_schema")) or {}
        _name(given.get("name"), "response_format.json_schema.name")
        if as_mapping(given.get("schema")) is None:
            raise Refused(
                "Missing required parameter: 'response_format.json_schema.schema'.", code="missing_required_parameter"
            )


def _name(name: object, where: str) -> None:
    if not isinstance(name, str) or not name:
        raise Refused(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")
    _short(name, where, LONGEST_NAME)
    if NAME.fullmatch(name) is None:
        raise Refused(
            f"Invalid '{where}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            param=where,
            code="invalid_value",
        )


def _short(text: str, where: str, longest: int) -> None:
    if len(text) > longest:
        raise Refused(
            f"Invalid '{where}': string too long. Expected a string with maximum length {longest}, but got a string "
            f"with length {len(text)} instead.",
            param=where,
            code="string_above_max_length",
        )


def _empty(where: str) -> Refused:
    return Refused(
        f"Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        param=where,
        code="empty_array",
    )


def _listed(values: tuple[str, ...]) -> str:
    quoted = [f"'{value}'" for value in values]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except binascii.Error:
        return False
