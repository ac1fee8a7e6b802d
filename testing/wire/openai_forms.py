"""Chat Completions as JSON: a request as the kernel's `ChatRequest`, a reply as a completion."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..caches.bill import Bill
from ..checks.message_shapes import as_mapping, blocks_of, text_of
from ..replay.answer_policies import Answer
from .replies import Reply

Json = dict[str, Any]


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


def completion(body: Mapping[str, Any], reply: Reply, bill: Bill, count: Callable[[str], int], number: int) -> Json:
    """Return a reply as a chat completion; `count` is text to tokens."""
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
    message = {"role": "assistant", "content": None if refused else text or None, "refusal": text if refused else None}
    finish = "length" if reply.finish == "length" else "tool_calls" if calls and not refused else "stop"
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
