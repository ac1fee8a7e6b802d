"""What kernel 2.0 brought, through whole sessions: injections of hooks with a lifetime, beside results with images."""

from __future__ import annotations

from typing import Any

import pytest
from amplifier_core import HookResult, ToolResult
from amplifier_core.message_models import ImageBlock, TextBlock
from amplifier_core.models import ContextInjection

from amplifier_context_testing import mount_plan, session
from tests.kernel.mounted import CURRENT
from tests.messages import PNG_1X1, Message

pytestmark = pytest.mark.kernel


class Camera:
    """A tool that returns text, a picture and text again; with `plain`, text alone."""

    name = "camera"
    description = "Takes a picture."
    input_schema: Message = {"type": "object", "properties": {}}  # noqa: RUF012 - what the kernel reads

    async def execute(self, input: Message) -> ToolResult:
        number = input["number"]
        if input.get("plain"):
            return ToolResult(output=f"picture {number} as text")
        source = {"type": "base64", "media_type": "image/png", "data": PNG_1X1}
        before, after = TextBlock(text=f"picture {number}: " + "before " * 80), TextBlock(text=f"after {number}")
        return ToolResult(output="a picture", content=[before, ImageBlock(source=source), after])


async def mount_camera(coordinator: Any, config: Any = None) -> None:
    await coordinator.mount("tools", Camera(), name="camera")


def plan_of(calls: int, window: int, style: str, **arguments: Any) -> Message:
    script: list[Any] = [{"calls": [{"tool": "camera", "arguments": {"number": n, **arguments}}]} for n in range(calls)]
    return mount_plan(
        CURRENT.entry(safety_margin=100),
        script=[*script, "Seen."],
        window=window,
        loop={"style": style},
        provider={"check": True},
        tools={"camera": {}},
    )


def recorded(running: Any) -> tuple[Any, list[list[Message]]]:
    """The provider, and a list that gets the messages of each request it is sent."""
    provider = running.coordinator.get("providers")["replay"]
    sent: list[list[Message]] = []
    complete = provider.complete

    async def recording(request: Any, **options: Any) -> Any:
        sent.append([message.model_dump(exclude_none=True) for message in request.messages])
        return await complete(request, **options)

    provider.complete = recording
    return provider, sent


LASTING = [
    ContextInjection(content="lint: one error", hook_name="lint", event="tool:post"),
    ContextInjection(content="a note as the user", role="user", hook_name="notes", event="tool:post"),
]
PASSING = [
    ContextInjection(content="beside the result", ephemeral=True, append_to_last_tool_result=True, hook_name="hint"),
    ContextInjection(content="for one request", ephemeral=True, hook_name="status"),
]


def without_passing(request: list[Message]) -> list[Message]:
    """A request without what is injected for it alone."""
    texts = [one.content for one in PASSING]
    kept = [message for message in request if message["content"] not in texts]
    beside = f"\n\n{PASSING[0].content}"
    return [
        {**one, "content": one["content"].removesuffix(beside)} if beside in str(one["content"]) else one
        for one in kept
    ]


@pytest.mark.parametrize("plain", [False, True], ids=["rich", "plain"])
@pytest.mark.parametrize("style", ["basic", "streaming"])
async def test_each_injection_of_a_hook_is_sent_for_its_lifetime_in_its_place(style: str, plain: bool) -> None:
    """A hook injects what stays after the second of five results, and what is for one request after the third.

    The result that takes a text beside it is the last message. One with an image has no text to add to.
    """
    results = 0

    async def inject(event: str, data: Message) -> HookResult:
        nonlocal results
        results += 1
        if results not in (2, 3):
            return HookResult(action="continue")
        return HookResult(action="inject_context", context_injections=LASTING if results == 2 else PASSING)

    async with session(plan_of(5, 20_000, style, plain=plain), modules={"camera": mount_camera}) as running:
        running.coordinator.hooks.register("tool:post", inject, 0, name="injecting")
        provider, sent = recorded(running)
        assert await running.execute("Look.") == "Seen."
        context = running.coordinator.get("context")
        turns, history = context.turn_count, await context.get_messages()
    assert provider.violations == []
    texts = [[message["content"] for message in request] for request in sent]
    for one in PASSING:
        assert [number for number, request in enumerate(texts) if one.content in str(request)] == [3], one.content
        assert one.content not in str(history)
    for one in LASTING:
        shown = [sum(one.content == content for content in request) for request in texts]
        assert shown == [0, 0, 1, 1, 1, 1], one.content
    lasting = [one.content for one in LASTING]
    stored = [(message["role"], message["content"]) for message in history if message["content"] in lasting]
    assert stored == [(one.role, one.content) for one in LASTING]
    beside = [message for message in sent[3] if PASSING[0].content in str(message["content"])]
    assert [message["role"] for message in beside] == ["tool" if plain else "system"]
    assert turns == 1, "an injection is no person's message"
    prefix = without_passing(sent[3])
    assert sent[4][: len(prefix)] == prefix, "what passes leaves the prefix as it was"
