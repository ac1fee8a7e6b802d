"""Read the calls, results and texts of one message dict, whatever its shape.

Kernel loops, OpenAI and Anthropic write the same three things differently, and recordings mix the spellings. Here they
are read, never judged and never changed: `checker` judges. Nothing is imported from the core, because what is read
here is used to check the core.

| thing | kernel | OpenAI | Anthropic |
| --- | --- | --- | --- |
| call | `tool_calls[] {id, tool, arguments: dict}` and a `tool_call` block of the same id | `tool_calls[] {id, type, function}` | `tool_use` block |
| result | `role: tool`, `tool_call_id`, or a `tool_result` block with `output` | `role: tool`, `tool_call_id` | `tool_result` block in a user message |
"""  # noqa: E501 - a table row is one line

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

Message = dict[str, Any]
"""A message as the kernel hands it round: a plain dict of JSON data."""

CALL_BLOCKS = frozenset({"tool_call", "tool_use"})
THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking"})
SYSTEM_ROLES = frozenset({"system", "developer"})
INJECTED_SOURCES = frozenset({"hook", "context-compaction"})

_REMINDER = re.compile(r"\s*<system-reminder\b.*</system-reminder>\s*", re.DOTALL)
_REMINDERS = re.compile(r"\s*<system-reminders\b.*</system-reminders>\s*", re.DOTALL)  # an envelope of them


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call as written; fields hold whatever was there, wrong types included."""

    id: Any
    name: Any
    arguments: Any
    shape: Literal["openai", "kernel", "block"]

    def input(self) -> dict[str, Any] | None:
        """Return the arguments as a dict; `None` when they are not a JSON object."""
        value = self.arguments
        if isinstance(value, str):
            from json import loads

            try:
                value = loads(value)
            except ValueError:
                return None
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class Result:
    """One tool result as written. `block` is its place in the content, `None` for a whole message."""

    id: Any
    content: Any
    block: int | None


def as_mapping(value: object) -> Mapping[str, Any] | None:
    """Return the value when it is a dict, else `None`."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any] | None:
    """Return the value when it is a list or tuple, else `None`."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, (list, tuple)) else None


def blocks_of(content: object) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the content blocks with their places; none when the content is text or absent."""
    if not isinstance(content, (list, tuple)):
        return []
    items = cast("Sequence[object]", content)
    return [(place, block) for place, item in enumerate(items) if (block := as_mapping(item)) is not None]


def listed_calls(message: Mapping[str, Any]) -> list[Call]:
    """Return the entries of `tool_calls`, in order, duplicates included."""
    found: list[Call] = []
    for item in as_list(message.get("tool_calls")) or []:
        entry = as_mapping(item)
        if entry is None:
            continue
        function = as_mapping(entry.get("function"))
        if function is not None:
            found.append(Call(entry.get("id"), function.get("name"), function.get("arguments"), "openai"))
        else:
            name = entry.get("tool", entry.get("name"))
            found.append(Call(entry.get("id"), name, entry.get("arguments"), "kernel"))
    return found


def block_calls(message: Mapping[str, Any]) -> list[Call]:
    """Return the `tool_call` and `tool_use` blocks of the content, in order, duplicates included."""
    return [
        Call(block.get("id"), block.get("name"), block.get("input", block.get("arguments")), "block")
        for _, block in blocks_of(message.get("content"))
        if block.get("type") in CALL_BLOCKS
    ]


def calls_of(message: Mapping[str, Any]) -> list[Call]:
    """Return all calls of a message; the same id in `tool_calls` and in a content block is one call."""
    listed = listed_calls(message)
    known = {call.id for call in listed if isinstance(call.id, str)}
    return listed + [call for call in block_calls(message) if call.id not in known]


def results_of(message: Mapping[str, Any]) -> list[Result]:
    found = [
        Result(block.get("tool_call_id", block.get("tool_use_id")), block.get("output", block.get("content")), place)
        for place, block in blocks_of(message.get("content"))
        if block.get("type") == "tool_result"
    ]
    if message.get("role") == "tool":
        own = message.get("tool_call_id")
        if own is not None or not found:
            found = [result for result in found if result.id != own]
            found.insert(0, Result(own, message.get("content"), None))
    return found


def texts_of(content: object) -> Iterator[str]:
    """Every piece of text a content shows, tool results included; not thinking, not call arguments."""
    if isinstance(content, str):
        yield content
        return
    for _, block in blocks_of(content):
        kind = block.get("type")
        text = block.get("text")
        if kind == "tool_result":
            yield from texts_of(block.get("output", block.get("content")))
        elif isinstance(text, str):
            yield text


def text_of(content: object) -> str:
    return "\n\n".join(text for text in texts_of(content) if text)


def is_human(message: Mapping[str, Any]) -> bool:
    """True if a human wrote this message.

    Injected messages bear `metadata.ephemeral`, or a `metadata.source` of a hook or a compaction; a message that only
    carries tool results, or only a `<system-reminder>`, is no person's either.
    """
    if message.get("role") != "user":
        return False
    metadata = as_mapping(message.get("metadata")) or {}
    if metadata.get("ephemeral") is True or metadata.get("source") in INJECTED_SOURCES:
        return False
    if metadata.get("amplifier_public_reference_only") is True:
        return False
    if (as_mapping(metadata.get("amplifier_input")) or {}).get("kind") == "service":
        return False
    content = message.get("content")
    if blocks := blocks_of(content):
        kinds = {block.get("type") for _, block in blocks}
        if kinds == {"tool_result"}:
            return False
        if kinds - {"text", "tool_result"}:
            return True  # an image or a file is a person's even without a word
    text = "\n\n".join(
        piece
        for piece in ([content] if isinstance(content, str) else [b.get("text") for _, b in blocks_of(content)])
        if isinstance(piece, str)
    )
    return bool(text.strip()) and not _REMINDER.fullmatch(text) and not _REMINDERS.fullmatch(text)


def well_formed(value: Any) -> Any:
    """Return the value with lone surrogates replaced by U+FFFD: the kernel's engine takes well-formed text only."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {well_formed(key): well_formed(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list):
        return [well_formed(item) for item in cast("list[Any]", value)]
    return value
