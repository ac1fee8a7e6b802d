"""Weighing by words, and a manager whose views are written down beforehand."""

from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from amplifier_context_testing import WordCounter
from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import Message
from lab.managers import Manager, Opened


def scale() -> TokenScale:
    return TokenScale(WordCounter())


def calls(name: str, arguments: dict[str, Any], call_id: str = "c1") -> Message:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "tool": name, "arguments": arguments}]}


def chapter(text: str) -> Message:
    return {"role": "user", "content": text, "metadata": {"source": "context-compaction"}}


Viewing = Callable[[Sequence[Message]], list[Message]]


class Scripted:
    """Hands out what a function makes of the history."""

    def __init__(self, viewing: Viewing) -> None:
        self.history: list[Message] = []
        self._viewing = viewing

    async def add_message(self, message: Message) -> None:
        self.history.append(message)

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        return self._viewing(self.history)


def scripted(viewing: Viewing) -> Manager:
    @asynccontextmanager
    async def opening(scale: TokenScale, budget: int) -> Opened:
        yield Scripted(viewing)

    return Manager("scripted", opening)
