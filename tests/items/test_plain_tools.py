"""Items in the results of plain kernel tools, through the kernel: kept as if a function tool had returned them."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from amplifier_context_core import ContextManager
from amplifier_context_core.items import ContextItem, ContextPool, ContextPoolHook, tool_from_function
from amplifier_context_core.items.item import living_items
from amplifier_context_core.kernel import mount_manager
from amplifier_context_testing import mount_plan, session

pytestmark = pytest.mark.kernel


@dataclass
class Report:
    """A payload that is no JSON."""

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


@pytest.mark.parametrize("payload", ["a note", {"a": (1, 2)}, None, Report("x")], ids=str)
async def test_an_item_without_id_goes_to_the_queue_and_the_model_reads_its_content(payload: Any) -> None:
    from amplifier_core import ToolResult

    tool = Plain("note", lambda: ContextItem(payload))
    manager, results = await called(tool)
    assert [item.content for item in manager.queue] == [payload]
    assert results == [ToolResult(output=payload).get_serialized_output()]


class Textless:
    """A payload whose own code fails when it is made text."""

    def __str__(self) -> str:
        raise KeyError("no text")


async def test_an_item_that_has_no_json_keeps_no_other_item_from_the_queue() -> None:
    unsent: list[ContextItem[Any]] = []

    def made() -> ContextItem[Any]:
        item = ContextItem("a note")
        unsent.append(ContextItem(Textless()))  # newer, so it is compared first
        return item

    manager, results = await called(Plain("note", made))
    assert [item.content for item in manager.queue] == ["a note"]
    assert results == ["a note"]


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "another session holds an equal item"])
async def test_a_tool_that_shows_an_item_of_the_pool_adds_none(others: int) -> None:
    of_others = [ContextItem("Revenue: $42M.", "Q3 earnings", "q3") for _ in range(others)]
    added: list[str] = []

    async def read(pool: ContextPool) -> dict[str, Any]:
        added.append(pool.get("q3").content)
        return pool.get("q3").to_dict()

    fetch = Plain("fetch", lambda: ContextItem("Revenue: $42M.", "Q3 earnings", "q3"))
    manager, results = await called(fetch, tool_from_function(read))
    assert added == ["Revenue: $42M."]
    assert json.loads(results[1]) == manager.pool.get("q3").to_dict(), "the model reads it, not that it was kept"
    assert len(of_others) == others


async def test_a_result_of_the_form_of_an_item_is_not_one() -> None:
    alive = ContextItem("other", "d", "q3")
    data = {"content": "x", "description": "d", "id": "q3"}
    manager, results = await called(Plain("plain", data))
    assert not manager.pool
    assert json.loads(results[0]) == data
    assert alive.content == "other"


async def test_an_item_that_a_hook_of_the_pool_refuses_stays_a_plain_result(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(pool: ContextPool, item: ContextItem[Any]) -> None:
        raise ValueError("no room for q3")

    refusing: Any = refuse
    refusing.type = ContextPoolHook.BEFORE_ADD

    async def mount(coordinator: Any, config: Any = None) -> None:
        manager = ContextManager()
        manager.pool.hooks.append(refusing)
        await mount_manager(coordinator, manager, "context-refusing")

    plan = mount_plan("context-refusing", script=[{"calls": [{"tool": "fetch", "arguments": {}}]}, "Done."])
    async with session(plan, modules={"context-refusing": mount}) as running:
        tool = Plain("fetch", lambda: ContextItem("body", "d", "q3"))
        await running.coordinator.mount("tools", tool, name=tool.name)
        assert await running.execute("Go.") == "Done."
        assert not running.coordinator.get_capability("context.pool")
    assert "keeping the item of a tool's result failed (ValueError)" in caplog.text
    assert "q3" not in caplog.text


class Incomparable(str):
    """An id that cannot be compared."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise ConnectionError("not connected")

    __ne__ = __eq__


async def test_an_item_whose_fields_cannot_be_compared_keeps_no_other_from_its_session() -> None:
    item = ContextItem("Revenue: $42M.", "Q3 earnings", "q3")
    odd = [ContextItem("x", "odd", Incomparable("q3")), ContextItem("x", Incomparable("Q3 earnings"), "q3")]
    assert all(one is other for one, other in zip(living_items()[-2:], odd, strict=True)), "they are compared first"
    manager, results = await called(Plain("fetch", item))
    assert results == ["Kept in the pool: [q3] Q3 earnings"]
    assert manager.pool.get("q3") is item
