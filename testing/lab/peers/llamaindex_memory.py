"""LlamaIndex's `Memory`: a queue that keeps a share of the token limit and flushes the oldest messages."""

# Types are checked where no peer is installed.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
from typing import Any

from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.memory import Memory

from ...checks.message_shapes import Message
from ..text import plain
from ..token_scale import TokenScale


class Remembered:
    """A memory in an in-memory database of its own.

    The system prompt stays beside it, as in LlamaIndex's agents; what it takes of the budget the memory does not get.
    """

    def __init__(self, scale: TokenScale, budget: int) -> None:
        self._scale = scale
        self._budget = budget
        self._system: list[Message] = []
        self._memory: Memory | None = None

    async def add_message(self, message: Message) -> None:
        """Put it into the memory."""
        for one in plain(message):
            if one["role"] == "system" and self._memory is None:
                self._system.append(one)
                continue
            memory = self._memory = self._memory or self._made()
            kept = {key: one[key] for key in ("tool_calls", "tool_call_id") if key in one}
            await memory.aput(
                ChatMessage(role=MessageRole(one["role"]), content=one["content"], additional_kwargs=kept)
            )

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        """Return what the memory gives back."""
        remembered = await self._memory.aget() if self._memory is not None else []
        return [
            *self._system,
            *(
                {"role": message.role.value, "content": message.content or "", **_plain(message.additional_kwargs)}
                for message in remembered
            ),
        ]

    def _made(self) -> Memory:
        def tokenize(text: str) -> list[int]:
            return [0] * self._scale.length(text)

        left = max(1, self._budget - sum(self._scale.tokens(message) for message in self._system))
        return Memory.from_defaults(session_id="lab", token_limit=left, tokenizer_fn=tokenize)


def _plain(kept: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps({key: kept[key] for key in ("tool_calls", "tool_call_id") if key in kept}))


def open_peer(scale: TokenScale, budget: int) -> Remembered:
    """Return the adapter for one session."""
    return Remembered(scale, budget)
