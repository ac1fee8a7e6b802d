"""Items in the results of plain kernel tools, through the kernel: kept as if a function tool had returned them."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from amplifier_context_core.items import ContextItem, ContextPool, ContextPoolHook, hook, tool_from_function
from amplifier_context_testing import mount_plan, session

pytestmark = pytest.mark.kernel


@dataclass
class Report:
    text: str


class Plain:
    """A kernel tool that knows nothing of pools: it returns what it is made with as the output of its result."""

    def __init__(self, name: str, output: Any) -> None:
        self.name, self.description = name, "Returns something."
        self.input_schema: dict[str, Any] = {"type": "object", "properties": {}}
        self.output = output

    async def execute(self, input: dict[str, Any]) -> Any:
        from amplifier_core import ToolResult

        return ToolResult(output=self.output() if callable(self.output) else self.output)


async def look_up(pool: ContextPool) -> str:
    return pool.catalogue()


async def called(*tools: Any) -> tuple[Any, list[str]]:
    """Let an agent call tools one after another; return the session's manager, and results as the model read them."""

    async def mount(coordinator: Any, config: Any = None) -> None:
        for tool in tools:
            await coordinator.mount("tools", tool, name=tool.name)

    script = [*({"calls": [{"tool": tool.name, "arguments": {}}]} for tool in tools), "Done."]
    plan = mount_plan("context-simple", script=script, provider={"check": True}, tools={"tool-plain": {}})
    async with session(plan, modules={"tool-plain": mount}) as running:
        assert await running.execute("Go.") == "Done."
        manager = running.coordinator.get("context")
        results = [message for message in await manager.get_messages() if message["role"] == "tool"]
        return manager, [str(message["content"]) for message in results]


async def test_an_item_in_the_result_of_a_plain_tool_is_in_the_pool_before_the_next_call_runs() -> None:
    report = Report("Revenue: $42M.")
    tool = Plain("fetch", lambda: ContextItem(report, "Q3 earnings", "q3"))
    manager, results = await called(tool, tool_from_function(look_up))
    assert results == ["Kept in the pool: [q3] Q3 earnings", "- [q3] Q3 earnings"]
    assert manager.pool.get("q3").content is report, "the item itself, not its JSON"


@pytest.mark.parametrize("payload", [{"a": (1, 2)}, None, Report("x")], ids=str)
async def test_an_item_without_id_goes_to_the_queue_and_the_model_reads_its_content(payload: Any) -> None:
    from amplifier_core import ToolResult

    tool = Plain("note", lambda: ContextItem(payload))
    manager, results = await called(tool)
    assert [item.content for item in manager.queue] == [payload]
    assert results == [ToolResult(output=payload).get_serialized_output()]


class Unreadable(str):
    """A text that can neither be written nor compared."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise ConnectionError("not connected")

    __str__ = __ne__ = __eq__  # type: ignore[assignment]


async def test_an_item_that_cannot_be_read_or_compared_keeps_no_other_from_its_session() -> None:
    odd: list[ContextItem[Any]] = []

    def made() -> ContextItem[Any]:
        item = ContextItem("Revenue: $42M.", "Q3 earnings", "q3")
        odd[:] = [
            ContextItem(object(), "Q3 earnings", "q3"),
            ContextItem("x", "odd", Unreadable("q3")),
        ]  # compared first
        return item

    manager, results = await called(Plain("fetch", made))
    assert results == ["Kept in the pool: [q3] Q3 earnings"]
    assert manager.pool.get("q3").content == "Revenue: $42M."


async def test_a_tool_that_shows_an_item_of_the_pool_adds_none() -> None:
    of_another_session = ContextItem("Revenue: $42M.", "Q3 earnings", "q3")

    async def read(pool: ContextPool) -> dict[str, Any]:
        return pool.get("q3").to_dict()

    fetch = Plain("fetch", lambda: ContextItem("Revenue: $42M.", "Q3 earnings", "q3"))
    manager, results = await called(fetch, tool_from_function(read))
    assert json.loads(results[1]) == of_another_session.to_dict(), "the model reads it, not that it was kept"
    assert manager.pool.get("q3") is not of_another_session


async def test_a_result_of_the_form_of_an_item_is_not_one() -> None:
    alive = ContextItem("other", "d", "q3")
    data = {"content": "x", "description": "d", "id": "q3"}
    manager, results = await called(Plain("plain", data))
    assert not manager.pool
    assert json.loads(results[0]) == data
    assert alive.content == "other"


async def test_an_item_that_a_hook_of_the_pool_refuses_stays_a_plain_result(caplog: pytest.LogCaptureFixture) -> None:
    @hook(ContextPoolHook.BEFORE_ADD)
    async def refuse(pool: ContextPool, item: ContextItem[Any]) -> None:
        raise ValueError("no room for q3")

    manager, results = await called(Plain("fetch", lambda: ContextItem("body", "d", "q3")))
    assert not manager.pool
    assert "body" in results[0]
    assert "keeping the item of a tool's result failed (ValueError)" in caplog.text
    assert "q3" not in caplog.text
