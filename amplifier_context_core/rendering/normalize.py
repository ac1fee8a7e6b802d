"""Normalization of stored content blocks and tool calls to the shapes that the kernel and the providers take.

A block in that shape is returned as the same object. Others are translated (Anthropic's and OpenAI's shapes),
completed, or turned into text.
"""

from __future__ import annotations

from typing import Any, cast

from ..messages.media import split_data_uri
from ..messages.parsing import (
    CALL_BLOCKS,
    THINKING_BLOCKS,
    Call,
    arguments_of,
    arguments_text,
    copy_json,
    is_object_text,
    json_text,
)
from .provider_limits import safe_tool_name
from .truncate import clip_text

_VISIBILITIES = ("internal", "developer", "user", None)  # what the kernel's blocks allow
_UNKNOWN_BLOCK_CHARS = 2_000  # characters of an unknown block that are shown


def normalize_block(block: dict[str, Any], role: str) -> dict[str, Any] | None:
    """Return a content block as the kernel's `Message` takes it; None if nothing of it can be shown."""
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
        return block if role == "assistant" else None  # see `normalize_call_block`
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
    if not isinstance(source, dict):
        return False
    source = cast("dict[str, Any]", source)
    needed = {"base64": ("media_type", "data"), "url": ("url",)}.get(str(source.get("type")), ())
    return bool(source) and all(isinstance(source.get(key), str) and source[key].strip() for key in needed)


def _image(block: dict[str, Any]) -> dict[str, Any]:
    reference = block.get("image_url")
    url = cast("dict[str, Any]", reference).get("url") if isinstance(reference, dict) else reference
    if not isinstance(url, str) or not url:
        return _as_text(block)
    data = split_data_uri(url)
    if data:
        return {"type": "image", "source": {"type": "base64", "media_type": data[0], "data": data[1]}}
    return {"type": "image", "source": {"type": "url", "url": url}}


def _as_text(block: dict[str, Any]) -> dict[str, Any]:
    """The size is in place of data."""
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


def normalize_call_block(block: dict[str, Any], call: Call, wire: str) -> dict[str, Any]:
    """Return a content block of a call in the kernel's shape.

    `wire` is the id that the call is sent under; `tool_calls` may contain the call as well.
    """
    kept = {key: value for key, value in block.items() if key not in ("tool", "arguments")}
    return {**kept, "type": "tool_call", "id": wire, "name": _sent_name(call), "input": arguments_of(call)}


def normalize_call_item(item: dict[str, Any], call: Call, wire: str) -> dict[str, Any]:
    """Return an item of `tool_calls`, valid in its own shape."""
    function = item.get("function")
    if not isinstance(function, dict):
        kept = {key: value for key, value in item.items() if key != "input"}
        name = _sent_name(call)
        named = {"name": name} if "name" in item else {}
        return {**kept, "id": wire, "tool": name, **named, "arguments": arguments_of(call)}
    function = cast("dict[str, Any]", function)
    given = function.get("arguments")
    arguments = given if is_object_text(given) else json_text(arguments_of(call))
    return {
        **item,
        "id": wire,
        "type": "function",
        "function": {**function, "name": _sent_name(call), "arguments": arguments},
    }


def normalize_call(call: Call, wire: str) -> dict[str, Any]:
    """Return an item of `tool_calls`, in the kernel's shape, for a call that only a block contains."""
    sent = {"id": wire, "tool": _sent_name(call), "arguments": copy_json(arguments_of(call))}
    return {**sent, "signature": call.signature} if call.signature else sent


def _sent_name(call: Call) -> str:
    return safe_tool_name(call.name) if call.name else "unknown"


def calls_as_text(content: str | list[dict[str, Any]], calls: list[Call]) -> str | list[dict[str, Any]]:
    words = "\n".join(f"[called {call.name or 'unknown'}({arguments_text(call)})]" for call in calls)
    if isinstance(content, str):
        return f"{content}\n{words}" if content else words
    return [*content, {"type": "text", "text": words}]
