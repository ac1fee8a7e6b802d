"""Sessions without a model: what loop and provider store, answer and announce, and what recordings are read."""

import asyncio
import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from amplifier_core.llm_errors import RateLimitError
from amplifier_core.message_models import ChatRequest, Message
from amplifier_core.models import ContextInjection, HookResult, ToolResult
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation.behavioral import OrchestratorBehaviorTests, ProviderBehaviorTests

from amplifier_context_testing import (
    EventRecorder,
    ListContext,
    ReplayLoop,
    ReplayProvider,
    WordCounter,
    mount_plan,
    read_transcripts,
    session,
)
from amplifier_context_testing.fakes import mount_list
from amplifier_context_testing.replay import loop as loop_module
from amplifier_context_testing.replay import provider as provider_module
from tests.messages import says, user

pytestmark = pytest.mark.kernel
CALL = {"text": "I look.", "calls": [{"tool": "read", "arguments": {"path": "a"}}]}


class Room:
    """A loop with all around it, and a tool that returns or raises something, or runs a function."""

    def __init__(self, *script: Any, tool: Any = "the file") -> None:
        self.coordinator = MockCoordinator()
        self.hooks = self.coordinator.hooks
        self.recorder = EventRecorder(self.coordinator)
        self.context = ListContext()
        self.provider = ReplayProvider({"script": list(script)}, hooks=self.hooks, counter=WordCounter())
        acts = callable(tool) or isinstance(tool, Exception)
        run = AsyncMock(side_effect=tool) if acts else AsyncMock(return_value=tool)
        self.tools = {"read": SimpleNamespace(name="read", description="d", input_schema={}, execute=run)}

    async def run(self) -> str:
        await self.coordinator.mount("context", self.context)
        around = (self.context, {"replay": self.provider}, self.tools, self.hooks)
        return await ReplayLoop().execute("Go.", *around, coordinator=self.coordinator)


class TestLoopContract(OrchestratorBehaviorTests):
    """The kernel's own suite; it finds modules by folder, so the fixture mounts ours."""

    @pytest.fixture
    async def orchestrator_module(self) -> ReplayLoop:
        coordinator = MockCoordinator()
        await loop_module.mount(coordinator, {})
        return coordinator.get("orchestrator")


class TestProviderContract(ProviderBehaviorTests):
    @pytest.fixture
    async def provider_module(self) -> ReplayProvider:
        coordinator = MockCoordinator()
        await provider_module.mount(coordinator, {})
        return coordinator.get("providers")["replay"]


async def test_the_events_come_in_the_order_of_the_real_loops() -> None:
    room = Room(CALL, "Done.")
    await room.run()
    request = ["provider:request", "llm:request", "llm:response", "provider:response"]
    ended = ["prompt:complete", "orchestrator:complete"]
    assert room.recorder.names() == ["prompt:submit", *request, "tool:pre", "tool:post", *request, *ended]
    assert (room.recorder.last("orchestrator:complete") or {})["status"] == "success"
    assert isinstance(room.recorder.named("provider:response")[0]["usage"], str)  # as with the real loops


async def test_an_injection_of_a_hook_is_sent_once_beside_the_last_result_or_after_it() -> None:
    beside = ContextInjection(content="beside", ephemeral=True, append_to_last_tool_result=True)
    after = ContextInjection(content="after", ephemeral=True)

    room = Room(CALL, "Done.")
    injected = HookResult(action="inject_context", context_injections=[beside, after])
    room.hooks.register("tool:post", AsyncMock(return_value=injected), 0, "injecting")
    await room.run()
    assert [message["content"] for message in room.provider.last_request][-2:] == ["the file\n\nbeside", "after"]
    assert "beside" not in str(room.context.messages)


@pytest.mark.parametrize(
    ("tool", "content"),
    [
        (OSError("the disk is gone"), "Error: the disk is gone"),
        (None, "Error: there is no tool 'read'"),
        (ToolResult(success=False, error={"message": "no such file"}), "no such file"),
        (ToolResult(output={"lines": 3}), '{"lines": 3}'),
        ("bare", "bare"),
    ],
)
async def test_whatever_a_tool_does_its_call_is_answered(tool: Any, content: str) -> None:
    room = Room(CALL, "Done.", tool=tool)
    if tool is None:
        room.tools.clear()
    assert await room.run() == "Done."
    assert room.context.messages[2]["content"] == content
    assert room.recorder.count("tool:error") == content.startswith("Error")


async def test_an_immediate_cancellation_leaves_unfinished_calls_open() -> None:
    async def read(given: dict[str, Any]) -> ToolResult:
        if given["path"] != "first":
            await asyncio.sleep(0.01)
            room.coordinator.cancellation.request_immediate()
            await asyncio.sleep(30)
        return ToolResult(output=given["path"])

    calls = [{"tool": "read", "arguments": {"path": path}} for path in ("first", "second")]
    room = Room({"calls": calls}, "never written", tool=read)
    await room.run()
    assert [message["content"] for message in room.context.messages[2:]] == ["first"]
    assert room.recorder.named("cancel:completed")[0]["was_immediate"] is True
    assert room.coordinator.cancellation.running_tools == set()


def ask(*messages: dict[str, Any]) -> ChatRequest:
    return ChatRequest(messages=[Message(**message) for message in messages or (user(),)])


async def test_a_script_is_answered_in_order_exceptions_are_raised_and_it_ends_politely() -> None:
    script = ["One.", RateLimitError("too fast", provider="replay"), CALL]
    replay = ReplayProvider({"script": script}, counter=WordCounter())
    first = await replay.complete(ask())
    assert (first.content[0].text, first.finish_reason) == ("One.", "stop")
    with pytest.raises(RateLimitError):
        await replay.complete(ask())
    second = await replay.complete(ask())
    assert [(call.name, call.arguments) for call in replay.parse_tool_calls(second)] == [("read", {"path": "a"})]
    assert [block.type for block in second.content] == ["text", "tool_call"]
    assert second.content[1].id == second.tool_calls[0].id
    assert (await replay.complete(ask())).content[0].text == "(end of the script)"


def test_a_transcript_per_line_is_read_packed_or_not_and_a_message_per_line_is_one_transcript(tmp_path: Path) -> None:
    lines = [{"id": "one", "source": "here", "messages": [user()], "meta": {"n": 1}}, {"id": "two", "messages": []}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    for path, data in ((tmp_path / "a.jsonl", text.encode()), (tmp_path / "a.jsonl.gz", gzip.compress(text.encode()))):
        path.write_bytes(data)
        one, two = read_transcripts(path)
        assert (one.id, one.messages, one.source, one.meta, one.path) == ("one", [user()], "here", {"n": 1}, path)
        assert two.id == "two"
    (tmp_path / "talk.jsonl").write_text(json.dumps(user()) + "\n" + json.dumps(says()) + "\n")
    (found,) = read_transcripts(tmp_path / "talk.jsonl")
    assert (found.id, found.messages) == ("talk", [user(), says()])


async def test_a_session_answers_from_its_script_and_a_tool_that_fails_to_load_is_named() -> None:
    recorder, modules = EventRecorder(), {"context-list": mount_list}
    plan = mount_plan("context-list", script=["Hello."], tools={"tool-folder": {"path": "/no/such/folder"}})
    with pytest.raises(RuntimeError, match=r"module tool-folder: .*is not a folder"):
        async with session(plan, modules=modules):
            pass
    async with session(plan, modules=modules, recorder=recorder, strict=False) as running:
        assert await running.execute("Hi.") == "Hello."
        assert len(running.coordinator.get("context").messages) == 2
    assert recorder.names()[:2] == ["module:load_failed", "session:start"]
    assert recorder.names()[-1] == "session:end"
