"""Messages as JSON: a request as the kernel's `ChatRequest`, a reply as a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..caches.bill import Bill
from ..checks.message_shapes import blocks_of, text_of
from .openai_forms import output_tokens
from .replies import Reply

Json = dict[str, Any]


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


def message(body: Mapping[str, Any], reply: Reply, bill: Bill, count: Callable[[str], int], number: int) -> Json:
    """Return a reply as a message; `count` is text to tokens."""
    answer = reply.answer
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
        "stop_reason": {"stop": usual, "length": "max_tokens", "refusal": "refusal"}[reply.finish],
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
