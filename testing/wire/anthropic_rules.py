"""What Anthropic refuses in the messages of a request, and its words for it.

Sources: the Messages API reference, the request model of the client library `anthropic` (types), and errors as users
report them: calls without results, anthropics/claude-code#7929; results without calls, anthropics/claude-code#18947;
five breakpoints, anthropics/claude-code#8901; an assistant's message at the end,
agenticloops-ai/agentic-ai-engineering#43. The rules are of models from 4.6 on that take no system message in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..checks.message_shapes import as_list, as_mapping, blocks_of
from .problems import IMAGES, NAME, Model, Refused, is_base64

Json = Mapping[str, Any]

ARGUMENTS = ("model", "messages", "system", "tools", "max_tokens", "temperature", "output_config")
BLOCKS = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}
MOST_BREAKPOINTS = 4


def check(body: Json, model: Model) -> None:
    """Check a request.

    Raises:
        Refused: the first rule that it breaks.
    """
    for key in ("model", "messages", "max_tokens"):
        if key not in body:
            raise Refused(f"{key}: Field required")
    if unknown := sorted(set(body) - set(ARGUMENTS)):
        raise Refused(f"{unknown[0]}: Extra inputs are not permitted")
    if body["max_tokens"] > (most := model.max_output_tokens):
        words = f"which is the maximum allowed number of output tokens for {model.id}"
        raise Refused(f"max_tokens: {body['max_tokens']} > {most}, {words}")
    for place, block in blocks_of(body.get("system")):
        _text(block, f"system.{place}", "system")
    for place, tool in enumerate(as_list(body.get("tools")) or ()):
        _matches(tool, "name", f"tools.{place}.custom")
    messages = _messages(body)
    for index, message in enumerate(messages):
        _content(message, index)
    _pairing(messages)
    _breakpoints(body)


def refuse_long(body: Json, tokens: int, model: Model) -> None:
    """Raise `Refused` where a request of so many tokens, or with its answer, exceeds the window."""
    if tokens > (window := model.context_window):
        raise Refused(f"prompt is too long: {tokens} tokens > {window} maximum")
    if tokens + body["max_tokens"] > window:
        words = f"{tokens} + {body['max_tokens']} > {window}, decrease input length or `max_tokens` and try again"
        raise Refused(f"input length and `max_tokens` exceed context limit: {words}")


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
        _block(block, kind, f"{spot}.{kind}")


def _block(block: Json, kind: str, spot: str) -> None:
    match kind:
        case "text":
            _text(block, spot, "messages")
        case "image":
            _image(as_mapping(block.get("source")) or {}, f"{spot}.source")
        case "tool_use":
            _matches(block, "id", spot)
            if not 1 <= len(str(block.get("name") or "")) <= 200:
                raise Refused(f"{spot}.name: String should have at most 200 characters")
            if as_mapping(block.get("input")) is None:
                raise Refused(f"{spot}.input: Input should be a valid dictionary")
        case "tool_result":
            _matches(block, "tool_use_id", spot)
            for place, inner in blocks_of(block.get("content")):
                inner_kind, where = str(inner.get("type")), f"{spot}.content.{place}"
                if inner_kind not in ("text", "image"):
                    raise Refused(f"{where}: Input tag '{inner_kind}' found using 'type' is not expected")
                _block(inner, inner_kind, where)
        case "thinking" | "redacted_thinking":
            for key in ("thinking", "signature") if kind == "thinking" else ("data",):
                if not isinstance(block.get(key), str):
                    raise Refused(f"{spot}.{key}: Field required")
            if "cache_control" in block:
                raise Refused(f"{spot}.cache_control: Extra inputs are not permitted")
        case _:
            pass


def _text(block: Json, spot: str, part: str) -> None:
    text = block.get("text")
    if not isinstance(text, str):
        raise Refused(f"{spot}.text: Field required")
    if not text and block.get("cache_control"):
        raise Refused(f"{spot}.text: cache_control cannot be set for empty text blocks")
    if not text:
        raise Refused(f"{part}: text content blocks must be non-empty")
    if not text.strip():
        raise Refused(f"{part}: text content blocks must contain non-whitespace text")


def _image(source: Json, where: str) -> None:
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return
    if source.get("type") != "base64":
        raise Refused(f"{where}: Input tag '{source.get('type')}' found using 'type' is not expected")
    if source.get("media_type") not in IMAGES:
        words = "Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
        raise Refused(f"{where}.base64.media_type: {words}")
    if not is_base64(str(source.get("data"))):
        raise Refused(f"{where}.base64: invalid base64 data")


def _matches(holder: Json, key: str, where: str) -> None:
    if NAME.fullmatch(str(holder.get(key) or "")) is None:
        raise Refused(f"{where}.{key}: String should match pattern '^[a-zA-Z0-9_-]+$'")


def turns(messages: list[Json]) -> Iterator[tuple[int, str, list[Json]]]:
    """Yield the turns of a conversation: neighbours of one role are one turn, as Anthropic reads them.

    Each turn is the index of its first message, its role, and its blocks; text alone is one block.
    """
    first, role, turn = 0, "", list[Json]()
    for index, message in enumerate(messages):
        blocks = [block for _, block in blocks_of(message["content"])] or [{"type": "text"}]
        if turn and role != message["role"]:
            yield first, role, turn
            turn = []
        if not turn:
            first, role = index, str(message["role"])
        turn.extend(blocks)
    yield first, role, turn


def _pairing(messages: list[Json]) -> None:
    """Check that the turn after calls begins with one result of each, and that no call id is used twice."""
    known: set[str] = set()
    calls: list[str] = []
    calling = 0
    for index, role, blocks in turns(messages):
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
    parts = [*(as_list(body.get("tools")) or ()), *(block for _, block in blocks_of(body.get("system")))]
    parts += [block for message in body["messages"] for _, block in blocks_of(message["content"])]
    found = sum(part.get("cache_control") is not None for part in parts)
    if found > MOST_BREAKPOINTS:
        words = f"A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided"
        raise Refused(f"{words}. Found {found}.")
