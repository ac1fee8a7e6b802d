"""Chat Completions: requests and answers of the kernel as JSON, for the client and for the service."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from ..caches.bill import Bill
from ..checks.message_shapes import Message, as_mapping, blocks_of, calls_of, results_of, text_of
from ..replay.answer_policies import Answer
from ..replay.one_model import dump, response_of

Json = dict[str, Any]

# -- the client --------------------------------------------------------------------------------------------------------


def connect(base_url: str, key: str) -> tuple[Any, Callable[..., Awaitable[Any]]]:
    """Return the client of the library `openai`, and its method that takes a body."""
    import openai

    client = openai.AsyncOpenAI(api_key=key, base_url=f"{base_url}/v1", max_retries=0)
    return client, client.chat.completions.create


def request_body(request: Any, model: str, most: int) -> Json:
    """Return a `ChatRequest` as the body of a request for at most so many tokens."""
    body: Json = {
        "model": model,
        "messages": [sent for message in request.messages for sent in _messages(dump(message))],
        "max_completion_tokens": most,
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": one.name, "description": one.description or "", "parameters": one.parameters},
            }
            for one in request.tools
        ]
    given = {key: getattr(request, key) for key in ("temperature", "reasoning_effort")}
    return body | {key: value for key, value in given.items() if value is not None}


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


def response(completion: Any) -> Any:
    choice = completion.choices[0]
    message, usage = choice.message, completion.usage
    text = message.content or message.refusal or ""
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    for call in message.tool_calls or ():
        arguments = json.loads(call.function.arguments or "{}")
        blocks.append({"type": "tool_call", "id": call.id, "name": call.function.name, "input": arguments})
    details = usage.prompt_tokens_details
    read = (details and details.cached_tokens) or 0
    finish = "refusal" if message.refusal else choice.finish_reason
    # What is written to the cache is part of the input, unlike Anthropic's: a figure here would count it twice.
    return response_of(blocks, finish, usage.prompt_tokens, usage.completion_tokens, read=read)


# -- the service -------------------------------------------------------------------------------------------------------

ARGUMENTS = frozenset({"model", "messages", "tools", "max_completion_tokens", "temperature", "reasoning_effort"})


def refusals(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what OpenAI refuses beside what all providers do (request model of its client library, types/chat)."""
    for message in body["messages"]:
        kinds = [part.get("type") for _, part in blocks_of(message.get("content"))]
        if "image_url" in kinds and message["role"] != "user":
            yield f"Image URLs are only allowed for messages with role 'user', not with role '{message['role']}'."


def chat_request(body: Mapping[str, Any]) -> Any:
    from amplifier_core.message_models import ChatRequest

    functions = [tool["function"] for tool in body.get("tools") or ()]
    keys = ("name", "description", "parameters")
    return ChatRequest.model_validate(
        {
            "messages": [_kernel_message(message) for message in body["messages"]],
            "tools": [{key: function.get(key) for key in keys} for function in functions] or None,
            "max_output_tokens": body.get("max_completion_tokens"),
            "model": body["model"],
        }
    )


def _kernel_message(message: Mapping[str, Any]) -> Json:
    content = message.get("content")
    if message["role"] == "tool":
        return {"role": "tool", "tool_call_id": message["tool_call_id"], "content": text_of(content)}
    calls = [
        {
            "type": "tool_call",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": dict(as_mapping(json.loads(call["function"]["arguments"])) or {}),
        }
        for call in message.get("tool_calls") or ()
    ]
    if not calls and isinstance(content, str):
        return {"role": message["role"], "content": content}
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    for _, part in blocks_of(content):
        if part["type"] == "image_url":
            part = {"type": "image", "source": {"type": "url", "url": part["image_url"]["url"]}}
        blocks.append(dict(part))
    return {"role": message["role"], "content": [*blocks, *calls]}


def answer_body(body: Mapping[str, Any], answer: Answer, bill: Bill, count: Callable[[str], int], number: int) -> Json:
    """Return an answer as a chat completion; `count` is text to tokens."""
    text = answer.text
    calls = [
        {
            "id": call.id or f"call_{number}_{place}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for place, call in enumerate(answer.calls)
    ]
    refused = answer.finish == "refusal"
    message = {"role": "assistant", "content": None if refused else text or None, "refusal": text if refused else None}
    finish = "length" if answer.finish == "length" else "tool_calls" if calls and not refused else "stop"
    written = output_tokens(answer, count)
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [
            {"index": 0, "message": message | ({"tool_calls": calls} if calls else {}), "finish_reason": finish}
        ],
        "usage": {
            "prompt_tokens": bill.tokens,
            "completion_tokens": written,
            "total_tokens": bill.tokens + written,
            "prompt_tokens_details": {"cached_tokens": bill.read},
        },
    }


def output_tokens(answer: Answer, count: Callable[[str], int]) -> int:
    """Return the tokens of an answer: its texts and thinking, names and arguments of its calls."""
    texts = [str(block.get("text") or block.get("thinking") or "") for block in answer.blocks]
    texts += [f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}" for call in answer.calls]
    return sum(count(text) for text in texts if text)


def error(message: str, kind: str, code: str | None) -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
