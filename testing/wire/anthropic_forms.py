"""Messages as JSON: a request as the kernel's `ChatRequest`, a reply as a message, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..caches.bill import Bill
from ..checks.message_shapes import as_list, as_mapping, blocks_of
from .openai_forms import output_tokens
from .replies import Reply

Json = dict[str, Any]


def chat_request(body: Mapping[str, Any]) -> Any:
    from amplifier_core.message_models import ChatRequest

    tools = [as_mapping(tool) or {} for tool in as_list(body.get("tools")) or ()]
    output = as_mapping(body.get("output_config")) or {}
    return ChatRequest.model_validate(
        {
            "messages": list(_kernel_messages(body)),
            "tools": [
                {"name": tool["name"], "description": tool.get("description"), "parameters": tool["input_schema"]}
                for tool in tools
            ]
            or None,
            "max_output_tokens": body["max_tokens"],
            "model": body["model"],
            "reasoning_effort": output.get("effort"),
        }
    )


def _kernel_messages(body: Mapping[str, Any]) -> Iterator[Json]:
    system = body.get("system")
    if system:
        text = system if isinstance(system, str) else "\n\n".join(str(block["text"]) for _, block in blocks_of(system))
        yield {"role": "system", "content": text}
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, str):
            yield {"role": message["role"], "content": content}
            continue
        blocks: list[Json] = []
        for _, block in blocks_of(content):
            if block["type"] == "tool_result":
                yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _text(block.get("content"))}
            elif block["type"] == "tool_use":
                blocks.append({"type": "tool_call", "id": block["id"], "name": block["name"], "input": block["input"]})
            else:
                blocks.append({key: value for key, value in block.items() if key != "cache_control"})
        if blocks:
            yield {"role": message["role"], "content": blocks}


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text") or "") for _, block in blocks_of(content))


def message(body: Mapping[str, Any], reply: Reply, bill: Bill, count: Callable[[str], int], number: int) -> Json:
    """Return a reply as a message.

    Args:
        count: text to tokens.
    """
    answer = reply.answer
    content = [_block(block) for block in answer.blocks if block.get("type") != "text" or block.get("text")]
    content += [
        {"type": "tool_use", "id": call.id or f"toolu_{number}_{place}", "name": call.name, "input": call.arguments}
        for place, call in enumerate(answer.calls)
    ]
    refused = reply.finish == "refusal"
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": _stop_reason(reply),
        "stop_sequence": None,
        "stop_details": {"type": "refusal", "category": None, "explanation": None} if refused else None,
        "usage": {
            "input_tokens": bill.fresh,
            "cache_read_input_tokens": bill.read,
            "cache_creation_input_tokens": bill.written,
            "output_tokens": output_tokens(answer, count),
        },
    }


def _block(block: Mapping[str, Any]) -> Json:
    if block.get("type") == "thinking":
        return {"type": "thinking", "thinking": block["thinking"], "signature": block.get("signature") or "c2lnbmVk"}
    return dict(block)


def _stop_reason(reply: Reply) -> str:
    if reply.finish != "stop":
        return {"length": "max_tokens", "refusal": "refusal"}[reply.finish]
    return "tool_use" if reply.answer.calls else "end_turn"


def error(text: str, kind: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": None}
