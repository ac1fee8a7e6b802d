"""What providers report: of their caches, tested with the lab's models of these, and usage that reaches the meter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookRegistry

from amplifier_context_core import ContextManager
from amplifier_context_core.messages.usage import Response, Usage
from amplifier_context_core.view.usage_reports import SETTING
from amplifier_context_testing import EventRecorder
from amplifier_context_testing.caches import Cache, caches
from amplifier_context_testing.caches.request import Request
from amplifier_context_testing.caches.token_scale import TokenScale
from tests.manager.reporting import KEY, Reporting, provider
from tests.managers import ToolHost, ask, feed, new_manager
from tests.messages import rounds, says, size, system, user, work

BUDGET = 16_000
ANTHROPIC, OPENAI = ("anthropic", "claude-opus-5"), ("openai", "gpt-5.6")


class Loop:
    """A loop that asks a provider, whose cache is one of the lab's models, and reports its usage."""

    def __init__(self, cache: str, key: tuple[str, str] = ANTHROPIC, hooks: Any = None) -> None:
        self.manager: ContextManager = new_manager(hooks=hooks)
        self.cache: Cache = caches()[cache]
        self.scale = TokenScale()
        self.provider = SimpleNamespace(name=key[0], default_model=key[1])
        self.now = 0.0
        self.number = 0

    async def ask(self) -> None:
        view = await self.manager.get_messages_for_request(BUDGET, self.provider)
        bill = self.cache.bill(Request.of(view, self.scale), self.now)
        usage = Usage(bill.read + bill.fresh, 10, bill.read, bill.written)
        self.manager.on_response(Response("m", self.provider.name, usage, "stop", None))

    async def work(self, number: int, output: int = 2_400) -> Loop:
        await feed(self.manager, [system(), *work(1, output=output)])
        for start in range(1, number + 1):
            await self.ask()
            await feed(self.manager, rounds(1, start=start, output=output))
        return self


@pytest.mark.parametrize(
    ("cache", "key"),
    [("anthropic", ANTHROPIC), ("declared", ANTHROPIC), ("prefix", ANTHROPIC), ("openai", OPENAI)],
)
async def test_the_trap_of_provider_anthropic_alone_is_recognised_and_the_setting_named_once(
    cache: str, key: tuple[str, str]
) -> None:
    hooks = HookRegistry()
    recorder = EventRecorder(hooks, ["context:warning"])
    loop = await Loop(cache, key, hooks).work(140)
    health, compactions = await loop.manager.cache_health(), loop.manager.compactor.compactions
    assert compactions > 2
    warned = [event["message"] for event in recorder.named("context:warning") if event["reason"] == "cache setting"]
    if cache == "anthropic":
        assert health["breaks"]["provider setting"] > 2
        assert [SETTING in text for text in (health["advice"], *warned)] == [True, True]
    else:
        assert (health["advice"], warned, health["breaks"].get("provider setting")) == ("", [], None)
    if cache == "declared":
        assert health["breaks"] == {"compaction": compactions}
        assert health["read"] > 0.8 * health["tokens"]
    await loop.manager.clear()
    assert await loop.manager.cache_health() == await new_manager().cache_health(), "a cleared session begins again"


async def later(loop: Loop) -> None:
    """A message that comes later; the cache forgets in the meantime."""
    await feed(loop.manager, [says()])
    then = datetime.fromisoformat(loop.manager.snapshot()[-1].completed) + timedelta(seconds=3_000)
    loop.now += 3_000
    await loop.manager.add_message(user(metadata={"timestamp": then.isoformat(timespec="milliseconds")}))


async def other_tools(loop: Loop) -> None:
    loop.manager.requests.host = ToolHost(lambda: {"t": SimpleNamespace(name="t")})


async def other_provider(loop: Loop) -> None:
    loop.provider = SimpleNamespace(name="openai")


@pytest.mark.parametrize(
    ("reason", "change"),
    [("changed tools", other_tools), ("other provider or model", other_provider), ("cold cache", later)],
)
async def test_each_change_is_named_as_what_it_is(reason: str, change: Callable[[Loop], Awaitable[None]]) -> None:
    """Other ones are in test_events.py."""
    loop = await Loop("declared").work(12)
    await change(loop)
    await loop.ask()
    await feed(loop.manager, [says()])
    health = await loop.manager.cache_health()
    assert health["breaks"] == {reason: 1}
    assert reason in health["line"]


async def test_memory_is_bounded_and_sums_are_not_cut() -> None:
    loop = await Loop("declared").work(150, output=40)
    health = await loop.manager.cache_health()
    assert (health["requests"], len(health["recent"])) == (150, 100)
    assert [row["request"] for row in health["recent"]] == [*range(51, 151)]


async def test_what_providers_report_is_summed_up_in_a_line_however_little_or_impossible() -> None:
    manager = await feed(new_manager(), work(3))
    for usage, line in (
        (None, "no usage reported yet"),
        (Usage(400, 10), "1 request, no cache reads or writes reported"),
        (Usage(400, 10, 9_000), "50% of 800 tokens"),  # no more is read than was sent
    ):
        await manager.get_messages_for_request(BUDGET)
        manager.on_response(Response("m", "p", usage, "stop", None))
        await feed(manager, [says()])
        assert (await manager.cache_health())["line"].startswith(line)
        assert (await manager.explain())["cache"] == (await manager.cache_health())["line"]


@pytest.fixture
async def running() -> Reporting:
    return await Reporting().mounted(work(20))


async def test_a_side_call_between_view_and_answer_is_not_counted(running: Reporting) -> None:
    view = await ask(running.manager, None, running.asked_for)
    await running.respond(150)  # a session's name, made up meanwhile
    await running.respond(size(view) + 3_000)
    await running.respond(90)  # a check whether the goal is met
    await running.manager.add_message(says())
    assert running.known.reports == 1
    assert running.known.offset == pytest.approx(3_000, rel=0.05)
    counted = size(await ask(running.manager, None, running.asked_for))
    estimate = running.manager.session.meter.estimate(counted, KEY)
    assert estimate == pytest.approx(counted + 3_000, rel=0.05)


@pytest.mark.parametrize(
    ("tokens", "more"),
    [
        *((9, {"usage": {"input_tokens": odd}}) for odd in (None, "5", -5)),
        (90_000, {"status": "error"}),
        (150, {}),  # a side call alone
    ],
)
async def test_a_report_that_cannot_be_of_the_view_teaches_nothing(
    running: Reporting, tokens: int, more: dict[str, Any]
) -> None:
    await ask(running.manager, None, running.asked_for)
    await running.respond(tokens, **more)
    await running.manager.add_message(says())
    assert running.known.reports == 0


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
    messages = [user("Read the table."), call, giant, *([] if newest else [says("I read it.")])]
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
        await running.manager.add_message(says(metadata=metadata))
        answers.append(running.manager.snapshot()[-1].response)
    assert answers[0] == Response("model-1", "anthropic", Usage(5_000, 7, 400, 30), "stop")
    assert (answers[1].model, answers[1].provider, answers[1].error) == ("model-2", "anthropic", "cut off")
    assert answers[1].usage.input_tokens == 11


async def test_after_the_session_nothing_is_heard_any_more(running: Reporting) -> None:
    await ask(running.manager, None, running.asked_for)
    await running.cleanup()
    await running.respond(9)
    await running.manager.add_message(says())
    assert running.known.reports == 0
