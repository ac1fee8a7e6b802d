"""A manager that asks a model, in the lab: summaries come some requests after they were asked for.

The lab has no model and no time, so a summary is late by a number of requests. Between two requests everything that is
due is finished, so that figures do not depend on how fast threads are.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import Message
from amplifier_context_testing.replay.transcripts import Context
from amplifier_context_testing.summaries.extractive import extractive_answer

LATE = 2  # requests of the session that a summary takes
TASK = "amplifier-context-summary"  # what the manager names its background task
STUCK = 20.0  # seconds after which a request is taken to wait for a summary
NAME = "openai-summaries"  # of a vendor whose tokens are counted exactly
WINDOW = 1_000_000  # tokens: of a model that reads any range in one call
EVENTS = ("context:summary_started", "context:summary_finished", "context:summary_failed")
# Calls in a time window are not limited: the lab replays hours in seconds.
UNLIMITED: Mapping[str, Any] = {
    "summary_provider": NAME,
    "max_summary_calls": 100_000,
    "max_summary_tokens": 1_000_000_000,
}


class SessionProvider:
    """The provider of a session in the lab: nothing is asked of it but its name and its prices."""

    name = "openai"  # of a vendor whose tokens are counted exactly
    default_model = ""

    async def list_models(self) -> list[Any]:
        """Return the only model, with the relative prices of Anthropic's and OpenAI's price lists."""
        from amplifier_core.models import ModelInfo, Pricing

        pricing = Pricing(
            input_per_million=1.0, output_per_million=5.0, cache_read_per_million=0.1, cache_write_per_million=1.25
        )
        window = {"context_window": WINDOW, "max_output_tokens": 8_192}
        return [ModelInfo(id="lab", display_name="lab", pricing=pricing, **window)]


@dataclass
class LabWriter(SessionProvider):
    """A provider that answers requests for summaries, late."""

    scale: TokenScale
    _due: list[tuple[int, asyncio.Event]] = field(default_factory=list[tuple[int, asyncio.Event]])
    requests: int = 0

    name = NAME
    priority = 1_000

    def get_info(self) -> Any:
        from amplifier_core.models import ProviderInfo

        defaults = {"model": "lab", "context_window": WINDOW, "max_output_tokens": 8_192}
        return ProviderInfo(id=self.name, display_name="Summaries without a model", defaults=defaults)

    async def complete(self, request: Any, **options: Any) -> Any:
        """Answer a request for a summary once it is due."""
        from amplifier_core.message_models import ChatResponse, Usage

        answer = extractive_answer(request)
        assert answer is not None, "the lab's provider answers requests for summaries only"
        released = asyncio.Event()
        self._due.append((self.requests + LATE, released))
        await released.wait()
        given = sum(self.scale.tokens(message.model_dump(exclude_unset=True)) for message in request.messages)
        written = self.scale.length(answer.text)
        usage = Usage(input_tokens=given, output_tokens=written, total_tokens=given + written)
        content = [{"type": "text", "text": answer.text}]
        return ChatResponse.model_validate({"content": content, "usage": usage, "finish_reason": "stop"})

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return []

    def release(self, *, all_of_them: bool = False) -> None:
        """Let the answers arrive that are due after the requests so far, or all of them."""
        for due, released in self._due:
            if all_of_them or due <= self.requests:
                released.set()
        self._due = [(due, released) for due, released in self._due if not released.is_set()]

    async def deliver_due(self) -> None:
        self.release()
        while not self._due and (tasks := [task for task in asyncio.all_tasks() if task.get_name() == TASK]):
            await asyncio.wait(tasks, timeout=0.001)  # it asks for the next piece, or ends


class Paced:
    """A context whose summaries are late."""

    def __init__(self, context: Any, writer: LabWriter) -> None:
        self._context = context
        self._writer = writer
        self._provider = SessionProvider()

    async def add_message(self, message: Message) -> None:
        await self._writer.deliver_due()
        await self._context.add_message(message)

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        self._writer.requests += 1
        task = asyncio.create_task(
            self._context.get_messages_for_request(token_budget=token_budget, provider=self._provider)
        )
        done, _ = await asyncio.wait({task}, timeout=STUCK)
        while not done:  # it may ask for several pieces
            self._writer.release(all_of_them=True)
            done, _ = await asyncio.wait({task}, timeout=0.01)
        return await task


async def open_paced(
    mount: Callable[..., Any], config: Mapping[str, Any], writer: LabWriter
) -> tuple[Context, Callable[[], Any]]:
    """Mount a manager with a writer as the only provider; return it and what closes it."""
    from amplifier_core.testing import MockCoordinator

    coordinator: Any = MockCoordinator()
    await coordinator.mount("providers", writer, name=writer.name)
    cleanup = await mount(coordinator, dict(config))

    async def close() -> None:
        done = cleanup() if cleanup is not None else None
        if inspect.isawaitable(done):
            await done

    return cast(Context, Paced(coordinator.get("context"), writer)), close
