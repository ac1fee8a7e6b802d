"""No storms: a message that must stay and fills 95 % of the budget, and five hundred requests."""

from __future__ import annotations

import logging

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core import ContextOverflow
from amplifier_context_testing import EventRecorder, check_request
from tests.managers import feed, new_manager
from tests.messages import Message, call, result, rounds, size, system, user

BUDGET = 8_000
HANDFUL = 10
WARNING = "context:warning"


def words(tokens: int) -> str:
    """Text of about so many tokens, with numbered words, so that a cut shows its place."""
    return " ".join(f"word{number:05d}" for number in range(tokens * 4 // 10))


LOADED = {"openai:tool_search_items": [{"type": "tool_search_output"}]}
GIANTS: dict[str, list[Message]] = {
    "system prompt": [system(words(int(BUDGET * 0.95))), user("Do it.")],
    "loaded tools": [
        user("Do it."),
        call("c", content=words(int(BUDGET * 0.95)), metadata=LOADED),
        result("c"),
    ],
    # Not clipped: what it leaves of the budget is more than an eighth.
    "newest human message": [user("Do it."), *rounds(3, start=90_000), user(words(int(BUDGET * 0.8)))],
}


@pytest.mark.parametrize("giant", GIANTS)
async def test_five_hundred_requests_beside_a_giant_cause_a_handful_of_compactions_and_one_warning(
    giant: str, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = HookRegistry()
    recorder = EventRecorder(hooks, ["context:compaction", WARNING])
    manager = await feed(new_manager(hooks=hooks), GIANTS[giant])
    with caplog.at_level(logging.WARNING):
        for number in range(500):
            await feed(manager, rounds(1, start=number, output=120) if number % 10 == 0 else [])
            view = await manager.get_messages_for_request(BUDGET)
            assert check_request(view) == []
            assert size(view) <= BUDGET
    assert (await manager.explain())["compactions"] == recorder.count("context:compaction") <= HANDFUL
    texts = [event["message"] for event in recorder.named(WARNING)]
    once = 0 if giant == "newest human message" else 1  # that one is below the trigger
    assert len([message for message in texts if "must be kept" in message]) == once
    assert len(texts) == len(set(texts)) <= 1
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


async def test_beside_a_large_system_prompt_the_task_keeps_the_tokens_that_are_left_and_its_mark() -> None:
    messages = [{"role": "system", "content": words(1_486)}, {"role": "user", "content": words(600)}]
    view = await (await feed(new_manager(), messages)).get_messages_for_request(1_576)
    assert 40 <= size(view[1:]) <= 90  # the better part of the 87 that are left; some of it is for what comes next
    assert "m2" in view[1]["content"]


async def test_a_request_after_each_of_many_tiny_messages_compacts_now_and_then() -> None:
    """Messages so short that a chapter would cost more than they do."""
    manager = new_manager()
    for place in range(160):
        await manager.add_message({"role": "user" if place % 2 == 0 else "assistant", "content": f"message {place}"})
        view = await manager.get_messages_for_request(1_000)
        assert size(view) <= 1_000
    assert check_request(view) == []
    assert (await manager.explain())["compactions"] <= 3
