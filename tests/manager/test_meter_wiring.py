"""What providers report reaches the meter through the kernel's hooks, and from there the next view."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_context_core.messages.usage import Response, Usage
from tests.manager.reporting import KEY, Reporting, provider
from tests.managers import ask
from tests.messages import rounds, size, work


@pytest.fixture
async def running() -> Reporting:
    return await Reporting().mounted(work(20))


async def test_a_side_call_between_view_and_answer_is_not_counted(running: Reporting) -> None:
    view = await ask(running.manager, None, running.asked_for)
    await running.respond(150)  # a session's name, made up meanwhile
    await running.respond(size(view) + 3_000)
    await running.respond(90)  # a check whether the goal is met
    await running.manager.add_message({"role": "assistant", "content": "Yes."})
    assert running.known.reports == 1
    assert running.known.offset == pytest.approx(3_000, rel=0.05)
    counted = size(await ask(running.manager, None, running.asked_for))
    estimate = running.manager.session.meter.estimate(counted, KEY)
    assert estimate == pytest.approx(counted + 3_000, rel=0.05)


async def test_a_report_that_cannot_be_of_the_view_teaches_nothing(running: Reporting) -> None:
    for tokens, more in (
        *((9, {"usage": {"input_tokens": odd}}) for odd in (None, "5", -5)),
        (90_000, {"status": "error"}),
        (150, {}),  # a side call alone
    ):
        view = await ask(running.manager, None, running.asked_for)
        assert size(view) > 10 * 150
        await running.respond(tokens, **more)
        await running.manager.add_message({"role": "assistant", "content": "Yes."})
        assert running.known.reports == 0, more


async def test_a_report_larger_than_the_window_cannot_be_true_and_teaches_nothing(running: Reporting) -> None:
    before = await running.request(lambda counted: counted + 500)
    await running.request(lambda counted: 10_000_000)
    assert len(await running.request(lambda counted: counted + 500)) > len(before)


async def refuse(running: Reporting, error: str = "ContextLengthError") -> None:
    await running.coordinator.hooks.emit(
        "provider:error", {"provider": "anthropic", "error": {"type": error, "msg": "prompt is too long"}}
    )


@pytest.mark.parametrize("newest", [True, False], ids=["it is newest", "an answer follows"])
async def test_a_retry_after_a_giant_tool_result_is_smaller_until_the_provider_takes_it(newest: bool) -> None:
    """As microsoft/amplifier #320 has it: 735,000 characters, and each retry was refused as the request before."""
    call, result = rounds(1)
    giant = {**result, "content": "".join(f"row {number}: {number * 7919:09d}\n" for number in range(33_000))[:735_000]}
    messages = [{"role": "user", "content": "Read the table."}, call, giant]
    messages += [] if newest else [{"role": "assistant", "content": "I read it."}]
    running = await Reporting().mounted(messages)
    running.asked_for = provider(window=400_000)
    sizes: list[int] = []
    while not sizes or sizes[-1] > 5_000:  # what the provider takes, far less than what it says
        sizes.append(size(await ask(running.manager, None, running.asked_for)))
        await refuse(running)
        assert sizes == sorted(set(sizes), reverse=True)
    assert sizes[0] > 30_000
    original = await running.manager.recall("m3")
    assert original is not None
    assert original["content"] == giant["content"]


async def test_other_errors_and_refusals_of_another_model_do_not_shrink_the_view(running: Reporting) -> None:
    before = await ask(running.manager, None, provider("openai"))
    await refuse(running, "RateLimitError")
    await ask(running.manager, None, running.asked_for)
    await refuse(running)
    assert size(await ask(running.manager, None, provider("openai"))) == size(before)


async def test_an_assistants_entry_carries_what_the_event_says_but_where_the_message_says_it_itself(
    running: Reporting,
) -> None:
    own = {"model": "model-2", "usage": {"input_tokens": 11, "output_tokens": 3}, "error": "cut off"}
    answers: list[Any] = []
    for metadata in ({}, own):
        await ask(running.manager, None, running.asked_for)
        await running.respond(5_000, finish_reason="stop", usage={"cache_read_tokens": 400, "cache_write_tokens": 30})
        await running.manager.add_message({"role": "assistant", "content": "Yes.", "metadata": metadata})
        answers.append(running.manager.snapshot()[-1].response)
    assert answers[0] == Response("model-1", "anthropic", Usage(5_000, 7, 400, 30), "stop")
    assert (answers[1].model, answers[1].provider, answers[1].error) == ("model-2", "anthropic", "cut off")
    assert answers[1].usage.input_tokens == 11


async def test_after_the_session_nothing_is_heard_any_more(running: Reporting) -> None:
    await ask(running.manager, None, running.asked_for)
    await running.cleanup()
    await running.respond(9)
    await running.manager.add_message({"role": "assistant", "content": "Yes."})
    assert running.known.reports == 0
