"""Sessions as Codex keeps them: a rollout, a JSONL file below ``~/.codex/sessions``, an item in each line.

A line is ``{timestamp, type, payload}``; the earliest versions wrote the payloads alone. The items of an answer (texts,
reasoning, calls) become one message. Of texts in the name of the user, those that Codex itself wrote are marked so.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .conversation import BY_A_PROGRAM, Conversation, lines_of, mapping, text_in, with_metadata

_LINES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_ITEMS = ("message", "reasoning", *_CALLS, *_OUTPUTS)  # no sets: a type may be any JSON
_OF_CODEX = ("<environment_context>", "<user_instructions>", "<turn_aborted>", "# AGENTS.md instructions")


def is_codex(lines: Iterable[Any]) -> bool:
    """True if one of the first lines is one of a rollout."""
    return any(
        (line := mapping(one)) is not None and line.get("type") in _LINES and mapping(line.get("payload")) is not None
        for one in lines
    )


def read_codex(lines: Iterable[Any]) -> Conversation:
    made = Conversation()
    model: str | None = None
    for one in lines:
        line = mapping(one) or {}
        payload = mapping(line.get("payload"))
        if line.get("type") == "turn_context" and payload is not None:
            model = str(payload.get("model") or "") or model
        item = payload if line.get("type") == "response_item" else line if line.get("type") in _ITEMS else None
        if item is None or item.get("type") not in _ITEMS:
            kind = line.get("type") if item is None else item.get("type")
            made.left_out[lines_of(kind)] += kind not in ("session_meta", "turn_context")
        else:
            _add(made, item, line.get("timestamp"), model)
    made.left_out = +made.left_out
    return made


def _add(made: Conversation, item: Mapping[str, Any], timestamp: Any, model: str | None) -> None:
    kind, role = str(item["type"]), str(item.get("role"))
    name = str(item.get("call_id") or item.get("id") or "")
    if kind in _OUTPUTS:
        output = item.get("output")
        if (wrapped := mapping(output)) is not None:  # once outputs were objects with `content`
            output = wrapped.get("content", output)
        content = text_in(made, output)
        made.messages.append(
            with_metadata({"role": "tool", "tool_call_id": name, "content": content}, timestamp=timestamp)
        )
    elif kind == "message" and role != "assistant":
        text = text_in(made, item.get("content"))
        message: dict[str, Any] = {"role": role if role in ("system", "developer") else "user", "content": text}
        if text.lstrip().startswith(_OF_CODEX):
            message["metadata"] = dict(BY_A_PROGRAM)
        made.messages.append(with_metadata(message, timestamp=timestamp))
    elif kind == "reasoning":
        made.left_out["texts of reasoning"] += 1
    else:
        if not made.messages or made.messages[-1]["role"] != "assistant":
            answer: dict[str, Any] = {"role": "assistant", "content": []}
            made.messages.append(with_metadata(answer, timestamp=timestamp, model=model))
        if kind == "message":
            block = {"type": "text", "text": text_in(made, item.get("content"))}
        else:
            given = item.get(_CALLS[kind])
            called = {
                "name": str(item.get("name") or "shell"),
                "input": given if kind == "function_call" else {"input": given},
            }
            block = {"type": "tool_use", "id": name, **called}
        made.messages[-1]["content"].append(block)
