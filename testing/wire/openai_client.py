"""The client library `openai` behind the kernel's types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import openai

from ..checks.message_shapes import Message, as_mapping, blocks_of, calls_of, results_of, text_of
from ..replay.provider import dump
from .errors import kernel_error
from .settings import TIMEOUT, Settings

Json = dict[str, Any]


class OpenAIClient:
    """Calls Chat Completions."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = openai.AsyncOpenAI(
            api_key=settings.api_key,
            base_url=f"{settings.base_url}/v1",
            max_retries=0,
        )

    async def complete(self, request: Any) -> Any:
        body = self.body(request)
        try:
            create: Any = self._client.chat.completions.create  # its overloads know no plain dict
            completion = await create(**body, timeout=request.timeout or TIMEOUT)
        except openai.OpenAIError as problem:
            raise kernel_error(problem, self._settings.name, body["model"]) from problem
        return _response(completion)

    def body(self, request: Any) -> Json:
        body: Json = {
            "model": request.model or self._settings.model,
            "messages": [sent for message in request.messages for sent in _messages(dump(message))],
            "max_completion_tokens": min(
                request.max_output_tokens or self._settings.max_output_tokens, self._settings.max_output_tokens
            ),
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description or "",
                        "parameters": tool.parameters,
                    },
                }
                for tool in request.tools
            ]
        for key in ("temperature", "reasoning_effort"):
            if (value := getattr(request, key)) is not None:
                body[key] = value
        return body

    async def close(self) -> None:
        await self._client.close()


def _messages(message: Message) -> Iterator[Json]:
    role, content = message["role"], message["content"]
    for result in results_of(message):
        shown = result.content if isinstance(result.content, str) else _shown(result.content)
        yield {"role": "tool", "tool_call_id": result.id, "content": shown}
    if role == "tool":
        return
    if role == "assistant":
        calls = [_call(call.id, call.name, call.input()) for call in calls_of(message)]
        text = text_of(content)
        yield {"role": role, "content": text or (None if calls else ""), **({"tool_calls": calls} if calls else {})}
        return
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    parts = [_part(block) for _, block in blocks_of(content) if block.get("type") in ("text", "image")]
    if parts:
        yield {"role": role, "content": parts}


def _shown(content: object) -> str:
    return text_of(content) if blocks_of(content) else json.dumps(content, ensure_ascii=False, default=str)


def _call(call_id: str, name: str, arguments: Mapping[str, Any] | None) -> Json:
    text = json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def _part(block: Mapping[str, Any]) -> Json:
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    source = as_mapping(block.get("source")) or {}
    url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
    return {"type": "image_url", "image_url": {"url": url}}


def _response(completion: Any) -> Any:
    from amplifier_core.message_models import ChatResponse

    choice = completion.choices[0]
    message, usage = choice.message, completion.usage
    text = message.content or message.refusal or ""
    calls = [
        {"id": call.id, "name": call.function.name, "arguments": json.loads(call.function.arguments or "{}")}
        for call in message.tool_calls or ()
    ]
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "tool_call", "id": c["id"], "name": c["name"], "input": c["arguments"]} for c in calls]
    details = usage.prompt_tokens_details
    return ChatResponse.model_validate(
        {
            "content": blocks,
            "tool_calls": calls or None,
            "finish_reason": "refusal" if message.refusal else choice.finish_reason,
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "output_tokens": usage.completion_tokens,
                "total_tokens": usage.total_tokens,
                "cache_read_tokens": (details and details.cached_tokens) or 0,
                # Part of the input, unlike Anthropic's: a figure here would count them twice.
                "cache_write_tokens": 0,
            },
        }
    )
