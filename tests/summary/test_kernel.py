"""context-summary mounted as the kernel mounts it: its provider, its events, and what the provider reports of it."""

from __future__ import annotations

from typing import Any

import pytest
from amplifier_core.testing import MockCoordinator

import amplifier_context_summary
from amplifier_context_summary.asking import EVENTS
from tests.messages import text
from tests.summary.scripted import BUDGET, SESSION, WORDS, drive
from tests.writers import Writer

pytestmark = pytest.mark.kernel


async def mounted(writer: Writer, **config: Any) -> tuple[Any, Any, Any]:
    """A coordinator with a provider and the module; the manager and its cleanup."""
    coordinator = MockCoordinator()
    await coordinator.mount("providers", writer, name=writer.name)
    keys = {"token_counter": "heuristic", "max_tokens": BUDGET, "summary_spend": 100.0, **config}
    cleanup = await amplifier_context_summary.mount(coordinator, keys)
    return coordinator, coordinator.get("context"), cleanup


async def test_a_mounted_module_asks_the_mounted_provider_says_what_for_and_names_its_events() -> None:
    writer = Writer("good")
    coordinator, manager, cleanup = await mounted(writer, summary_model="cheap")
    views = await drive(manager, SESSION)
    assert WORDS in text(views[-1])
    request = writer.asked[0]
    assert request.metadata == {"purpose": "context-compaction", "stream": False}
    assert (request.model, request.reasoning_effort, request.stream) == ("cheap", "low", False)
    assert request.tools is None
    named = [name for names in await coordinator.collect_contributions("observability.events") for name in names]
    assert set(EVENTS) <= set(named)
    await cleanup()
    assert not manager.writer.is_running


async def test_what_a_provider_reports_of_a_summary_is_no_answer_to_the_session() -> None:
    """Providers emit `llm:response` for every call; the meter must learn from the session's own only."""
    writer = Writer("good")
    coordinator, manager, cleanup = await mounted(writer)
    writer.hooks = coordinator.hooks
    seen: list[object] = []
    manager.requests.reports.record = seen.append
    await drive(manager, SESSION)
    assert writer.answered > 0
    assert seen == []
    usage = {"input_tokens": 10, "output_tokens": 1}
    await coordinator.hooks.emit("llm:response", {"provider": "writer", "usage": usage})
    assert len(seen) == 1
    await cleanup()
