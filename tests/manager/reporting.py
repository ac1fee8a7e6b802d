"""A session whose provider reports its own count of each request, as the kernel's event has it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from amplifier_core.testing import MockCoordinator

from amplifier_context_core.kernel import mount_manager
from tests.managers import ask, feed, new_manager
from tests.messages import Message, says, size

KEY = ("anthropic", "model-1")


def provider(name: str = KEY[0], window: int = 100_000) -> Any:
    defaults = {"context_window": window, "max_output_tokens": 1_000, "model": KEY[1]}
    return SimpleNamespace(name=name, get_info=lambda: SimpleNamespace(defaults=defaults))


class Reporting:
    """A mounted manager, and a provider that reports what it likes.

    Attributes:
        asked_for: the provider of requests.
        cleanup: what the mount returned.
    """

    def __init__(self, **config: Any) -> None:
        self.coordinator = MockCoordinator()
        self.manager = new_manager(hooks=self.coordinator.hooks, **config)
        self.asked_for: Any = provider()
        self.cleanup: Any = None

    async def mounted(self, messages: list[Message]) -> Reporting:
        await feed(self.manager, messages)
        self.cleanup = await mount_manager(self.coordinator, self.manager, "context-test")
        return self

    async def respond(self, tokens: int, **more: Any) -> None:
        usage = {"input_tokens": tokens, "output_tokens": 7, **more.pop("usage", {})}
        data = {"provider": KEY[0], "model": KEY[1], "status": "ok", "usage": usage, **more}
        await self.coordinator.hooks.emit("llm:response", data)

    async def request(self, reported: Callable[[int], int]) -> list[Message]:
        """A request, its response event with what the provider reports of our count, and the answer stored."""
        view = await ask(self.manager, None, self.asked_for)
        await self.respond(reported(size(view)))
        await self.manager.add_message(says("Yes."))
        return view

    @property
    def known(self) -> Any:
        return self.manager.session.meter.correction(KEY)
