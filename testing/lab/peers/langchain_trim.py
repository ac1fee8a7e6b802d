"""LangChain's `trim_messages`, as its documentation sets it, on a state that keeps what was trimmed."""

# Types are checked where no peer is installed.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import Any

from langchain_core.messages import BaseMessage, trim_messages

from ...checks.message_shapes import Message
from ..text import plain
from ..token_scale import TokenScale
from .langchain_messages import Turned


class Trimmed:
    """`trim_messages` when the budget is outgrown."""

    def __init__(self, scale: TokenScale, budget: int) -> None:
        self._turned = Turned(scale)
        self._budget = budget
        self._state: list[BaseMessage] = []

    async def add_message(self, message: Message) -> None:
        """Append to the state."""
        self._state.extend(self._turned.take(one) for one in plain(message))

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        """Return the state, trimmed."""
        if self._turned.count(self._state) > self._budget:
            self._state = trimmed(self._state, self._budget // 2, self._turned)
        return self._turned.back(self._state)


def trimmed(messages: list[BaseMessage], room: int, turned: Turned) -> list[BaseMessage]:
    """With the arguments LangChain's how-to recommends for agents."""
    return trim_messages(
        messages,
        max_tokens=room,
        token_counter=turned.count,
        strategy="last",
        start_on="human",
        end_on=("human", "tool"),
        include_system=True,
    )


def open_peer(scale: TokenScale, budget: int) -> Trimmed:
    """Return the adapter for one session."""
    return Trimmed(scale, budget)
