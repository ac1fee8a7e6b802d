"""After a pause longer than the provider's cache lives, a compaction that is nearly due is made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core import ContextManager
from amplifier_context_testing import EventRecorder
from tests.authors import make_manager
from tests.managers import ask, new_manager
from tests.messages import Message, text, work

BUDGET = 8_000
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
TTL = 300  # seconds, by config
BACK = {"role": "user", "content": "I am back. Please go on."}


def at(message: Message, seconds: float) -> Message:
    stamp = (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
    return {**message, "metadata": {"timestamp": stamp}}


async def feed_timed(manager: ContextManager, messages: list[Message], start: float = 0) -> float:
    """Add messages, ten seconds apart; the time of the last."""
    now = start
    for message in messages:
        now += 10
        await manager.add_message(at(message, now))
    return now


async def large(number: int = 36, **config: Any) -> tuple[ContextManager, EventRecorder, float]:
    """A session whose view is some 70 % of its budget, which is nearly due, and the time of its newest message."""
    hooks = HookRegistry()
    recorder = EventRecorder(hooks, ["context:compaction", "context:pre_compact"])
    manager = new_manager(hooks=hooks, **{"cache_ttl": TTL, **config})
    return manager, recorder, await feed_timed(manager, [*work(number, output=600), says("Done so far.")])


def says(content: str) -> Message:
    return {"role": "assistant", "content": content}


async def test_a_view_that_is_nearly_due_is_compacted_after_a_pause() -> None:
    manager, recorder, now = await large()
    before = await ask(manager, BUDGET)
    await manager.add_message(at(BACK, now + TTL + 1))
    after = await ask(manager, BUDGET)
    assert recorder.count("context:compaction") == 1
    event = recorder.named("context:compaction")[0]
    assert event["trigger"] == "cold cache"
    assert "cache is cold" in event["reason"]
    assert event["before_tokens"] < event["threshold"], "it was not due yet"
    assert len(text(after)) < len(text(before))


@pytest.mark.parametrize("config", [{"cache_ttl": 0}, {"cache_ttl": "none"}, {"auto_compact": False}])
async def test_it_is_switched_off_by_config(config: dict[str, Any]) -> None:
    manager, recorder, now = await large(**config)
    await manager.add_message(at(BACK, now + 100 * TTL))
    await ask(manager, BUDGET)
    assert recorder.count("context:pre_compact") == 0


async def test_a_session_resumed_after_the_pause_shows_what_it_would_have_shown() -> None:
    manager, _, now = await large()
    await manager.add_message(at(BACK, now + TTL + 1))
    view = await ask(manager, BUDGET)
    await manager.close()
    again = make_manager(manager.config, session_id=manager.session_id, store=manager.store)
    assert await ask(again, BUDGET) == view
    await again.close()
