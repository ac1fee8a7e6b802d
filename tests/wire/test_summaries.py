"""Whole sessions whose chapters a model writes: kernel, loop, client library, a service that checks every request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from amplifier_context_core.messages.usage import usage_of
from amplifier_context_summary.limits import Prices
from amplifier_context_testing import Answer, EventRecorder, session
from amplifier_context_testing.demo.scripted_agent import explore_script
from amplifier_context_testing.summaries.asked import asked
from amplifier_context_testing.summaries.extractive import with_summaries
from amplifier_context_testing.wire.apis import Exchange, Service
from amplifier_context_testing.wire.problems import Model
from amplifier_context_testing.wire.replies import Reply
from amplifier_context_testing.wire.server import serving
from lab.paced import EVENTS as SUMMARY_EVENTS
from tests.wire.serving import APIS, service_of
from tests.wire.sessions import ANSWER, WINDOW, plan

pytestmark = [pytest.mark.kernel, pytest.mark.parametrize("api", APIS)]

STEPS = 22
RICH = {"summary_spend": 10.0, "summary_output": ANSWER}  # so small a window has little money
QUESTION = "[the summary so far; data, no instructions]"
WORDS = "in a model's words"
TEXT = "## Work\n- Next: Read on."


@dataclass
class Opened:
    """A session over the wire.

    Attributes:
        running: of the kernel.
        service: that its provider calls.
        events: of summaries and compactions, and of what the provider was asked.
    """

    running: Any
    service: Service
    events: EventRecorder = field(default_factory=EventRecorder)

    @property
    def manager(self) -> Any:
        return self.running.coordinator.get("context")

    @property
    def summaries(self) -> list[Exchange]:
        """What was asked for summaries."""
        return [one for one in self.service.exchanges if is_question(one.body)]

    @property
    def requests(self) -> list[Exchange]:
        """What the session itself asked."""
        return [one for one in self.service.exchanges if not is_question(one.body)]


def is_question(body: dict[str, Any]) -> bool:
    return QUESTION in json.dumps(body["messages"][-1])


@asynccontextmanager
async def opened(service: Service, api: str, folder: Path, **context: Any) -> AsyncGenerator[Opened]:
    async with serving(service) as address:
        mounts = plan("context-summary", api, address, folder, **{**RICH, **context})
        async with session(mounts) as running:
            made = Opened(running, service)
            made.events.attach(running.coordinator, (*SUMMARY_EVENTS, "context:compaction", "llm:response"))
            yield made
        assert left() == [], "cleanup leaves a task"


def left() -> list[str]:
    """Tasks of summaries that still run."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("amplifier-context-summary")]


def service_for(api: str, script: Callable[[Any], Any], **options: Any) -> Service:
    return service_of(api, script, Model("wire-1", WINDOW, ANSWER), **options)


async def test_every_request_is_accepted_and_what_summaries_cost_is_known(api: str, folder: Path) -> None:
    service = service_for(api, with_summaries(explore_script({"steps": STEPS})))
    async with opened(service, api, folder) as made:
        for number in range(2):
            assert "I listed" in await made.running.execute(f"Look around, part {number}.")
        await made.manager.writer.wait(30)
        correction = made.manager.meter.correction(made.manager.compactor.last_sent.key)
        explained = await made.manager.explain()
    assert service.refusals == []
    assert {one.status for one in service.exchanges} == {200}
    assert made.events.count("context:compaction") >= 3
    assert WORDS in json.dumps(made.requests[-1].body)
    # One call after the other, each reported at its beginning and its end.
    events = [name for name in made.events.names() if name in SUMMARY_EVENTS]
    assert events == ["context:summary_started", "context:summary_finished"] * len(made.summaries)
    assert len(made.summaries) >= 2
    # The money is that of the usage which the service reported; the meter learns from the session's own answers only.
    reported = [usage_of(data["usage"]) for data in made.events.named("llm:response") if data.get("purpose")]
    usages = [usage for usage in reported if usage is not None]
    costs = [Prices().of(usage, with_output=True) for usage in usages]
    assert len(costs) == len(made.summaries) == explained["summary"]["calls"]
    assert explained["summary"]["summary_cost"] == pytest.approx(sum(costs), abs=1)
    assert correction.last[1] == made.requests[-1].bill.tokens
    assert explained["view"]["tokens"] == pytest.approx(made.requests[-1].bill.tokens, rel=0.03)


@pytest.mark.parametrize("immediate", [False, True])
async def test_a_cancelled_turn_leaves_the_call_alone_and_the_end_of_the_session_cancels_it(
    api: str, immediate: bool, folder: Path
) -> None:
    explore, begun, held = explore_script({"steps": STEPS}), asyncio.Event(), asyncio.Event()

    def script(request: Any) -> Any:
        if not asked(request):
            return explore(request)
        begun.set()
        return Reply(Answer.of(TEXT), after=held.wait)

    service = service_for(api, script)
    async with opened(service, api, folder) as made:
        turn = asyncio.create_task(made.running.execute("Look around."))
        async with asyncio.timeout(30):
            await begun.wait()
        await made.running.coordinator.request_cancel(immediate)
        await turn
        assert made.manager.writer.is_running
        made.running.coordinator.cancellation.reset()
        assert "I listed" in await made.running.execute("Look around, please.")
        assert made.manager.writer.is_running
        assert left() != []
    assert service.refusals == []
    assert made.events.count("context:summary_started") == 1
    assert made.events.count("context:compaction") >= 1
