"""Whole sessions: the kernel, a loop, a provider with a small window, tools, and our memory between them."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest
from amplifier_core import ToolResult

from amplifier_context_testing import EventRecorder, check_request, mount_plan, session
from tests.kernel.mounted import CURRENT
from tests.places import BACKENDS

# In memory, in files (the default of what is persistent) and in SQLite; on the servers the first test.
pytestmark = [pytest.mark.kernel, pytest.mark.stores()]

EVENTS = ("context:", "provider:", "llm:", "cancel:")


class Echo:
    """A tool that returns a page of text; `wait` keeps it busy."""

    name = "echo"
    description = "Returns text."
    input_schema: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012 - what the kernel reads

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        self.started.set()
        await self.release.wait()
        return ToolResult(success=True, output=f"page {input.get('page')}: " + f"word{input.get('page')} " * 150)


def echo_module(tool: Echo) -> dict[str, Any]:
    async def mount(coordinator: Any, config: Any = None) -> None:
        await coordinator.mount("tools", tool, name=tool.name)

    return {"tool-echo": mount}


def reading(pages: int, start: int = 0) -> list[dict[str, Any]]:
    """Answers that read page after page."""
    return [{"calls": [{"tool": "echo", "arguments": {"page": start + page}}]} for page in range(pages)]


def plan_of(script: list[Any], *, window: int = 4_000, loop: dict[str, Any] | None = None, **provider: Any) -> Any:
    context = CURRENT.entry(safety_margin=100, **provider.pop("context", {}))
    return mount_plan(
        context,
        script=script,
        window=window,
        loop=loop,
        provider={"check": True, **provider},
        tools={"tool-echo": {}},
    )


def replay_of(running: Any) -> Any:
    return running.coordinator.get("providers")["replay"]


@pytest.mark.stores(*BACKENDS)
@pytest.mark.few_elsewhere("style", ["basic", "streaming"], ["streaming"])
async def test_a_session_outgrows_its_window_several_times_and_every_request_is_valid(style: str) -> None:
    recorder = EventRecorder(only=EVENTS)
    script = [answer for turn in range(3) for answer in (*reading(25, 25 * turn), "Read.")]
    plan = plan_of(script, loop={"style": style})
    async with session(plan, modules=echo_module(Echo()), recorder=recorder) as running:
        assert [await running.execute(f"Prompt {turn}.") for turn in range(3)] == ["Read."] * 3
        provider = replay_of(running)
        manager = running.coordinator.get("context")
        assert provider.violations == []
        assert provider.requests == 78
        assert recorder.count("provider:error") == 0
        assert recorder.count("context:compaction") >= 2
        assert all(weight.tokens <= 4_000 for weight in provider.weights)
        report = await manager.explain()
        assert report["compactions"] == recorder.count("context:compaction")
        assert report["view"]["figure"] == "measured"
        history = await manager.get_messages()
    assert len([message for message in history if message["role"] == "tool"]) == 75
    assert all(f"word{page} " in history[2 + 2 * page]["content"] for page in range(25))


CANCELLATIONS = [
    *map("-".join, product(("graceful", "immediate"), ("silent", "closing"), ("keep", "discard", "repair")))
]


@pytest.mark.few_elsewhere(
    "cancellation", CANCELLATIONS, ["graceful-silent-keep", "immediate-closing-discard", "immediate-silent-repair"]
)
async def test_a_session_goes_on_after_a_cancellation_in_the_middle_of_a_call(cancellation: str) -> None:
    how, last_word, on_interrupt = cancellation.split("-")
    immediate = how == "immediate"
    closing = "The turn was cancelled." if last_word == "closing" else None
    tool = Echo()
    recorder = EventRecorder(only=EVENTS)
    script = [*reading(3), "Read.", *reading(3, 10), *reading(2, 20), "Read on."]
    plan = plan_of(script, loop={"closing_message": closing}, context={"on_interrupt": on_interrupt})
    async with session(plan, modules=echo_module(tool), recorder=recorder) as running:
        await running.execute("Read three.")
        manager = running.coordinator.get("context")
        before = await manager.get_messages()
        tool.release.clear()
        tool.started.clear()
        turn = asyncio.create_task(running.execute("Read three more."))
        async with asyncio.timeout(10):
            await tool.started.wait()
            await running.coordinator.request_cancel(immediate)
            if not immediate:
                tool.release.set()
            await turn
        assert recorder.count("cancel:completed") == 2
        tool.release.set()
        running.coordinator.cancellation.reset()
        # The host repairs: reads the history and sets it again, as it does before every turn.
        await manager.set_messages(await manager.get_messages())
        assert await running.execute("Go on.") == "Read on."
        history = await manager.get_messages()
        assert history[: len(before)] == before
        assert ("Read three more." in [message["content"] for message in history]) is (on_interrupt != "discard")
        assert replay_of(running).violations == []
        assert check_request(await manager.get_messages_for_request()) == []


async def test_a_task_that_is_cancelled_leaves_a_session_that_goes_on() -> None:
    tool = Echo()
    plan = plan_of([*reading(2), *reading(1, 9), "Read on."])
    async with session(plan, modules=echo_module(tool)) as running:
        tool.release.clear()
        turn = asyncio.create_task(running.execute("Read."))
        await tool.started.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        tool.release.set()  # the kernel's engine does not stop the loop: both turns run on, in one history
        assert await running.execute("Go on.")
        assert replay_of(running).violations == []


async def test_a_provider_that_takes_less_than_it_declares_is_answered_by_a_smaller_view() -> None:
    """It declares 8,000 tokens and refuses above 3,000."""
    recorder = EventRecorder(only=EVENTS)
    plan = plan_of(
        [*reading(60), "Read."],
        window=8_000,
        real_window=3_000,
        loop={"retry_on_overflow": True, "overflow_share": 0.3},
    )
    async with session(plan, modules=echo_module(Echo()), recorder=recorder) as running:
        assert await running.execute("Read sixty pages.") == "Read."
        assert replay_of(running).violations == []
    refused = recorder.count("provider:error")
    assert 1 <= refused <= 4  # learned: it is not run into again and again


async def test_a_person_looks_previews_compacts_a_range_pins_and_undoes_between_the_turns() -> None:
    recorder = EventRecorder(only=EVENTS)
    script = [answer for pages in (10, 10, 2, 2, 2) for answer in (*reading(pages), "Read.")]
    plan = plan_of(script, window=10_000)
    async with session(plan, modules=echo_module(Echo()), recorder=recorder) as running:
        capability = running.coordinator.get_capability
        recorder.attach(running.coordinator, ["context:prefix_changed"])
        breaks = [recorder.count("context:prefix_changed")]

        async def turn(number: int) -> None:
            assert await running.execute(f"Prompt {number}.") == "Read."
            breaks.append(recorder.count("context:prefix_changed"))

        await turn(0)
        text = await capability("context.describe")()
        assert "compaction in" in text
        await turn(1)
        said = await capability("context.preview")(last="m13")
        assert breaks[-1] == 0  # to look changes nothing
        done = await capability("context.compact")(last="m13")
        assert (done["compacted"], done["after_tokens"]) == (True, said["after_tokens"])
        await turn(2)
        assert breaks[-1] == 1
        await capability("context.pin")("m17")
        assert (await capability("context.undo")("m5"))["undone"]
        await turn(3)
        assert breaks[-1] == 2  # the chapter's originals are back
        await turn(4)
        assert breaks[-1] == 2
        provider = replay_of(running)
        assert provider.violations == []
        assert provider.requests == len(script)
        assert recorder.count("provider:error") == 0
        assert [row["trigger"] for row in await capability("context.compactions")()] == ["manual"]
        usage = await capability("context.usage")()
        assert usage["kinds"]["pins"] > 0
        assert usage["reported"] is not None
