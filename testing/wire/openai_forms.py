"""Chat Completions as JSON: a request as the kernel's `ChatRequest`, a reply as a completion, errors."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..caches.bill import Bill
from ..checks.message_shapes import as_list, as_mapping, blocks_of
from ..replay.answer_policies import Answer
from .replies import Reply

Json = dict[str, Any]


def chat_request(body: Mapping[str, Any]) -> Any:
    from amplifier_core.message_models import ChatRequest

    tools = [as_mapping(tool) or {} for tool in as_list(body.get("tools")) or ()]
    return ChatRequest.model_validate(
        {
            "messages": [_kernel_message(message) for message in body["messages"]],
            "tools": [_kernel_tool(tool["function"]) for tool in tools] or None,
            "max_output_tokens": body.get("max_completion_tokens"),
            "model": body["model"],
            "reasoning_effort": body.get("reasoning_effort"),
        }
    )


def _kernel_tool(function: Mapping[str, Any]) -> Json:
    return {
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function.get("parameters") or {},
    }


def _kernel_message(message: Mapping[str, Any]) -> Json:
    content = message.get("content")
    if message["role"] == "tool":
        return {"role": "tool", "tool_call_id": message["tool_call_id"], "content": _text(content)}
    calls = [
        {
            "type": "tool_call",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": _arguments(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls") or ()
    ]
    if not calls and isinstance(content, str):
        return {"role": message["role"], "content": content}
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    blocks += [_block_of(part) for _, part in blocks_of(content)]
    return {"role": message["role"], "content": [*blocks, *calls]}


def _block_of(part: Mapping[str, Any]) -> Json:
    if part["type"] == "image_url":
        return {"type": "image", "source": {"type": "url", "url": part["image_url"]["url"]}}
    return {"type": "text", "text": str(part.get("text") or "")}


def _arguments(text: str) -> Json:
    try:
        return dict(as_mapping(json.loads(text)) or {})
    except ValueError:
        return {"_malformed": text}


def _text(content: object) -> str:
    return content if isinstance(content, str) else "\n".join(str(part.get("text")) for _, part in blocks_of(content))


def completion(body: Mapping[str, Any], reply: Reply, bill: Bill, count: Callable[[str], int], number: int) -> Json:
    """Return a reply as a chat completion.

    Args:
        count: text to tokens.
    """
    answer, text = reply.answer, reply.answer.text
    calls = [
        {
            "id": call.id or f"call_{number}_{place}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for place, call in enumerate(answer.calls)
    ]
    refused = reply.finish == "refusal"
    message: Json = {"role": "assistant", "content": None if refused or not text else text}
    message["refusal"] = text if refused else None
    if calls:
        message["tool_calls"] = calls
    written = output_tokens(answer, count)
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}],
        "usage": {
            "prompt_tokens": bill.tokens,
            "completion_tokens": written,
            "total_tokens": bill.tokens + written,
            "prompt_tokens_details": {"cached_tokens": bill.read, "cache_write_tokens": bill.written},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def output_tokens(answer: Answer, count: Callable[[str], int]) -> int:
    """Return the tokens of an answer: its texts and thinking, names and arguments of its calls."""
    texts = [str(block.get("text") or block.get("thinking") or "") for block in answer.blocks]
    texts += [f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}" for call in answer.calls]
    return sum(count(text) for text in texts if text)


def _finish(reply: Reply) -> str:
    if reply.finish == "length":
        return "length"
    return "tool_calls" if reply.answer.calls and reply.finish == "stop" else "stop"


def error(message: str, kind: str, param: str | None, code: str | None) -> Json:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
