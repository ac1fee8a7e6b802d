"""The loop: what it stores, what it announces, and how it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_core.models import HookResult, ToolResult
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation import OrchestratorValidator
from amplifier_core.validation.behavioral import OrchestratorBehaviorTests

from amplifier_context_testing import EventRecorder, ListContext, ReplayLoop, ReplayProvider, WordCounter
from amplifier_context_testing.replay import loop as module
from amplifier_context_testing.replay.loop import LoopConfig

pytestmark = pytest.mark.kernel

CALL = {"text": "I look.", "calls": [{"tool": "read", "arguments": {"path": "a"}}]}


class Tool:
    """A tool of a test: calls what it is given."""

    description = "does what the test says"
    input_schema: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012 - read only

    def __init__(self, run: Callable[[dict[str, Any]], Any], name: str = "read") -> None:
        self.name = name
        self._run = run

    async def execute(self, input: dict[str, Any]) -> Any:
        found = self._run(input)
        return await found if asyncio.iscoroutine(found) else found


class Room:
    """A loop with all around it, and shorthand to look at what happened."""

    def __init__(
        self, *script: Any, tools: list[Tool] | None = None, provider: dict[str, Any] | None = None, **loop: Any
    ) -> None:
        self.coordinator = MockCoordinator()
        self.recorder = EventRecorder(self.coordinator)
        self.context = ListContext()
        config = {"script": list(script), **(provider or {})}
        self.provider = ReplayProvider(config, hooks=self.coordinator.hooks, counter=WordCounter())
        self.tools = {tool.name: tool for tool in tools or [Tool(lambda given: ToolResult(output="the file"))]}
        self.loop = ReplayLoop(LoopConfig(**loop))

    async def run(self, prompt: str = "Go.", coordinator: bool = True) -> str:
        await self.coordinator.mount("context", self.context)
        return await self.loop.execute(
            prompt,
            self.context,
            {"replay": self.provider},
            self.tools,
            self.coordinator.hooks,
            coordinator=self.coordinator if coordinator else None,
        )

    def on(self, event: str, result: HookResult) -> None:
        async def handler(name: str, data: dict[str, Any]) -> HookResult:
            return result

        self.coordinator.hooks.register(event, handler, 0, f"test-{event}")

    @property
    def roles(self) -> list[str]:
        return [message["role"] for message in self.context.messages]

    @property
    def sent(self) -> list[str]:
        return [str(message["content"]) for message in self.provider.last_request]


class TestKernelContract(OrchestratorBehaviorTests):
    """The kernel's own suite; it finds modules by folder, so the fixture mounts ours."""

    @pytest.fixture
    async def orchestrator_module(self) -> ReplayLoop:
        coordinator = MockCoordinator()
        await module.mount(coordinator, {})
        return coordinator.get("orchestrator")


async def test_the_kernels_validator_passes_it() -> None:
    result = await OrchestratorValidator().validate("amplifier_context_testing.replay.loop")
    assert result.passed, result.summary()


async def test_the_events_come_in_the_order_of_the_real_loops() -> None:
    room = Room(CALL, "Done.")
    await room.run()
    assert room.recorder.names() == [
        "prompt:submit",
        "provider:request",
        "llm:request",
        "llm:response",
        "provider:response",
        "tool:pre",
        "tool:post",
        "provider:request",
        "llm:request",
        "llm:response",
        "provider:response",
        "prompt:complete",
        "orchestrator:complete",
    ]
    assert (room.recorder.last("orchestrator:complete") or {})["status"] == "success"
    assert isinstance(room.recorder.named("provider:response")[0]["usage"], str)  # as with the real loops


def fail(given: dict[str, Any]) -> Any:
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("tools", "content"),
    [
        ([Tool(fail)], "Error: the disk is gone"),
        ([Tool(lambda given: ToolResult(output=""), name="other")], "Error: there is no tool 'read'"),
        ([Tool(lambda given: ToolResult(success=False, error={"message": "no such file"}))], "no such file"),
        ([Tool(lambda given: ToolResult(output={"lines": 3}))], '{"lines": 3}'),
        ([Tool(lambda given: "bare")], "bare"),
    ],
)
async def test_whatever_a_tool_does_its_call_is_answered(tools: list[Tool], content: str) -> None:
    room = Room(CALL, "Done.", tools=tools)
    assert await room.run() == "Done."
    assert room.context.messages[2]["content"] == content
    assert room.recorder.count("tool:error") == (1 if content.startswith("Error") else 0)


def cancelling(room: Room, *, immediate: bool) -> Callable[[dict[str, Any]], Any]:
    async def read(given: dict[str, Any]) -> ToolResult:
        if given["path"] == "first":
            return ToolResult(output="first")
        cancellation = room.coordinator.cancellation
        cancellation.request_immediate() if immediate else cancellation.request_graceful()
        await asyncio.sleep(30 if immediate else 0)
        return ToolResult(output="second")

    return read


TWO = {"calls": [{"tool": "read", "arguments": {"path": path}} for path in ("first", "second")]}


async def test_an_immediate_cancellation_leaves_unfinished_calls_open() -> None:
    room = Room(TWO, "never written")
    room.tools = {"read": Tool(cancelling(room, immediate=True))}
    await room.run()
    assert [message["content"] for message in room.context.messages[2:]] == ["first"]
    assert room.recorder.named("cancel:completed")[0]["was_immediate"] is True
    assert room.coordinator.cancellation.running_tools == set()
