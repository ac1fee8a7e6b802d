"""Whole sessions: the kernel, a loop, a provider with a small window, tools, and our memory between them."""

import asyncio
from typing import Any

import pytest
from amplifier_core import ToolResult

from amplifier_context_testing import EventRecorder, mount_plan, session
from tests.kernel.hosted import CURRENT
from tests.places import BACKENDS

# In memory, in files (the default of what is persistent) and in SQLite; on the servers the first test.
pytestmark = [pytest.mark.kernel, pytest.mark.stores()]

EVENTS = ("context:", "provider:", "llm:", "cancel:")


class Echo:
    """A tool that returns a page of text; `release` may keep it busy."""

    name, description = "echo", "Returns text."
    input_schema: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012 - what the kernel reads

    def __init__(self) -> None:
        self.started, self.release = asyncio.Event(), asyncio.Event()
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
    return [{"calls": [{"tool": "echo", "arguments": {"page": start + page}}]} for page in range(pages)]


def plan_of(script: list[Any], *, window: int = 4_000, loop: Any = None, context: Any = None, **provider: Any) -> Any:
    entry, tools = CURRENT.entry(safety_margin=100, **(context or {})), {"tool-echo": {}}
    provider = {"check": True, **provider}
    return mount_plan(entry, script=script, window=window, loop=loop, provider=provider, tools=tools)


def replay_of(running: Any) -> Any:
    return running.coordinator.get("providers")["replay"]


@pytest.mark.stores(*BACKENDS)
async def test_a_session_outgrows_its_window_several_times_and_every_request_is_valid() -> None:
    recorder = EventRecorder(only=EVENTS)
    script = [answer for turn in range(3) for answer in (*reading(25, 25 * turn), "Read.")]
    plan = plan_of(script, loop={"style": "basic" if CURRENT.module == "context-simple" else "streaming"})
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


@pytest.mark.parametrize(
    ("immediate", "closing", "on_interrupt"),
    [(False, None, "keep"), (True, "The turn was cancelled.", "discard"), (True, None, "repair")],
)
async def test_a_session_goes_on_after_a_cancellation_in_the_middle_of_a_call(
    immediate: bool, closing: str | None, on_interrupt: str
) -> None:
    tool = Echo()
    script = [*reading(3), "Read.", *reading(3, 10), *reading(2, 20), "Read on."]
    plan = plan_of(script, loop={"closing_message": closing}, context={"on_interrupt": on_interrupt})
    async with session(plan, modules=echo_module(tool)) as running:
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
        tool.release.set()
        running.coordinator.cancellation.reset()
        await manager.set_messages(await manager.get_messages())  # as a host does before every turn
        assert await running.execute("Go on.") == "Read on."
        history = await manager.get_messages()
        assert history[: len(before)] == before
        assert ("Read three more." in [one["content"] for one in history]) is (on_interrupt != "discard")
        assert replay_of(running).violations == []


async def test_a_provider_that_takes_less_than_it_declares_is_answered_by_a_smaller_view() -> None:
    """It declares 8,000 tokens and refuses above 3,000."""
    recorder = EventRecorder(only=EVENTS)
    loop = {"retry_on_overflow": True, "overflow_share": 0.3}
    plan = plan_of([*reading(60), "Read."], window=8_000, real_window=3_000, loop=loop)
    async with session(plan, modules=echo_module(Echo()), recorder=recorder) as running:
        assert await running.execute("Read sixty pages.") == "Read."
        assert replay_of(running).violations == []
    refused = recorder.count("provider:error")
    assert 1 <= refused <= 4  # learned: it is not run into again and again


async def test_a_person_looks_previews_compacts_a_range_pins_and_undoes_between_the_turns() -> None:
    recorder = EventRecorder(only=EVENTS)
    script = [answer for pages in (10, 10, 2, 2) for answer in (*reading(pages), "Read.")]
    async with session(plan_of(script, window=10_000), modules=echo_module(Echo()), recorder=recorder) as running:
        recorder.attach(running.coordinator, ["context:prefix_changed"])

        async def turn() -> int:
            """Return how often the prefix has changed so far."""
            assert await running.execute("Prompt.") == "Read."
            return recorder.count("context:prefix_changed")

        async def call(name: str, *given: Any, **named: Any) -> Any:
            return await running.coordinator.get_capability(f"context.{name}")(*given, **named)

        await turn()
        assert "compaction in" in await call("describe")
        await turn()
        said = await call("preview", last="m13")
        assert recorder.count("context:prefix_changed") == 0  # to look changes nothing
        done = await call("compact", last="m13")
        assert (done["compacted"], done["after_tokens"]) == (True, said["after_tokens"])
        assert await turn() == 1
        await call("pin", "m17")
        assert (await call("undo", "m5"))["undone"]
        assert await turn() == 2  # the chapter's originals are back
        assert replay_of(running).violations == []
        assert [row["trigger"] for row in await call("compactions")] == ["manual"]
        usage = await call("usage")
        assert (usage["kinds"]["pins"] > 0, usage["reported"] is not None) == (True, True)
