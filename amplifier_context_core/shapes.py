"""Shapes: content blocks and tool calls as hosts stored them, in the form the kernel and the providers take.

A block or call that fits already is given back as it is, the same object; the rest is translated (Anthropic's and
OpenAI's forms), completed, or put in words.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import Any, TypeGuard, cast

import orjson

from .clip import clip_text
from .errors import InvalidMessage
from .media import split_data_uri
from .messages import CALL_BLOCKS, THINKING_BLOCKS, Call, arguments_text, copy_checked, copy_json, json_text

_VISIBILITIES = ("internal", "developer", "user", None)  # what the kernel's blocks allow
_UNKNOWN_BLOCK_CHARS = 2_000  # characters of an unknown block that are shown


def kernel_block(block: dict[str, Any], role: str) -> dict[str, Any] | None:
    """A content block as the kernel's `Message` takes it; None when nothing of it can be shown."""
    kind = block.get("type")
    if block.get("visibility") not in _VISIBILITIES:
        block = {key: value for key, value in block.items() if key != "visibility"}
    if kind == "text":
        text = block.get("text")
        if isinstance(text, str) and text.strip():
            return block
        return None
    if kind in THINKING_BLOCKS:
        return _thinking(block) if role == "assistant" else None
    if kind in CALL_BLOCKS:
        if role != "assistant":
            return None
        name = block.get("name") or block.get("tool")
        arguments = block.get("input")
        if kind == "tool_call" and _is_name(block.get("name")) and isinstance(arguments, dict):
            return block
        name = name if isinstance(name, str) and name.strip() else ""
        call = Call(block["id"], name, cast("str | dict[str, Any]", arguments or {}))
        kept = {key: value for key, value in block.items() if key not in ("type", "id", "name", "tool", "input")}
        return {
            "type": "tool_call",
            "id": call.id,
            "name": call.name or "unknown",
            "input": arguments_object(call),
            **kept,
        }
    if kind == "image_url":
        block = _image(block)
    if block.get("type") == "image" and role in ("user", "tool", "function") and _has_source(block.get("source")):
        return block
    return _as_text(block) if block.get("type") != "text" else block


def _thinking(block: dict[str, Any]) -> dict[str, Any] | None:
    kind = block["type"]
    if kind == "thinking":
        whole = isinstance(block.get("thinking"), str) and isinstance(block.get("signature"), str | None)
        return block if whole and isinstance(block.get("content"), list | None) else None
    if kind == "redacted_thinking":
        return block if isinstance(block.get("data"), str) else None
    lists = {key: block[key] for key in ("content", "summary") if isinstance(block.get(key), list)}
    return block if len(lists) == 2 else {**block, "content": [], "summary": [], **lists}


def _has_source(source: object) -> bool:
    """Does an image say where its data is?"""
    if not isinstance(source, dict):
        return False
    source = cast("dict[str, Any]", source)
    needed = {"base64": ("media_type", "data"), "url": ("url",)}.get(str(source.get("type")), ())
    return bool(source) and all(isinstance(source.get(key), str) and source[key].strip() for key in needed)


def _image(block: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's ``image_url`` as the kernel's ``image``."""
    reference = block.get("image_url")
    url = cast("dict[str, Any]", reference).get("url") if isinstance(reference, dict) else reference
    if not isinstance(url, str) or not url:
        return _as_text(block)
    data = split_data_uri(url)
    if data:
        return {"type": "image", "source": {"type": "base64", "media_type": data[0], "data": data[1]}}
    return {"type": "image", "source": {"type": "url", "url": url}}


def _as_text(block: dict[str, Any]) -> dict[str, Any]:
    """A block of a type the kernel does not know, in words; carried data by its size only."""
    shown = json_text(_without_data(block))
    return {"type": "text", "text": clip_text(f"[{block.get('type')}] {shown}", _UNKNOWN_BLOCK_CHARS)}


def _without_data(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_data(item) for key, item in cast("dict[str, Any]", value).items() if key != "type"}
    if isinstance(value, list):
        return [_without_data(item) for item in cast("list[Any]", value)]
    if isinstance(value, str) and len(value) > 500 and " " not in value[:500]:
        return f"({len(value):,} characters of data)"
    return value


def sendable_call(item: dict[str, Any], wire: str) -> dict[str, Any]:
    """One item of ``tool_calls`` in the shape it has, with the id it is sent under and arguments that parse."""
    function = item.get("function")
    if isinstance(function, dict):
        function = cast("dict[str, Any]", function)
        arguments = function.get("arguments")
        name = function.get("name")
        if not _is_object_text(arguments) or not _is_name(name) or item.get("type") != "function":
            call = Call(wire, name if _is_name(name) else "unknown", _loose(arguments))
            if not _is_object_text(arguments):
                arguments = json_text(arguments_object(call))
            function = {**function, "name": call.name, "arguments": arguments}
            item = {**item, "type": "function", "function": function}
    else:
        name = item.get("tool") or item.get("name")
        if not _is_name(name) or not isinstance(item.get("arguments"), dict):
            call = Call(wire, name if _is_name(name) else "unknown", _loose(item.get("arguments", item.get("input"))))
            item = {**item, "tool": call.name, "arguments": arguments_object(call)}
    return item if item["id"] == wire else {**item, "id": wire}


def kernel_call(call: Call, wire: str) -> dict[str, Any]:
    return {
        "id": wire,
        "tool": call.name if call.name.strip() else "unknown",
        "arguments": copy_json(arguments_object(call)),
    }


def _loose(arguments: object) -> str | dict[str, Any]:
    if isinstance(arguments, (str, dict)):
        return cast("str | dict[str, Any]", arguments)
    return {} if arguments is None else {"value": arguments}


def _is_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and name.strip() != ""


def _is_object_text(arguments: object) -> bool:
    if not isinstance(arguments, str):
        return False
    try:
        return isinstance(orjson.loads(arguments), dict)
    except (orjson.JSONDecodeError, UnicodeError):
        return False


def arguments_object(call: Call) -> dict[str, Any]:
    """Arguments as an object; text that is none (cut off, malformed, too deep) is kept under a name that says so."""
    if isinstance(call.arguments, dict):
        return call.arguments
    if not call.arguments.strip():
        return {}
    try:
        parsed = copy_checked(orjson.loads(call.arguments))
    except (orjson.JSONDecodeError, UnicodeError, InvalidMessage):
        return {"unparsed_arguments": call.arguments}
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {"value": parsed}


def calls_in_words(content: str | list[dict[str, Any]], calls: list[Call]) -> str | list[dict[str, Any]]:
    words = "\n".join(f"[called {call.name or 'unknown'}({arguments_text(call)})]" for call in calls)
    if isinstance(content, str):
        return f"{content}\n{words}" if content else words
    return [*content, {"type": "text", "text": words}]
