"""Facts of docs/kernel.md that the code relies on, asked of the kernel that is installed."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import amplifier_core.events as events
import pytest
from amplifier_core import HookRegistry, HookResult, ToolResult
from amplifier_core.message_models import Message
from amplifier_core.testing import MockCoordinator
from pydantic import ValidationError

from amplifier_context_core.items import ContextItem
from tests.pages import read

PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


def test_the_page_names_the_kernel_that_is_installed() -> None:
    assert f"`amplifier-core` {version('amplifier-core')}" in read("docs/kernel.md").replace("\n", " ")


def test_a_message_without_content_is_refused_and_one_with_text_and_images_is_not() -> None:
    with pytest.raises(ValidationError):
        Message(role="user", content=None)  # type: ignore[arg-type]
    Message.model_validate({"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "seen"}, PIXEL]})
    with pytest.raises(ValidationError):
        Message.model_validate({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]})


def test_a_tool_result_may_hold_text_and_images_in_order() -> None:
    result = ToolResult(success=True, content=[{"type": "text", "text": "seen"}, PIXEL])  # type: ignore[list-item]
    assert [block.type for block in result.content or ()] == ["text", "image"]


async def test_handlers_run_one_after_another_and_a_denial_wins() -> None:
    hooks, order = HookRegistry(), list[str]()

    def handler(name: str, result: HookResult) -> Any:
        async def handle(event: str, data: dict[str, Any]) -> HookResult:
            order.append(name)
            return result

        return handle

    inject = HookResult(action="inject_context", context_injection="note")
    hooks.register("context:pre_compact", handler("first", inject), 0, name="first")
    hooks.register("context:pre_compact", handler("second", inject), 1, name="second")
    merged = await hooks.emit("context:pre_compact", {})
    assert order == ["first", "second"]
    assert [item.content for item in merged.context_injections] == ["note", "note"]
    hooks.register("context:pre_compact", handler("third", HookResult(action="deny", reason="no")), 2, name="third")
    assert (await hooks.emit("context:pre_compact", {})).action == "deny"


def test_a_capability_that_is_not_registered_is_none() -> None:
    assert MockCoordinator().get_capability("context.nothing") is None


def test_the_events_that_are_listened_to_exist() -> None:
    known = {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    assert {"prompt:submit", "provider:error", "cancel:completed", "orchestrator:complete"} <= known
    assert {"context:pre_compact", "context:post_compact", "context:compaction", "module:load_failed"} <= known


async def test_handlers_of_an_event_get_a_dataclass_as_its_fields_and_what_is_no_json_as_its_text() -> None:
    hooks, seen = HookRegistry(), list[Any]()

    async def handler(event: str, data: dict[str, Any]) -> HookResult:
        seen.extend((data["result"]["output"], data["usage"]))
        return HookResult(action="modify", data={**data, "result": "changed"})

    class Usage:
        def __str__(self) -> str:
            return "usage"

    hooks.register("tool:post", handler, 0, name="t")
    item = ToolResult(output=ContextItem({"a": (1, Path("b"))}, "d", "i")).model_dump()
    for usage in (Usage(), {"input_tokens": 3}):
        answer = await hooks.emit("tool:post", {"result": item, "usage": usage})
        assert answer.data["result"] == "changed"
    fields = {"content": {"a": [1, "b"]}, "description": "d", "id": "i"}
    assert seen == [fields, "usage", fields, {"input_tokens": 3}]
