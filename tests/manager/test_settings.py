"""Settings of views: what each is a share or a number of grows with it."""

import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_context_core import ContextManager, PinRefused
from amplifier_context_core.messages.usage import Response, Usage
from tests.managers import Watch, ask, feed, new_manager
from tests.messages import Message, call, result, rounds, says, user, words, work

BUDGET = 8_000
RECORDS = [
    call("j"),
    result("j", json.dumps([{"flight_number": f"HAT{number}", "price": number} for number in range(40)])),
]
LISTING = [call("r"), result("r", "\n".join(f"{number:6}\tline {number}" for number in range(1, 21)))]
PINNED = [user(words(f"pin{number}_", 250), metadata={"pinned": True}) for number in range(40)]
TALK = work(60, output=600)
GIANT = [*work(4), *rounds(1, start=90, output=30_000)]
Measure = Callable[[ContextManager, list[Message]], Awaitable[int]]


async def kept_rounds(manager: ContextManager, view: list[Message]) -> int:
    return sum(row["state"] == "kept" for row in (await manager.explain())["rounds"])


async def pinned(manager: ContextManager, view: list[Message]) -> int:
    return sum(message["content"] in [one["content"] for one in view] for message in PINNED)


async def pins_taken(manager: ContextManager, view: list[Message]) -> int:
    try:
        for number in range(3, 100, 2):
            await manager.pin(f"m{number}")
    except PinRefused:
        pass
    return len(manager.compactor.directions.pins)


async def recall_room(manager: ContextManager, view: list[Message]) -> int:
    return await manager.recall_room(100_000)


async def longest_output(manager: ContextManager, view: list[Message]) -> int:
    return max(len(message["content"]) for message in view if message["role"] == "tool")


async def budget(manager: ContextManager, view: list[Message]) -> int:
    defaults = {"context_window": 20_000, "max_output_tokens": 4_000}
    provider = SimpleNamespace(get_info=lambda: SimpleNamespace(defaults=defaults))
    await manager.get_messages_for_request(None, provider)
    return (await manager.explain())["view"]["budget"]


async def corrections(manager: ContextManager, view: list[Message]) -> int:
    """The models whose counts are corrected after an answer."""
    manager.on_response(Response(usage=Usage(5_000)))
    await manager.add_message(says())
    return len(manager.session.meter.corrections)


def showing(words: str) -> Measure:
    async def count(manager: ContextManager, view: list[Message]) -> int:
        return sum(words in str(message["content"]) for message in view)

    return count


@pytest.mark.parametrize(
    ("key", "low", "high", "talk", "measure"),
    [
        ("protected_recent", 0.0, 1.0, TALK, kept_rounds),
        ("pin_share", 0.05, 0.5, [*PINNED, *TALK], pinned),
        ("pin_share", 0.05, 0.5, TALK, pins_taken),
        ("recall_share", 0.1, 0.9, TALK, recall_room),
        ("safety_margin", 3_000, 0, TALK, budget),
        ("output_reserve_fraction", 1.0, 0.0, TALK, budget),
        ("token_meter", "estimate", "hybrid", TALK, corrections),
        ("output_share", 0.05, 0.4, GIANT, longest_output),
        ("offload_above", 5.0, 0.05, GIANT, showing("are kept outside this view")),
        ("json_tables", False, True, [*work(4), *RECORDS], showing("(flight_number,price)")),
        ("fewer_line_numbers", False, True, [*work(4), *LISTING], showing("\nline 11\nline 12\n")),
    ],
)
async def test_what_a_setting_is_a_share_of_grows_with_it(
    key: str, low: Any, high: Any, talk: list[Message], measure: Measure
) -> None:
    async def measured(value: Any) -> int:
        manager = await feed(new_manager(**{"target_usage": 0.5, key: value}), talk)
        return await measure(manager, await ask(manager, BUDGET))

    assert await measured(low) < await measured(high)


@pytest.mark.parametrize(
    ("key", "value", "part", "expected"),
    [  # of a budget of 8,000 and a target of 3,200 tokens
        ("protected_human", 0.75, "human_tokens", 2_400),
        ("protected_tool_results", 3, "protected_results", 3),
        ("chapter_share", 0.25, "chapter_tokens", 2_000),
        ("state_tools", ["todo"], "state_tools", ("todo",)),
    ],
)
async def test_a_strategy_is_given_what_the_config_says(key: str, value: Any, part: str, expected: object) -> None:
    watch = Watch()
    manager = await feed(new_manager(strategies=[watch], target_usage=0.4, **{key: value}), TALK * 2)
    await manager.get_messages_for_request(BUDGET)
    assert getattr(watch.goals[0], part) == expected
