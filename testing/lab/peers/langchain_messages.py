"""Messages of recordings as LangChain's, and back. What LangChain left alone comes back as it was."""

# Types are checked where no peer is installed.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from ...checks.message_shapes import Message, calls_of
from ..token_scale import TokenScale


def to_langchain(message: Message, number: int) -> BaseMessage:
    """One plain message (`text.plain`), with its number for an id."""
    text, own = str(message.get("content") or ""), str(number)
    match message.get("role"):
        case "system" | "developer":
            return SystemMessage(text, id=own)
        case "assistant":
            calls: list[Any] = [
                {"name": str(call.name), "args": call.input() or {"_": call.arguments}, "id": str(call.id)}
                for call in calls_of(message)
            ]
            return AIMessage(text, id=own, tool_calls=calls)
        case "tool":
            return ToolMessage(text, id=own, tool_call_id=str(message.get("tool_call_id")))
        case _:
            return HumanMessage(text, id=own)


class Turned:
    """Keeps the recorded messages by number, and weighs LangChain's."""

    def __init__(self, scale: TokenScale) -> None:
        self._scale = scale
        self._recorded: list[Message] = []
        self._weights: list[int] = []

    def take(self, message: Message) -> BaseMessage:
        """Turn one, and remember it."""
        self._recorded.append(message)
        self._weights.append(self._scale.tokens(message))
        return to_langchain(message, len(self._recorded) - 1)

    def back(self, messages: Iterable[BaseMessage]) -> list[Message]:
        """As they are sent."""
        return [self._one(message) for message in messages]

    def count(self, messages: Sequence[BaseMessage]) -> int:
        """LangChain's `token_counter`: exact tokens of what would be sent."""
        return sum(self._weight(message) for message in messages)

    def _weight(self, message: BaseMessage) -> int:
        place = int(message.id) if message.id and message.id.isdigit() else None
        if place is not None and self._recorded[place]["content"] == message.content:
            return self._weights[place]
        return self._scale.tokens(self._one(message))

    def _one(self, message: BaseMessage) -> Message:
        recorded = self._recorded[int(message.id)] if message.id and message.id.isdigit() else None
        text = message.content if isinstance(message.content, str) else json.dumps(message.content)
        if recorded is not None:
            return recorded if recorded.get("content") == text else {**recorded, "content": text}
        role = {"ai": "assistant", "human": "user"}.get(message.type, message.type)
        return {"role": role, "content": text}
