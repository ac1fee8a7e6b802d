"""When views are compacted by what that costs, and the metadata by which they mark where a cached prefix may end."""

import itertools
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core.messages.parsing import metadata_of
from tests.managers import ask, feed, new_manager, watched
from tests.messages import Message, rounds, says, text, user, work

BUDGET = 8_000
AUTO: dict[str, Any] = {"cadence": "auto", "target_usage": 0.5, "compact_threshold": 0.92}


async def test_where_the_provider_names_its_prices_the_break_even_is_theirs() -> None:
    """Where reads are nearly free, to carry the history on costs little: compactions come later."""

    async def threshold(read: float) -> int:
        pricing = {"input_per_million": 4.0, "cache_read_per_million": read, "cache_write_per_million": 5.0}
        provider = SimpleNamespace(name="openai", get_model_info=lambda: {"pricing": pricing})
        manager = await feed(new_manager(**AUTO), work(1))
        number = 0
        while (await manager.explain())["compactions"] == 0:  # the first one has no costs to go by
            number += 1
            await feed(manager, rounds(1, start=number))
            await ask(manager, BUDGET, provider)
        await feed(manager, rounds(2, start=900))
        await ask(manager, BUDGET, provider)
        return int((await manager.explain())["view"]["trigger"])

    assert await threshold(4.0) < await threshold(0.4) < await threshold(0.1)


START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
TTL = 300  # seconds, by config


def at(message: Message, seconds: float) -> Message:
    stamp = (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
    return {**message, "metadata": {"timestamp": stamp}}


@pytest.mark.parametrize("config", [{}, {"cache_ttl": 0}, {"cache_ttl": "none"}, {"auto_compact": False}])
async def test_a_view_that_is_nearly_due_is_compacted_after_a_pause_unless_config_says_no(
    config: dict[str, Any],
) -> None:
    manager, recorder = watched(**{"cache_ttl": TTL, **config})
    talk = [*work(36, output=600), says("Done so far.")]  # some 70 % of the budget
    await feed(manager, [at(message, 10 * number) for number, message in enumerate(talk)])
    before = await ask(manager, BUDGET)
    await manager.add_message(at(user("I am back."), 10 * len(talk) + (100 * TTL if config else TTL + 1)))
    after = await ask(manager, BUDGET)
    assert recorder.count("context:pre_compact") == (not config)
    for event in recorder.named("context:compaction"):
        assert event["trigger"] == "cold cache"
        assert "cache is cold" in event["reason"]
        assert event["before_tokens"] < event["threshold"], "it was not due yet"
        assert len(text(after)) < len(text(before))


def marked(view: list[Message]) -> list[int]:
    return [index for index, message in enumerate(view) if metadata_of(message).get("cache_breakpoint")]


def chapters(view: list[Message]) -> list[int]:
    return [index for index, message in enumerate(view) if "chapter" in metadata_of(message)]


def sent(view: list[Message]) -> list[Message]:
    """What goes over the wire."""
    return [{key: value for key, value in message.items() if key != "metadata"} for message in view]


async def test_the_last_chapter_alone_asks_for_a_breakpoint_and_up_to_it_a_view_stays_through_a_compaction() -> None:
    manager = await feed(new_manager(chapter_share=0.9), work(1))
    views: list[list[Message]] = []
    for number in range(1, 120):
        await feed(manager, rounds(1, start=number, output=600))
        views.append(await ask(manager, BUDGET))
    assert max(len(chapters(view)) for view in views) > 1, "a session in which chapters follow each other"
    for view in views:
        assert marked(view) == chapters(view)[-1:]
    kept = 0
    for before, after in itertools.pairwise(views):
        if sent(after)[: len(before)] == sent(before):
            assert after[: len(before)] == before, "between compactions marks stay, too"
        elif marked(before):
            end = marked(before)[0] + 1
            kept += sent(after)[:end] == sent(before)[:end]
    assert kept > 0
