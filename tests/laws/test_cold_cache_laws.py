"""Laws of pauses: any conversation, any budget, any times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from amplifier_core import HookRegistry
from hypothesis import given
from hypothesis import strategies as st

from amplifier_context_core import ContextManager, Plugins, load_config
from amplifier_context_core.messages.timestamps import seconds_of
from amplifier_context_core.view import shared_cache
from amplifier_context_testing import EventRecorder

from .histories import Message, Step, conversations, flat
from .managers import valid

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
TTL = 300
GAPS = st.lists(st.sampled_from([0, 10, TTL, TTL + 1, 5_000, -400]), min_size=1, max_size=20)


def timed(messages: list[Message], gaps: list[int]) -> list[Message]:
    now, found = START, list[Message]()
    for number, message in enumerate(messages):
        now += timedelta(seconds=gaps[number % len(gaps)])
        found.append({**message, "metadata": {"timestamp": now.isoformat(timespec="milliseconds")}})
    return found


async def views(messages: list[Message], budget: int, **config: Any) -> tuple[list[list[Message]], list[str]]:
    """The view before and after each answer, and what triggered each compaction."""
    shared_cache.clear()
    hooks = HookRegistry()
    recorder = EventRecorder(hooks, ["context:compaction"])
    settings = load_config({"token_counter": "heuristic", **config})
    manager = ContextManager(settings, session_id="s", hooks=hooks, plugins=Plugins(), clock=lambda: START.isoformat())
    found: list[list[Message]] = []
    for message in messages:
        await manager.add_message(message)
        found.append(await manager.get_messages_for_request(token_budget=budget))
    return found, [event["trigger"] for event in recorder.named("context:compaction")]


def pauses(messages: list[Message]) -> int:
    """Answers that are followed by a message more than the time to live later, before the next answer."""
    found, answered, counted = 0, None, True
    for message in messages:
        now = seconds_of(message["metadata"]["timestamp"]) or 0.0
        if message["role"] == "assistant":
            answered, counted = now, False
        elif answered is not None and not counted and now - answered > TTL:
            found, counted = found + 1, True
    return found


@given(conversations(), st.integers(200, 1_500), GAPS)
async def test_there_is_at_most_one_more_compaction_for_each_pause_and_every_view_is_valid(
    steps: list[Step], budget: int, gaps: list[int]
) -> None:
    messages = timed(flat(steps), gaps)
    found, triggers = await views(messages, budget, cache_ttl=TTL)
    assert triggers.count("cold cache") <= pauses(messages)
    for view in found:
        valid(view)


@given(conversations(), st.integers(200, 1_500), GAPS)
async def test_times_change_nothing_where_no_pause_outlasts_the_cache(
    steps: list[Step], budget: int, gaps: list[int]
) -> None:
    messages = flat(steps)
    short = timed(messages, [min(gap, TTL // 20) for gap in gaps])
    without, _ = await views(short, budget, cache_ttl=0)
    assert (await views(short, budget, cache_ttl=TTL * 100))[0] == without
    assert (await views(timed(messages, gaps), budget, cache_ttl=0))[0] == without
    plain = [{key: value for key, value in message.items() if key != "metadata"} for message in messages]
    assert (await views(plain, budget, cache_ttl=TTL))[0] == (await views(plain, budget, cache_ttl=0))[0]
