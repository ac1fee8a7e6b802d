"""A context manager that does nothing but keep: for tests of loops, providers and tools.

async with session(mount_plan("context-list"), modules={"context-list": mount_list}) as running: ...
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from .checks.message_shapes import Message


class ListContext:
    """Keeps every message and returns all of them, without compaction or repair."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def add_message(self, message: Message) -> None:
        self.messages.append(deepcopy(message))

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        """Everything, whatever the budget, in a list of its own."""
        return [dict(message) for message in self.messages]

    async def get_messages(self) -> list[Message]:
        return deepcopy(self.messages)

    async def set_messages(self, messages: list[Message]) -> None:
        self.messages = deepcopy(messages)

    async def clear(self) -> None:
        self.messages.clear()


async def mount_list(coordinator: Any, config: Mapping[str, Any] | None = None) -> None:
    await coordinator.mount("context", ListContext())
