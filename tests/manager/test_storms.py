"""No storms: a message that must stay and fills 95 % of the budget, and five hundred requests."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core import ContextManager, ContextOverflow
from amplifier_context_testing import EventRecorder, check_request
from tests.managers import feed, new_manager
from tests.messages import Message, rounds, size

BUDGET = 8_000
HANDFUL = 10
WARNING = "context:warning"


def words(tokens: int) -> str:
    """Text of about so many tokens, with numbered words, so that a cut shows its place."""
    return " ".join(f"word{number:05d}" for number in range(tokens * 4 // 10))


def giant_task() -> list[Message]:
    return [{"role": "user", "content": words(int(BUDGET * 0.95))}]


def giant_pin() -> list[Message]:
    return [
        {"role": "user", "content": "Do it."},
        {"role": "user", "content": words(int(BUDGET * 0.95)), "metadata": {"pinned": True}},
    ]


def giant_system_prompt() -> list[Message]:
    return [{"role": "system", "content": words(int(BUDGET * 0.95))}, {"role": "user", "content": "Do it."}]


def giant_loaded_tools() -> list[Message]:
    call, result = rounds(1, start=90_000)
    call["metadata"] = {"openai:tool_search_items": [{"type": "tool_search_output"}]}
    call["content"] = words(int(BUDGET * 0.95))
    return [{"role": "user", "content": "Do it."}, call, result]


def giant_newest_human() -> list[Message]:
    return [{"role": "user", "content": "Do it."}, *rounds(3, start=90_000), *giant_task()]


def whole_newest_human() -> list[Message]:
    """It is not clipped: what it leaves of the budget is more than an eighth."""
    return [
        {"role": "user", "content": "Do it."},
        *rounds(3, start=90_000),
        {"role": "user", "content": words(int(BUDGET * 0.8))},
    ]


VARIANTS = [giant_task, giant_newest_human, whole_newest_human, giant_pin, giant_system_prompt, giant_loaded_tools]
# One that may be clipped, and those that may not be or need not be; the others in a soak.
SHORT = (giant_task, giant_system_prompt, whole_newest_human)
FEW = [pytest.param(start, marks=[] if start in SHORT else pytest.mark.soak) for start in VARIANTS]


async def storm(manager: ContextManager, requests: int, every: int = 1) -> list[list[str]]:
    """Requests, and before every so many of them a round; what was wrong with each request."""
    wrong: list[list[str]] = []
    for number in range(requests):
        if number % every == 0:
            await feed(manager, rounds(1, start=number, output=120))
        view = await manager.get_messages_for_request(BUDGET)
        broken = check_request(view)
        if size(view) > BUDGET:
            broken.append(f"request {number}: {size(view)} tokens")
        if broken:
            wrong.append(broken)
    return wrong


@pytest.mark.parametrize("start", FEW)
async def test_five_hundred_requests_beside_a_giant_cause_a_handful_of_compactions_and_one_warning(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = HookRegistry()
    recorder = EventRecorder(hooks, ["context:compaction", WARNING])
    manager = await feed(new_manager(hooks=hooks), start())
    with caplog.at_level(logging.WARNING):
        wrong = await storm(manager, 500, every=10)
    assert wrong == []
    assert (await manager.explain())["compactions"] == recorder.count("context:compaction") <= HANDFUL
    texts = [event["message"] for event in recorder.named(WARNING)]
    once = 0 if start is whole_newest_human else 1  # that one is below the trigger
    assert len([message for message in texts if "must be kept" in message]) == once
    assert len(texts) == len(set(texts)) <= (2 if start is giant_pin else 1)  # and that the pin outgrew its share
    records = [r for r in caplog.records if r.levelno >= logging.WARNING and "must be kept" in r.getMessage()]
    assert len(records) == once


async def test_what_does_not_fit_at_all_is_sent_as_small_as_it_gets_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = HookRegistry()
    recorder = EventRecorder(hooks, [WARNING])
    manager = new_manager(hooks=hooks)
    await feed(manager, [{"role": "system", "content": words(2_000)}, {"role": "user", "content": "Do it."}])
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            await feed(manager, rounds(1, start=number, output=100))
            view = await manager.get_messages_for_request(1_000)
            assert check_request(view) == []
            assert any(message["content"] == "Do it." for message in view)
    report = await manager.explain()
    assert len([warning for warning in report["warnings"] if "system prompt" in warning]) == 1
    assert ["system prompt" in event["message"] for event in recorder.named(WARNING)] == [True]
    assert len([r for r in caplog.records if "system prompt" in r.getMessage()]) == 1
    assert report["compactions"] <= 50 // 2  # each of them makes the view as small as it gets


async def test_under_strict_what_does_not_fit_is_an_error_that_names_it_and_loses_nothing() -> None:
    manager = new_manager(strict=True)
    messages = [{"role": "system", "content": words(2_000)}, {"role": "user", "content": "Do it."}]
    await feed(manager, messages)
    for _ in range(3):
        with pytest.raises(ContextOverflow, match=r"system prompt 2,\d\d\d"):
            await manager.get_messages_for_request(1_000)
    assert len(await manager.get_messages()) == 2
    assert check_request(await manager.get_messages_for_request(10_000)) == []


async def test_a_larger_budget_ends_the_trouble() -> None:
    manager = await feed(new_manager(), giant_task())
    await storm(manager, 20)
    view = await manager.get_messages_for_request(40_000)
    assert view[0]["content"] == giant_task()[0]["content"]


async def test_beside_a_large_system_prompt_the_task_keeps_the_tokens_that_are_left_and_its_mark() -> None:
    messages = [{"role": "system", "content": words(1_486)}, {"role": "user", "content": words(600)}]
    view = await (await feed(new_manager(), messages)).get_messages_for_request(1_576)
    assert 40 <= size(view[1:]) <= 90  # the better part of the 87 that are left; some of it is for what comes next
    assert "m2" in view[1]["content"]
