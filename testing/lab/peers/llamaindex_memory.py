"""LlamaIndex's `Memory`: a queue that keeps a share of the token limit and flushes the oldest messages."""

# Types are checked where no peer is installed.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
from typing import Any

from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.memory import Memory

from ...shapes import Message
from ..scale import Scale
from ..text import plain


class Remembered:
    """A memory in an in-memory database of its own."""

    def __init__(self, scale: Scale, budget: int) -> None:
        def tokenize(text: str) -> list[int]:
            return [0] * scale.length(text)

        self._memory = Memory.from_defaults(session_id="lab", token_limit=budget, tokenizer_fn=tokenize)

    async def add_message(self, message: Message) -> None:
        """Put it into the memory."""
        for one in plain(message):
            kept = {key: one[key] for key in ("tool_calls", "tool_call_id") if key in one}
            await self._memory.aput(
                ChatMessage(role=MessageRole(one["role"]), content=one["content"], additional_kwargs=kept)
            )

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        """What the memory gives back."""
        return [
            {"role": message.role.value, "content": message.content or "", **_plain(message.additional_kwargs)}
            for message in await self._memory.aget()
        ]


def _plain(kept: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps({key: kept[key] for key in ("tool_calls", "tool_call_id") if key in kept}))


def open_peer(scale: Scale, budget: int) -> Remembered:
    """The adapter for one session."""
    return Remembered(scale, budget)
