"""What Anthropic refuses in a Messages request, and its words for it.

Sources: the Messages API reference, the request model of the client library `anthropic` (types), and errors as users
report them: calls without results, anthropics/claude-code#7929; results without calls, anthropics/claude-code#18947;
five breakpoints, anthropics/claude-code#8901; an assistant's message at the end,
agenticloops-ai/agentic-ai-engineering#43. The rules are of models from 4.6 on that take no system message in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..checks.message_shapes import as_list, as_mapping, blocks_of
from .problems import IMAGES, NAME, Model, Refused, is_base64

Json = Mapping[str, Any]

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


def check(body: Json, model: Model | None) -> None:
    """Check a request; the model is None if there is none of the name.

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
    for place, block in blocks_of(body.get("system")):
        if block.get("type") != "text":
            raise Refused(f"system.{place}.type: Input should be 'text'")
        _text(block, f"system.{place}", "system")
    _tools(body)
    messages = _messages(body)
    for index, message in enumerate(messages):
        _content(message, index)
    _pairing(joined(messages))
    _breakpoints(body)


def _settings(body: Json, model: Model) -> None:
    limit = body["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise Refused("max_tokens: Input should be a valid integer")
    if limit < 1:
        raise Refused("max_tokens: must be greater than or equal to 1")
    if limit > (most := model.max_output_tokens):
        words = f"which is the maximum allowed number of output tokens for {model.id}"
        raise Refused(f"max_tokens: {limit} > {most}, {words}")
    if unknown := sorted(set(as_mapping(body.get("metadata")) or {}) - {"user_id"}):
        raise Refused(f"metadata.{unknown[0]}: Extra inputs are not permitted")
    output = as_mapping(body.get("output_config")) or {}
    if output.get("effort") is not None and output["effort"] not in EFFORTS:
        raise Refused("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    form = as_mapping(output.get("format"))
    if form is not None and (form.get("type") != "json_schema" or as_mapping(form.get("schema")) is None):
        raise Refused("output_config.format.schema: Field required")
    if body.get("stream"):
        raise Refused("this server does not stream")


def _tools(body: Json) -> None:
    names: set[str] = set()
    for place, item in enumerate(as_list(body.get("tools")) or ()):
        tool, where = as_mapping(item) or {}, f"tools.{place}.custom"
        name = _string(tool, "name", where)
        if _TOOL_NAME.fullmatch(name) is None:
            raise Refused(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in names:
            raise Refused("tools: Tool names must be unique.")
        names.add(name)
        schema = as_mapping(tool.get("input_schema"))
        if schema is None:
            raise Refused(f"{where}.input_schema: Field required")
        if schema.get("type") != "object":
            raise Refused(f"{where}.input_schema.type: Field required")


def _string(holder: Json, key: str, where: str) -> str:
    if not isinstance(holder.get(key), str):
        raise Refused(f"{where}.{key}: Field required")
    return holder[key]


def _messages(body: Json) -> list[Json]:
    messages = [as_mapping(item) or {} for item in as_list(body["messages"]) or ()]
    if not messages:
        raise Refused("messages: at least one message is required")
    for index, message in enumerate(messages):
        if message.get("role") == "system":
            words = 'The Messages API accepts a top-level `system` parameter, not "system" as an input message role.'
            raise Refused(f'messages: Unexpected role "system". {words}')
        if message.get("role") not in BLOCKS:
            raise Refused(f"messages.{index}.role: Input should be 'user' or 'assistant'")
    if messages[0]["role"] != "user":
        raise Refused('messages: first message must use the "user" role')
    if messages[-1]["role"] != "user":
        words = "The conversation must end with a user message."
        raise Refused(f"This model does not support assistant message prefill. {words}")
    return messages


def _content(message: Json, index: int) -> None:
    role, content, where = str(message["role"]), message.get("content"), f"messages.{index}"
    if not isinstance(content, str) and as_list(content) is None:
        raise Refused(f"{where}.content: Field required")
    if not content:
        words = "all messages must have non-empty content except for the optional final assistant message"
        raise Refused(f"{where}: {words}")
    if isinstance(content, str) and not content.strip():
        raise Refused("messages: text content blocks must contain non-whitespace text")
    for place, block in blocks_of(content):
        kind, spot = str(block.get("type")), f"{where}.content.{place}"
        if kind not in BLOCKS[role]:
            if any(kind in kinds for kinds in BLOCKS.values()):
                other = "assistant" if role == "user" else "user"
                raise Refused(f"{where}: `{kind}` blocks can only be in `{other}` messages")
            words = "found using 'type' does not match any of the expected tags"
            raise Refused(f"{spot}: Input tag '{kind}' {words}: {', '.join(map(repr, BLOCKS[role]))}")
        _BLOCK_RULES[kind](block, spot)


def _text(block: Json, spot: str, part: str = "messages") -> None:
    text = _string(block, "text", f"{spot}.text")
    if not text and block.get("cache_control"):
        raise Refused(f"{spot}.text: cache_control cannot be set for empty text blocks")
    if not text:
        raise Refused(f"{part}: text content blocks must be non-empty")
    if not text.strip():
        raise Refused(f"{part}: text content blocks must contain non-whitespace text")


def _image(block: Json, spot: str) -> None:
    source = as_mapping(block.get("source")) or {}
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return
    where = f"{spot}.image.source"
    if source.get("type") != "base64":
        raise Refused(f"{where}: Input tag '{source.get('type')}' found using 'type' is not expected")
    if source.get("media_type") not in IMAGES:
        words = "Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
        raise Refused(f"{where}.base64.media_type: {words}")
    if not is_base64(str(source.get("data"))):
        raise Refused(f"{where}.base64: invalid base64 data")


def _document(block: Json, spot: str) -> None:
    if as_mapping(block.get("source")) is None:
        raise Refused(f"{spot}.document.source: Field required")


def _id(block: Json, key: str, where: str) -> None:
    if NAME.fullmatch(str(block.get(key) or "")) is None:
        raise Refused(f"{where}.{key}: String should match pattern '^[a-zA-Z0-9_-]+$'")


def _tool_use(block: Json, spot: str) -> None:
    _id(block, "id", f"{spot}.tool_use")
    name = block.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= 200:
        raise Refused(f"{spot}.tool_use.name: String should have at most 200 characters")
    if as_mapping(block.get("input")) is None:
        raise Refused(f"{spot}.tool_use.input: Input should be a valid dictionary")


def _tool_result(block: Json, spot: str) -> None:
    _id(block, "tool_use_id", f"{spot}.tool_result")
    for place, inner in blocks_of(block.get("content")):
        kind, where = inner.get("type"), f"{spot}.tool_result.content.{place}"
        if kind not in ("text", "image"):
            raise Refused(f"{where}: Input tag '{kind}' found using 'type' is not expected")
        _BLOCK_RULES[kind](inner, where)


def _thinking(block: Json, spot: str) -> None:
    kind = str(block["type"])
    for key in ("thinking", "signature") if kind == "thinking" else ("data",):
        _string(block, key, f"{spot}.{kind}")
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


def joined(messages: list[Json]) -> list[tuple[int, str, list[Json]]]:
    """Return the turns of a conversation: neighbours of one role are one turn, as Anthropic reads them.

    Each turn is the index of its first message, its role, and its blocks; text alone is one block.
    """
    turns: list[tuple[int, str, list[Json]]] = []
    for index, message in enumerate(messages):
        role, content = str(message["role"]), message["content"]
        blocks = [block for _, block in blocks_of(content)] or [{"type": "text", "text": content}]
        if turns and turns[-1][1] == role:
            turns[-1][2].extend(blocks)
        else:
            turns.append((index, role, blocks))
    return turns


def _pairing(turns: list[tuple[int, str, list[Json]]]) -> None:
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
        if len({*known, *calls}) < len(known) + len(calls):
            raise Refused("messages: `tool_use` ids must be unique")
        known.update(calls)


def _results(index: int, blocks: list[Json], calling: int, calls: list[str]) -> None:
    first: list[str] = []  # results before anything else
    answered: set[str] = set()
    for place, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        call_id, where = str(block["tool_use_id"]), f"messages.{index}.content.{place}"
        if call_id not in calls:
            words = "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            raise Refused(f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. {words}")
        if call_id in answered:
            words = "each tool_use must have a single result. Found multiple `tool_result` blocks with id"
            raise Refused(f"{where}: {words}: {call_id}")
        answered.add(call_id)
        if len(answered) == place + 1:
            first.append(call_id)
    if missing := [call_id for call_id in calls if call_id not in first]:
        words = "`tool_use` ids were found without `tool_result` blocks immediately after"
        advice = "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        raise Refused(f"messages.{calling}: {words}: {', '.join(missing)}. {advice}")


def _breakpoints(body: Json) -> None:
    controls = [block["cache_control"] for block in cacheable(body) if block.get("cache_control") is not None]
    for control in controls:
        given = as_mapping(control) or {}
        if given.get("type") != "ephemeral" or given.get("ttl", "5m") not in ("5m", "1h"):
            raise Refused("cache_control: Input should be {'type': 'ephemeral'}, with a ttl of '5m' or '1h'")
    if len(controls) > MOST_BREAKPOINTS:
        words = f"A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided"
        raise Refused(f"{words}. Found {len(controls)}.")


def cacheable(body: Json) -> Iterator[Json]:
    """Yield the parts of a request that may carry a breakpoint, in the order of the prefix: tools, system, messages."""
    yield from (as_mapping(tool) or {} for tool in as_list(body.get("tools")) or ())
    yield from (block for _, block in blocks_of(body.get("system")))
    for item in as_list(body.get("messages")) or ():
        yield from (block for _, block in blocks_of((as_mapping(item) or {}).get("content")))
