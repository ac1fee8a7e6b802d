"""A model that keeps what it is asked, and conversations in contexts."""

from __future__ import annotations

from typing import Any

from amplifier_context_core.compat import MemoryContextStore, Message


class Scribe:
    """Summarises, and records its prompts."""

    def __init__(self, summary: Any = "They talked.") -> None:
        self.summary = summary
        self.prompts: list[str] = []

    async def __call__(self, prompt: str) -> Any:
        self.prompts.append(prompt)
        if isinstance(self.summary, BaseException):
            raise self.summary
        return self.summary

    @property
    def prompt(self) -> str:
        assert len(self.prompts) == 1
        return self.prompts[0]


async def of(*messages: Message | dict[str, Any]) -> MemoryContextStore:
    return await MemoryContextStore.from_history(messages)
