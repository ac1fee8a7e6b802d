"""context-summary mounted as the kernel mounts it: its provider, its events, and what the provider reports of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from amplifier_core import ChatResponse, Usage
from amplifier_core.llm_errors import ProviderUnavailableError
from amplifier_core.message_models import TextBlock
from amplifier_core.testing import MockCoordinator

import amplifier_context_summary
from amplifier_context_summary.asking import EVENTS
from amplifier_context_testing.summaries.writers import Writer
from tests.messages import text, work
from tests.summary.scripted import BUDGET, Provider, summary_manager, wait_for_summaries

pytestmark = pytest.mark.kernel


async def mounted(writer: Writer, **config: Any) -> tuple[Any, Any, Any]:
    """A coordinator with a provider and the module; the manager and its cleanup."""
    coordinator = MockCoordinator()
    await coordinator.mount("providers", writer, name=writer.name)
    keys = {"token_counter": "heuristic", "max_tokens": BUDGET, "summary_spend": 100.0, **config}
    cleanup = await amplifier_context_summary.mount(coordinator, keys)
    return coordinator, coordinator.get("context"), cleanup


async def test_a_mounted_module_asks_the_mounted_provider_and_names_its_events() -> None:
    writer = Writer("good")
    coordinator, manager, cleanup = await mounted(writer)
    view: list[dict[str, Any]] = []
    for message in work(60, output=900):
        await manager.add_message(message)
        if message["role"] != "assistant":
            view = await manager.get_messages_for_request(BUDGET)
            await wait_for_summaries(manager)
    assert "in a model's words" in text(view)
    named = [name for names in await coordinator.collect_contributions("observability.events") for name in names]
    assert set(EVENTS) <= set(named)
    await cleanup()
    assert not manager.writer.is_running


async def test_a_request_for_a_summary_says_what_it_is_for() -> None:
    writer = Writer("good")
    _, manager, cleanup = await mounted(writer, summary_model="cheap")
    for message in work(60, output=900):
        await manager.add_message(message)
        if message["role"] != "assistant":
            await manager.get_messages_for_request(BUDGET)
            await wait_for_summaries(manager)
    request = writer.asked[0]
    assert request.metadata == {"purpose": "context-compaction", "stream": False}
    assert (request.model, request.reasoning_effort, request.stream) == ("cheap", "low", False)
    assert request.tools is None
    await cleanup()


async def test_what_a_provider_reports_of_a_summary_is_no_answer_to_the_session() -> None:
    """Providers emit `llm:response` for every call; the meter must learn from the session's own only."""
    coordinator = MockCoordinator()
    hooks = coordinator.hooks
    writer = Writer("good")
    writer.hooks = hooks
    await coordinator.mount("providers", writer, name=writer.name)
    config = {"token_counter": "heuristic", "max_tokens": BUDGET, "summary_spend": 100.0}
    cleanup = await amplifier_context_summary.mount(coordinator, config)
    manager: Any = coordinator.get("context")
    seen: list[object] = []
    manager.answers.reports.record = seen.append
    for message in work(60, output=900):
        await manager.add_message(message)
        if message["role"] != "assistant":
            await manager.get_messages_for_request(BUDGET)
            await wait_for_summaries(manager)
    assert writer.answered > 0
    assert seen == []
    await hooks.emit("llm:response", {"provider": "writer", "usage": {"input_tokens": 10, "output_tokens": 1}})
    assert len(seen) == 1
    await cleanup()


class _Cached(Provider):
    """Reports that most of its input came from the cache, or nothing."""

    def __init__(self, cached: float) -> None:
        super().__init__(lambda request, number: "")
        self._cached = cached

    async def complete(self, request: Any, **kwargs: Any) -> ChatResponse:
        self.requests.append(request)
        total = sum(len(str(message.content)) for message in request.messages) // 4
        patch = json.dumps({"goal": {"text": "Do the work."}, "next": f"STEP {len(self.requests)}"})
        read = int(total * self._cached)
        usage = Usage(input_tokens=total, output_tokens=20, total_tokens=total + 20, cache_read_tokens=read)
        return ChatResponse(content=[TextBlock(text=patch)], finish_reason="stop", usage=usage)


@pytest.mark.parametrize(("cached", "output", "forked"), [(0.95, 4_000, True), (0.0, 200, False)])
async def test_a_forked_call_is_the_last_request_with_a_question_after_it_while_that_pays(
    cached: float, output: int, forked: bool
) -> None:
    provider = _Cached(cached)
    manager = summary_manager(provider, summary_call="fork", summary_output=output, max_tokens=16_000)
    view: list[dict[str, Any]] = []
    for message in work(90, output=3_000):
        await manager.add_message(message)
        if message["role"] != "assistant":
            view = await manager.get_messages_for_request(16_000)
            seen = len(provider.requests)
            await wait_for_summaries(manager)
            if len(provider.requests) > seen and seen == 0:
                sent = [str(message.content) for message in provider.requests[0].messages]
                assert sent[:-1] == [str(message["content"]) for message in view]
                assert "You keep the working state" in sent[-1]
                assert "person: " not in sent[-1].split("data, no instructions")[-1]
    assert len(provider.requests) >= 2
    assert (len(provider.requests[-1].messages) > 2) is forked
    assert "STEP" in text(view)


async def test_a_forked_call_without_an_answer_says_nothing_of_what_forking_costs() -> None:
    class Failing(_Cached):
        async def complete(self, request: Any, **kwargs: Any) -> ChatResponse:
            answer = await super().complete(request, **kwargs)
            if len(self.requests) == 1:
                raise ProviderUnavailableError("as the test asked for", status_code=500)
            return answer

    provider = Failing(0.95)
    manager = summary_manager(provider, summary_call="fork", summary_output=200, max_tokens=16_000)
    now = [0.0]
    manager.writer.clock = lambda: now[0]
    for message in work(90, output=3_000):
        await manager.add_message(message)
        if message["role"] != "assistant":
            await manager.get_messages_for_request(16_000)
            await wait_for_summaries(manager)
        now[0] += 60
    assert len(provider.requests) >= 2
    assert len(provider.requests[1].messages) > 2
