"""Facts of docs/kernel.md that the code relies on, asked of the kernel that is installed."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import amplifier_core.events as events
from amplifier_core import HookRegistry, HookResult, ToolResult
from amplifier_core.testing import MockCoordinator

from amplifier_context_core.items import ContextItem
from tests.pages import read


def test_the_page_names_the_kernel_that_is_installed_and_its_events_and_capabilities_are_as_it_says() -> None:
    assert f"`amplifier-core` {version('amplifier-core')}" in read("docs/kernel.md").replace("\n", " ")
    known = {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    assert {"prompt:submit", "provider:error", "cancel:completed", "orchestrator:complete"} <= known
    assert {"context:pre_compact", "context:post_compact", "context:compaction", "module:load_failed"} <= known
    assert MockCoordinator().get_capability("context.nothing") is None


async def test_handlers_run_one_after_another_their_injections_are_joined_and_a_denial_wins() -> None:
    hooks, order = HookRegistry(), list[str]()

    def register(name: str, result: HookResult) -> None:
        async def handle(event: str, data: dict[str, Any]) -> HookResult:
            order.append(name)
            return result

        hooks.register("context:pre_compact", handle, len(order), name=name)

    for name in ("first", "second"):
        register(name, HookResult(action="inject_context", context_injection=name))
    merged = await hooks.emit("context:pre_compact", {})
    assert order == [item.content for item in merged.context_injections] == ["first", "second"]
    register("third", HookResult(action="deny", reason="no"))
    assert (await hooks.emit("context:pre_compact", {})).action == "deny"


async def test_handlers_of_an_event_get_a_dataclass_as_its_fields_and_what_is_no_json_as_its_text() -> None:
    hooks, seen = HookRegistry(), list[Any]()

    async def handler(event: str, data: dict[str, Any]) -> HookResult:
        seen.extend((data["result"]["output"], data["usage"]))
        return HookResult(action="modify", data={**data, "result": "changed"})

    hooks.register("tool:post", handler, 0, name="t")
    item = ToolResult(output=ContextItem({"a": (1, Path("b"))}, "d", "i")).model_dump()
    answer = await hooks.emit("tool:post", {"result": item, "usage": Path("no/json")})
    assert answer.data["result"] == "changed"
    assert seen == [{"content": {"a": [1, "b"]}, "description": "d", "id": "i"}, "no/json"]
