"""Messages: requests and answers of the kernel as JSON, for the client and for the service.

Breakpoints of the cache are where provider-anthropic places them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from ..caches.anthropic import Shape, breakpoints, shape
from ..caches.bill import Bill
from ..checks.message_shapes import SYSTEM_ROLES, Message, as_mapping, blocks_of, calls_of, results_of, text_of
from ..replay.answer_policies import Answer
from ..replay.one_model import dump, response_of
from .openai_api import output_tokens

Json = dict[str, Any]

BREAKPOINT: Mapping[str, str] = {"type": "ephemeral"}

# -- the client --------------------------------------------------------------------------------------------------------


def connect(base_url: str, key: str) -> tuple[Any, Callable[..., Awaitable[Any]]]:
    """Return the client of the library `anthropic`, and its method that takes a body."""
    import anthropic

    client = anthropic.AsyncAnthropic(api_key=key, base_url=base_url, max_retries=0)
    return client, client.messages.create


def request_body(request: Any, model: str, most: int) -> Json:
    """Return a `ChatRequest` as the body of a request for at most so many tokens."""
    messages = [dump(message) for message in request.messages]
    conversation = _conversation([one for one in messages if one["role"] not in SYSTEM_ROLES])
    body: Json = {"model": model, "max_tokens": most, "messages": conversation}
    texts = [text for one in messages if one["role"] in SYSTEM_ROLES if (text := text_of(one["content"]))]
    if texts:
        body["system"] = [{"type": "text", "text": "\n\n".join(texts), "cache_control": BREAKPOINT}]
    if request.tools:
        body["tools"] = [
            {
                "name": tool.name,
                "description": tool.description or "",
                "input_schema": {"type": "object", **tool.parameters},
            }
            for tool in request.tools
        ]
        body["tools"][-1]["cache_control"] = BREAKPOINT
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.reasoning_effort is not None:
        body["output_config"] = {"effort": request.reasoning_effort}
    return body


def _conversation(messages: list[Message]) -> list[Json]:
    sent: list[tuple[Json, Shape]] = []
    for is_result, group in groupby(messages, key=lambda message: message["role"] == "tool"):
        rows = list(group)
        for several in [rows] if is_result else [[row] for row in rows]:
            blocks = [block for row in several for block in _blocks(row)]
            if blocks:
                role = "assistant" if several[-1]["role"] == "assistant" else "user"
                sent.append(({"role": role, "content": blocks}, shape(several[-1])))
    for index in breakpoints([found for _, found in sent]):
        sent[index][0]["content"][-1]["cache_control"] = BREAKPOINT
    return [message for message, _ in sent]


def _blocks(message: Message) -> Iterator[Json]:
    content = message["content"]
    for result in results_of(message):
        yield {"type": "tool_result", "tool_use_id": result.id, "content": _result(result.content)}
    if message["role"] == "tool":
        return
    if isinstance(content, str) and (content or message["role"] == "user"):  # an empty answer is no message
        yield {"type": "text", "text": content}
    for _, block in blocks_of(content):
        if (known := _block(block)) is not None:
            yield known
    if message["role"] == "assistant":
        for call in calls_of(message):
            yield {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input() or {}}


def _block(block: Mapping[str, Any]) -> Json | None:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": block["text"]} if block["text"] else None
        case "image":
            return {"type": "image", "source": block["source"]}
        case "thinking" if block.get("signature"):
            return {"type": "thinking", "thinking": block["thinking"], "signature": block["signature"]}
        case "redacted_thinking":
            return {"type": "redacted_thinking", "data": block["data"]}
        case _:
            return None


def _result(content: object) -> str | list[Json]:
    if isinstance(content, str):
        return content
    found = [known for _, block in blocks_of(content) if (known := _block(block)) is not None]
    return found or json.dumps(content, ensure_ascii=False, default=str)


def response(message: Any) -> Any:
    blocks: list[Json] = []
    for block in message.content:
        if block.type == "tool_use":
            given = dict(as_mapping(block.input) or {})
            blocks.append({"type": "tool_call", "id": block.id, "name": block.name, "input": given})
        elif block.type in ("text", "thinking", "redacted_thinking"):
            blocks.append(block.model_dump(exclude_none=True))
    usage = message.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    given = usage.input_tokens + read
    return response_of(blocks, message.stop_reason, given, usage.output_tokens, read=read, written=written)


# -- the service -------------------------------------------------------------------------------------------------------

ARGUMENTS = frozenset({"model", "messages", "system", "tools", "max_tokens", "temperature", "output_config"})
MOST_BREAKPOINTS = 4


def refusals(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what Anthropic refuses beside what all providers do, of models from 4.6 on.

    Sources: five breakpoints, anthropics/claude-code#8901; an assistant's message at the end,
    agenticloops-ai/agentic-ai-engineering#43.
    """
    if body["messages"][-1]["role"] != "user":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    contents = [body.get("system"), *(message["content"] for message in body["messages"])]
    parts = [*(body.get("tools") or ()), *(block for content in contents for _, block in blocks_of(content))]
    if sum("cache_control" in part for part in parts) > MOST_BREAKPOINTS:
        yield f"A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided."


def chat_request(body: Mapping[str, Any]) -> Any:
    from amplifier_core.message_models import ChatRequest

    tools = [
        {"name": tool["name"], "description": tool.get("description"), "parameters": tool["input_schema"]}
        for tool in body.get("tools") or ()
    ]
    return ChatRequest.model_validate(
        {
            "messages": list(_kernel_messages(body)),
            "tools": tools or None,
            "max_output_tokens": body["max_tokens"],
            "model": body["model"],
        }
    )


def _kernel_messages(body: Mapping[str, Any]) -> Iterator[Json]:
    if body.get("system"):
        yield {"role": "system", "content": text_of(body["system"])}
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, str):
            yield {"role": message["role"], "content": content}
            continue
        blocks: list[Json] = []
        for _, block in blocks_of(content):
            if block["type"] == "tool_result":
                yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text_of(block.get("content"))}
            elif block["type"] == "tool_use":
                blocks.append({"type": "tool_call", "id": block["id"], "name": block["name"], "input": block["input"]})
            else:
                blocks.append({key: value for key, value in block.items() if key != "cache_control"})
        if blocks:
            yield {"role": message["role"], "content": blocks}


def answer_body(body: Mapping[str, Any], answer: Answer, bill: Bill, count: Callable[[str], int], number: int) -> Json:
    """Return an answer as a message; `count` is text to tokens."""
    content = [
        {**block, "signature": block.get("signature") or "c2lnbmVk"} if block.get("type") == "thinking" else dict(block)
        for block in answer.blocks
        if block.get("type") != "text" or block.get("text")
    ]
    content += [
        {"type": "tool_use", "id": call.id or f"toolu_{number}_{place}", "name": call.name, "input": call.arguments}
        for place, call in enumerate(answer.calls)
    ]
    usual = "tool_use" if answer.calls else "end_turn"
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": {"stop": usual, "length": "max_tokens", "refusal": "refusal"}[answer.finish],
        "stop_sequence": None,
        "usage": {
            "input_tokens": bill.fresh,
            "cache_read_input_tokens": bill.read,
            "cache_creation_input_tokens": bill.written,
            "output_tokens": output_tokens(answer, count),
        },
    }


def error(message: str, kind: str, code: str | None) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": None}
