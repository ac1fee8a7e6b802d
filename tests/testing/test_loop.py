"""The loop and the provider without a model: what they store, answer, report and announce, and how they stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_core.llm_errors import RateLimitError
from amplifier_core.message_models import ChatRequest, Message, ToolSpec
from amplifier_core.models import HookResult, ToolResult
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation import OrchestratorValidator, ProviderValidator
from amplifier_core.validation.behavioral import OrchestratorBehaviorTests, ProviderBehaviorTests

from amplifier_context_testing import EventRecorder, ListContext, ReplayLoop, ReplayProvider, WordCounter
from amplifier_context_testing.replay import loop as loop_module
from amplifier_context_testing.replay import provider as provider_module
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


class TestLoopContract(OrchestratorBehaviorTests):
    """The kernel's own suite; it finds modules by folder, so the fixture mounts ours."""

    @pytest.fixture
    async def orchestrator_module(self) -> ReplayLoop:
        coordinator = MockCoordinator()
        await loop_module.mount(coordinator, {})
        return coordinator.get("orchestrator")


async def test_the_kernels_validator_passes_the_loop() -> None:
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


# -- the provider ------------------------------------------------------------------------------------------------------


HI = {"role": "user", "content": "Hi there."}


def ask(*messages: dict[str, Any], tools: list[ToolSpec] | None = None) -> ChatRequest:
    return ChatRequest(messages=[Message(**message) for message in messages or (HI,)], tools=tools)


def provider(**config: Any) -> ReplayProvider:
    return ReplayProvider(config, counter=WordCounter())


class TestProviderContract(ProviderBehaviorTests):
    """The kernel's own suite; it finds modules by folder, so the fixture mounts ours."""

    @pytest.fixture
    async def provider_module(self) -> ReplayProvider:
        coordinator = MockCoordinator()
        await provider_module.mount(coordinator, {})
        return coordinator.get("providers")["replay"]


async def test_the_kernels_validator_passes_the_provider() -> None:
    result = await ProviderValidator().validate("amplifier_context_testing.replay.provider", config={"script": ["Hi."]})
    assert result.passed, result.summary()


async def test_a_script_is_answered_in_order_and_ends_politely() -> None:
    replay = provider(script=["One.", {"text": "Two.", "calls": [{"tool": "read", "arguments": {"path": "a"}}]}])
    first, second, third = [await replay.complete(ask()) for _ in range(3)]
    assert first.content[0].text == "One."
    assert first.finish_reason == "stop"
    assert [(call.name, call.arguments) for call in replay.parse_tool_calls(second)] == [("read", {"path": "a"})]
    assert [block.type for block in second.content] == ["text", "tool_call"]
    assert second.content[1].id == second.tool_calls[0].id
    assert third.content[0].text == "(end of the script)"


async def test_an_exception_in_a_script_is_raised_in_place_of_an_answer() -> None:
    replay = provider(script=[RateLimitError("too fast", provider="replay"), "One."])
    with pytest.raises(RateLimitError):
        await replay.complete(ask())
    assert (await replay.complete(ask())).content[0].text == "One."


async def test_usage_is_reported_on_llm_response_as_plain_numbers_with_cache_reads() -> None:
    coordinator = MockCoordinator()
    recorder = EventRecorder(coordinator)
    await provider_module.mount(coordinator, {"script": ["One two.", "Three."], "model": "m-1"})
    replay = coordinator.get("providers")["replay"]
    await replay.complete(ask(HI))
    response = await replay.complete(ask(HI, {"role": "assistant", "content": "One two."}, HI))
    first, second = recorder.named("llm:response")
    assert set(second["usage"]) == {"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"}
    assert (second["provider"], second["model"], second["status"]) == ("replay", "m-1", "ok")
    assert first["usage"]["cache_read_tokens"] == 0
    assert second["usage"]["cache_read_tokens"] == first["usage"]["input_tokens"]
    assert second["usage"]["input_tokens"] == response.usage.input_tokens > first["usage"]["input_tokens"]
    assert isinstance(second["duration_ms"], int)
    assert second["request_id"] == recorder.named("llm:request")[1]["request_id"]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"context_window": 0}, "context_window is 0"),
        ({"max_output_tokens": "many"}, "max_output_tokens is 'many'"),
        ({"script": 3}, "`script` is a list"),
        ({"script": "nowhere"}, "module:factory"),
    ],
)
def test_a_config_that_cannot_be_is_named(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ReplayProvider(config)
