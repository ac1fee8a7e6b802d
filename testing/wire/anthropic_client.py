"""The client library `anthropic` behind the kernel's types, with breakpoints where provider-anthropic places them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import anthropic

from ..caches.anthropic import breakpoints
from ..caches.wire import WireMessage, shape
from ..checks.message_shapes import SYSTEM_ROLES, Message, as_mapping, blocks_of, calls_of, results_of, text_of
from ..replay.provider import dump
from .errors import kernel_error
from .settings import TIMEOUT, Settings

Json = dict[str, Any]

BREAKPOINT: Mapping[str, str] = {"type": "ephemeral"}


class AnthropicClient:
    """Calls Messages."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = anthropic.AsyncAnthropic(
            api_key=settings.api_key,
            base_url=settings.base_url,
            max_retries=0,
        )

    async def complete(self, request: Any) -> Any:
        body = self.body(request)
        try:
            create: Any = self._client.messages.create  # its overloads know no plain dict
            message = await create(**body, timeout=request.timeout or TIMEOUT)
        except anthropic.AnthropicError as problem:
            raise kernel_error(problem, self._settings.name, body["model"]) from problem
        return _response(message)

    def body(self, request: Any) -> Json:
        messages = [dump(message) for message in request.messages]
        system = "\n\n".join(
            text for one in messages if one["role"] in SYSTEM_ROLES if (text := text_of(one["content"]))
        )
        body: Json = {
            "model": request.model or self._settings.model,
            "max_tokens": min(
                request.max_output_tokens or self._settings.max_output_tokens, self._settings.max_output_tokens
            ),
            "messages": _conversation([one for one in messages if one["role"] not in SYSTEM_ROLES]),
        }
        if system:
            body["system"] = [{"type": "text", "text": system, "cache_control": BREAKPOINT}]
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

    async def close(self) -> None:
        await self._client.close()


def _conversation(messages: list[Message]) -> list[Json]:
    sent: list[tuple[Json, WireMessage]] = []
    for is_result, group in groupby(messages, key=lambda message: message["role"] == "tool"):
        rows = list(group)
        for several in [rows] if is_result else [[row] for row in rows]:
            blocks = [block for row in several for block in _blocks(row)]
            if blocks:
                role = "assistant" if several[-1]["role"] == "assistant" else "user"
                sent.append(({"role": role, "content": blocks}, WireMessage(shape(several[-1]), 0, 0, 0)))
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


def _response(message: Any) -> Any:
    from amplifier_core.message_models import ChatResponse

    blocks: list[Json] = []
    calls: list[Json] = []
    for block in message.content:
        if block.type == "tool_use":
            calls.append({"id": block.id, "name": block.name, "arguments": dict(as_mapping(block.input) or {})})
            blocks.append({"type": "tool_call", "id": block.id, "name": block.name, "input": calls[-1]["arguments"]})
        elif block.type in ("text", "thinking", "redacted_thinking"):
            blocks.append(block.model_dump(exclude_none=True))
    usage = message.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    given = usage.input_tokens + read  # the kernel's figure: with cache reads, without cache writes
    return ChatResponse.model_validate(
        {
            "content": blocks,
            "tool_calls": calls or None,
            "finish_reason": message.stop_reason,
            "usage": {
                "input_tokens": given,
                "output_tokens": usage.output_tokens,
                "total_tokens": given + written + usage.output_tokens,
                "cache_read_tokens": read,
                "cache_write_tokens": written,
            },
        }
    )
