"""Sessions as Claude Code keeps them: a JSONL file below ``~/.claude/projects``, an event in each line.

A model's answer takes a line for each of its blocks, which share the id of the answer; they become one message. Lines
that only the program itself uses are left out, and those of side conversations (sub-agents) too.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .conversation import BY_A_PROGRAM, Conversation, items, lines_of, mapping, with_metadata

_ROLES = ("user", "assistant")


def is_claude_code(lines: Iterable[Any]) -> bool:
    """True if one of the first lines is an event of Claude Code."""
    return any((line := mapping(one)) is not None and "sessionId" in line and "type" in line for one in lines)


def read_claude_code(lines: Iterable[Any]) -> Conversation:
    made = Conversation()
    newest = ""  # id of the answer that the last message is part of
    for one in lines:
        line = mapping(one) or {}
        message = mapping(line.get("message"))
        kind = line.get("type")
        if kind not in _ROLES or message is None:
            made.left_out[lines_of(kind)] += 1
        elif line.get("isSidechain"):
            made.left_out["lines of side conversations"] += 1
        else:
            answer = str(message.get("id") or "")
            blocks = items(message.get("content"))
            if kind == "assistant" and answer and answer == newest and blocks:
                made.messages[-1]["content"] += blocks
            else:
                made.messages.append(_message(line, message, blocks))
                newest = answer if kind == "assistant" and blocks else ""
    return made


def _message(line: Mapping[str, Any], message: Mapping[str, Any], blocks: list[Any]) -> dict[str, Any]:
    made = {"role": line["type"], "content": [*blocks] if blocks else message.get("content") or ""}
    if line.get("isMeta") or line.get("isCompactSummary"):
        made["metadata"] = dict(BY_A_PROGRAM)
    return with_metadata(
        made,
        timestamp=line.get("timestamp"),
        model=message.get("model"),
        usage=message.get("usage"),
        stop_reason=message.get("stop_reason"),
    )
