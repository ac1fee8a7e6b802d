"""What Anthropic refuses in a Messages request, and its words for it.

Sources: the Messages API reference, the request model of the client library `anthropic` (types), and errors as users
report them: calls without results, anthropics/claude-code#7929; results without calls, anthropics/claude-code#18947;
five breakpoints, anthropics/claude-code#8901; an assistant's message at the end,
agenticloops-ai/agentic-ai-engineering#43. The rules are of models from 4.6 on that take no system message in between.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..checks.message_shapes import as_list, as_mapping, blocks_of
from .problems import IMAGES, NAME, Model, Refused

_ARGUMENTS = """
    model messages system tools tool_choice max_tokens temperature top_p top_k stop_sequences stream metadata
    thinking output_config cache_control service_tier
"""
ARGUMENTS = frozenset(_ARGUMENTS.split())
BLOCKS = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}
MOST_BREAKPOINTS = 4
EFFORTS = ("low", "medium", "high", "xhigh", "max")

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def check(body: Mapping[str, Any], model: Model | None) -> None:
    """Check a request.

    Args:
        model: that it names; None if there is no such model.

    Raises:
        Refused: the first rule that it breaks.
    """
    for key in ("model", "messages", "max_tokens"):
        if key not in body:
            raise Refused(f"{key}: Field required")
    if unknown := sorted(set(body) - ARGUMENTS):
        raise Refused(f"{unknown[0]}: Extra inputs are not permitted")
    if model is None:
        raise Refused(f"model: {body['model']}", status=404, kind="not_found_error")
    _settings(body, model)
    _system(body)
    _tools(body)
    messages = _messages(body)
    for index, message in enumerate(messages):
        _content(message, index)
    _pairing(joined(messages))
    _breakpoints(body)


def _settings(body: Mapping[str, Any], model: Model) -> None:
    limit = body["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise Refused("max_tokens: Input should be a valid integer")
    if limit < 1:
        raise Refused("max_tokens: must be greater than or equal to 1")
    if limit > model.max_output_tokens:
        raise Refused(
            f"max_tokens: {limit} > {model.max_output_tokens}, which is the maximum allowed number of output tokens "
            f"for {model.id}"
        )
    metadata = as_mapping(body.get("metadata"))
    if metadata is not None and (unknown := sorted(set(metadata) - {"user_id"})):
        raise Refused(f"metadata.{unknown[0]}: Extra inputs are not permitted")
    output = as_mapping(body.get("output_config"))
    if output is not None:
        if output.get("effort") is not None and output["effort"] not in EFFORTS:
            raise Refused("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
        form = as_mapping(output.get("format"))
        if form is not None and (form.get("type") != "json_schema" or as_mapping(form.get("schema")) is None):
            raise Refused("output_config.format.schema: Field required")
    if body.get("stream"):
        raise Refused("this server does not stream")


def _system(body: Mapping[str, Any]) -> None:
    system = body.get("system")
    if system is None or isinstance(system, str):
        return
    for place, block in blocks_of(system):
        if block.get("type") != "text":
            raise Refused(f"system.{place}.type: Input should be 'text'")
        _text(block, f"system.{place}", "system")


def _tools(body: Mapping[str, Any]) -> None:
    names: set[str] = set()
    for place, item in enumerate(as_list(body.get("tools")) or ()):
        tool = as_mapping(item) or {}
        name = tool.get("name")
        if not isinstance(name, str):
            raise Refused(f"tools.{place}.custom.name: Field required")
        if _TOOL_NAME.fullmatch(name) is None:
            raise Refused(f"tools.{place}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in names:
            raise Refused("tools: Tool names must be unique.")
        names.add(name)
        schema = as_mapping(tool.get("input_schema"))
        if schema is None:
            raise Refused(f"tools.{place}.custom.input_schema: Field required")
        if schema.get("type") != "object":
            raise Refused(f"tools.{place}.custom.input_schema.type: Field required")


def _messages(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    messages = [as_mapping(item) or {} for item in as_list(body["messages"]) or ()]
    if not messages:
        raise Refused("messages: at least one message is required")
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "system":
            raise Refused(
                'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not '
                '"system" as an input message role.'
            )
        if role not in BLOCKS:
            raise Refused(f"messages.{index}.role: Input should be 'user' or 'assistant'")
    if messages[0]["role"] != "user":
        raise Refused('messages: first message must use the "user" role')
    if messages[-1]["role"] != "user":
        raise Refused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    return messages


def _content(message: Mapping[str, Any], index: int) -> None:
    role, content = str(message["role"]), message.get("content")
    where = f"messages.{index}"
    if isinstance(content, str):
        if not content:
            raise _no_content(index)
        if not content.strip():
            raise Refused("messages: text content blocks must contain non-whitespace text")
        return
    if as_list(content) is None:
        raise Refused(f"{where}.content: Field required")
    if not content:
        raise _no_content(index)
    for place, block in blocks_of(content):
        kind, spot = str(block.get("type")), f"{where}.content.{place}"
        if kind not in BLOCKS[role]:
            if any(kind in kinds for kinds in BLOCKS.values()):
                other = "assistant" if role == "user" else "user"
                raise Refused(f"{where}: `{kind}` blocks can only be in `{other}` messages")
            tags = ", ".join(f"'{tag}'" for tag in BLOCKS[role])
            raise Refused(
                f"{spot}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {tags}"
            )
        _BLOCK_RULES[kind](block, spot)


def _text(block: Mapping[str, Any], spot: str, part: str = "messages") -> None:
    text = block.get("text")
    if not isinstance(text, str):
        raise Refused(f"{spot}.text.text: Field required")
    if not text:
        if block.get("cache_control"):
            raise Refused(f"{spot}.text: cache_control cannot be set for empty text blocks")
        raise Refused(f"{part}: text content blocks must be non-empty")
    if not text.strip():
        raise Refused(f"{part}: text content blocks must contain non-whitespace text")


def _image(block: Mapping[str, Any], spot: str) -> None:
    source = as_mapping(block.get("source")) or {}
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return
    if source.get("type") != "base64":
        raise Refused(f"{spot}.image.source: Input tag '{source.get('type')}' found using 'type' is not expected")
    if source.get("media_type") not in IMAGES:
        raise Refused(
            f"{spot}.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or "
            "'image/webp'"
        )
    try:
        base64.b64decode(str(source.get("data")), validate=True)
    except binascii.Error:
        raise Refused(f"{spot}.image.source.base64: invalid base64 data") from None


def _document(block: Mapping[str, Any], spot: str) -> None:
    if as_mapping(block.get("source")) is None:
        raise Refused(f"{spot}.document.source: Field required")


def _tool_use(block: Mapping[str, Any], spot: str) -> None:
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or NAME.fullmatch(call_id) is None:
        raise Refused(f"{spot}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(name, str) or not 1 <= len(name) <= 200:
        raise Refused(f"{spot}.tool_use.name: String should have at most 200 characters")
    if as_mapping(block.get("input")) is None:
        raise Refused(f"{spot}.tool_use.input: Input should be a valid dictionary")


def _tool_result(block: Mapping[str, Any], spot: str) -> None:
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str) or NAME.fullmatch(call_id) is None:
        raise Refused(f"{spot}.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    for place, inner in blocks_of(block.get("content")):
        kind = inner.get("type")
        if kind == "text":
            _text(inner, f"{spot}.tool_result.content.{place}")
        elif kind == "image":
            _image(inner, f"{spot}.tool_result.content.{place}")
        else:
            raise Refused(f"{spot}.tool_result.content.{place}: Input tag '{kind}' found using 'type' is not expected")


def _thinking(block: Mapping[str, Any], spot: str) -> None:
    kind = str(block["type"])
    for key in ("thinking", "signature") if kind == "thinking" else ("data",):
        if not isinstance(block.get(key), str):
            raise Refused(f"{spot}.{kind}.{key}: Field required")
    if "cache_control" in block:
        raise Refused(f"{spot}.{kind}.cache_control: Extra inputs are not permitted")


_BLOCK_RULES = {
    "text": _text,
    "image": _image,
    "document": _document,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "thinking": _thinking,
    "redacted_thinking": _thinking,
}


def joined(messages: list[Mapping[str, Any]]) -> list[tuple[int, str, list[Mapping[str, Any]]]]:
    """Return the turns of a conversation: neighbours of one role are one turn, as Anthropic reads them.

    Each turn is the index of its first message, its role, and its blocks; text alone is one block.
    """
    turns: list[tuple[int, str, list[Mapping[str, Any]]]] = []
    for index, message in enumerate(messages):
        role, content = str(message["role"]), message["content"]
        blocks = [block for _, block in blocks_of(content)] or [{"type": "text", "text": content}]
        if turns and turns[-1][1] == role:
            turns[-1][2].extend(blocks)
        else:
            turns.append((index, role, blocks))
    return turns


def _pairing(turns: list[tuple[int, str, list[Mapping[str, Any]]]]) -> None:
    """Check that the turn after calls begins with one result of each, and that no call id is used twice."""
    known: set[str] = set()
    calls: list[str] = []
    calling = 0
    for index, role, blocks in turns:
        if role == "user":
            _results(index, blocks, calling, calls)
            calls = []
            continue
        calls, calling = [str(block["id"]) for block in blocks if block["type"] == "tool_use"], index
        for call_id in calls:
            if call_id in known:
                raise Refused("messages: `tool_use` ids must be unique")
            known.add(call_id)


def _results(index: int, blocks: list[Mapping[str, Any]], calling: int, calls: list[str]) -> None:
    first: list[str] = []  # results before anything else
    answered: set[str] = set()
    leading = True
    for place, block in enumerate(blocks):
        if block["type"] != "tool_result":
            leading = False
            continue
        call_id = str(block["tool_use_id"])
        if call_id not in calls:
            raise Refused(
                f"messages.{index}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if call_id in answered:
            raise Refused(
                f"messages.{index}.content.{place}: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {call_id}"
            )
        answered.add(call_id)
        if leading:
            first.append(call_id)
    if missing := [call_id for call_id in calls if call_id not in first]:
        raise Refused(
            f"messages.{calling}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )


def _breakpoints(body: Mapping[str, Any]) -> None:
    found = 0
    for block in cacheable(body):
        control = block.get("cache_control")
        if control is None:
            continue
        found += 1
        given = as_mapping(control) or {}
        if given.get("type") != "ephemeral" or given.get("ttl", "5m") not in ("5m", "1h"):
            raise Refused("cache_control: Input should be {'type': 'ephemeral'}, with a ttl of '5m' or '1h'")
    if found > MOST_BREAKPOINTS:
        raise Refused(f"A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided. Found {found}.")


def cacheable(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a request that may carry a breakpoint, in the order of the prefix: tools, system, messages."""
    yield from (as_mapping(tool) or {} for tool in as_list(body.get("tools")) or ())
    yield from (block for _, block in blocks_of(body.get("system")))
    for item in as_list(body.get("messages")) or ():
        yield from (block for _, block in blocks_of((as_mapping(item) or {}).get("content")))


def _no_content(index: int) -> Refused:
    return Refused(
        f"messages.{index}: all messages must have non-empty content except for the optional final assistant message"
    )
