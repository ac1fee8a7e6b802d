"""What providers report reaches the meter through the kernel's hooks, and from there the next view."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core.testing import MockCoordinator

from amplifier_context_core import ContextManager
from amplifier_context_core.kernel import mount_manager
from tests.managers import ask, feed, new_manager
from tests.messages import Message, rounds, size, work


def provider(name: str = "anthropic", window: int = 100_000) -> Any:
    defaults = {"context_window": window, "max_output_tokens": 1_000, "model": "model-1"}
    return SimpleNamespace(name=name, get_info=lambda: SimpleNamespace(defaults=defaults))


class Session:
    """A manager in a session whose provider reports what it likes."""

    def __init__(self, manager: ContextManager) -> None:
        self.manager = manager
        self.coordinator = MockCoordinator()
        self.asked_for: Any = provider()

    async def mounted(self) -> Session:
        await mount_manager(self.coordinator, self.manager, "context-test")
        return self

    async def respond(self, tokens: int, **more: Any) -> None:
        usage = {"input_tokens": tokens, "output_tokens": 7, **more.pop("usage", {})}
        data = {"provider": "anthropic", "model": "model-1", "status": "ok", "usage": usage, **more}
        await self.coordinator.hooks.emit("llm:response", data)

    async def request(self, reported: Callable[[int], int]) -> list[Message]:
        """A request, its response event with what the provider reports of our count, and the answer stored."""
        view = await ask(self.manager, None, self.asked_for)
        await self.respond(reported(size(view)))
        await self.manager.add_message({"role": "assistant", "content": "Yes."})
        await self.manager.add_message({"role": "user", "content": "Next?"})
        return view

    @property
    def known(self) -> Any:
        return self.manager.session.meter.correction(("anthropic", "model-1"))


@pytest.fixture
async def running() -> Session:
    manager = await feed(new_manager(), work(20))
    return await Session(manager).mounted()


async def test_a_side_call_between_view_and_answer_is_not_counted(running: Session) -> None:
    view = await ask(running.manager, None, running.asked_for)
    await running.respond(150)  # a session's name, made up meanwhile
    await running.respond(size(view) + 3_000)
    await running.respond(90)  # a check whether the goal is met
    await running.manager.add_message({"role": "assistant", "content": "Yes."})
    assert running.known.reports == 1
    assert running.known.offset == pytest.approx(3_000, rel=0.05)
    counted = size(await ask(running.manager, None, running.asked_for))
    estimate = running.manager.session.meter.estimate(counted, ("anthropic", "model-1"))
    assert estimate == pytest.approx(counted + 3_000, rel=0.05)


@pytest.mark.parametrize(
    ("tokens", "more"),
    [
        (9, {"usage": {"input_tokens": None}}),
        (9, {"usage": {"input_tokens": "5"}}),
        (9, {"usage": {"input_tokens": -5}}),
        (90_000, {"status": "error"}),
        (150, {}),
    ],
    ids=["no usage", "usage as text", "negative", "a failed response", "a side call alone"],
)
async def test_a_report_that_cannot_be_of_the_view_teaches_nothing(
    running: Session, tokens: int, more: dict[str, Any]
) -> None:
    view = await ask(running.manager, None, running.asked_for)
    assert size(view) > 10 * 150
    await running.respond(tokens, **more)
    await running.manager.add_message({"role": "assistant", "content": "Yes."})
    assert running.known.reports == 0


async def test_a_report_larger_than_the_window_cannot_be_true_and_teaches_nothing(running: Session) -> None:
    before = await running.request(lambda counted: counted + 500)
    await running.request(lambda counted: 10_000_000)
    assert len(await running.request(lambda counted: counted + 500)) > len(before)


# --- refusals ---------------------------------------------------------------------------------------------------------


async def refuse(running: Session, error: str = "ContextLengthError") -> None:
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
    running = await Session(await feed(new_manager(), messages)).mounted()
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


async def test_other_errors_and_refusals_of_another_model_do_not_shrink_the_view(running: Session) -> None:
    before = await ask(running.manager, None, provider("openai"))
    await refuse(running, "RateLimitError")
    await ask(running.manager, None, running.asked_for)
    await refuse(running)
    assert size(await ask(running.manager, None, provider("openai"))) == size(before)


# --- what entries carry -----------------------------------------------------------------------------------------------


async def test_an_assistants_entry_carries_model_provider_usage_and_finish_reason(running: Session) -> None:
    await ask(running.manager, None, running.asked_for)
    await running.respond(5_000, finish_reason="stop", usage={"cache_read_tokens": 400, "cache_write_tokens": 30})
    await running.manager.add_message({"role": "assistant", "content": "Yes."})
    response = running.manager.snapshot()[-1].response
    assert response is not None
    assert (response.provider, response.model, response.finish_reason) == ("anthropic", "model-1", "stop")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (5_000, 7)
    assert (response.usage.cache_read_tokens, response.usage.cache_write_tokens) == (400, 30)


async def test_what_the_message_says_itself_goes_before_the_event(running: Session) -> None:
    await ask(running.manager, None, running.asked_for)
    await running.respond(5_000)
    metadata = {"model": "model-2", "usage": {"input_tokens": 11, "output_tokens": 3}, "error": "cut off"}
    await running.manager.add_message({"role": "assistant", "content": "Yes.", "metadata": metadata})
    response = running.manager.snapshot()[-1].response
    assert response is not None
    assert (response.model, response.provider, response.error) == ("model-2", "anthropic", "cut off")
    assert response.usage is not None
    assert response.usage.input_tokens == 11


async def test_after_the_session_nothing_is_heard_any_more() -> None:
    manager = await feed(new_manager(), work(2))
    coordinator = MockCoordinator()
    cleanup = await mount_manager(coordinator, manager, "context-test")
    await ask(manager, None, provider())
    await cleanup()
    await coordinator.hooks.emit(
        "llm:response", {"provider": "anthropic", "model": "model-1", "status": "ok", "usage": {"input_tokens": 9}}
    )
    await manager.add_message({"role": "assistant", "content": "Yes."})
    assert manager.session.meter.correction(("anthropic", "model-1")).reports == 0
