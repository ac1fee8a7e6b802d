"""Whole sessions through the kernel: an output of 200,000 tokens in a window of 17,600."""

from pathlib import Path
from typing import Any

import pytest
from amplifier_core import ToolResult

from amplifier_context_core.view import shared_cache
from amplifier_context_testing import mount_plan, session
from tests.places import BACKENDS, Place, parameters

pytestmark = pytest.mark.kernel
WINDOW = 17_600  # tokens
NEEDLE = "order 4711: refused by gate B7-kestrel"
LINES = [*(f"order {number}: accepted at gate A{number % 9}" for number in range(13_377)), NEEDLE, *["more"] * 90_000]


class Dump:
    name = "dump"
    description = "Returns the log."
    input_schema = {"type": "object", "properties": {}}  # noqa: RUF012 - what the kernel reads

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        return ToolResult(success=True, output="\n".join(LINES))


async def mount_dump(coordinator: Any, config: Any = None) -> None:
    await coordinator.mount("tools", Dump(), name="dump")


@pytest.fixture(params=parameters("memory", "jsonl", "sqlite", soak=BACKENDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


async def test_an_agent_finds_a_line_in_an_output_that_its_window_cannot_hold(place: Place) -> None:
    """The provider refuses a request that is larger than the window, and holds each against the rules of providers."""
    kept = {"module": "context-persistent", "config": {"store": place.url(), "durability": "none"}}
    context = {"module": "context-simple"} if place.backend == "memory" else kept
    search = {"operation": "search", "query": '"order 4711: refused"', "mark": "m3"}
    read = {"operation": "read", "mark": "m3", "offset": 13_378, "limit": 1}

    async def ask(*calls: tuple[str, dict[str, Any]], resumed: bool = False) -> list[str]:
        script = [*({"calls": [{"tool": name, "arguments": given}]} for name, given in calls), "Done."]
        tools: dict[str, Any] = {"tool-dump": {}, "tool-context-recall": {}}
        plan = mount_plan(context, script=script, window=WINDOW, provider={"check": True}, tools=tools)
        name, modules = place.session_id("recall"), {"tool-dump": mount_dump}
        async with session(plan, modules=modules, session_id=name, is_resumed=resumed) as running:
            assert await running.execute("Which order was refused?") == "Done."
            assert running.coordinator.get("providers")["replay"].violations == []
            messages = await running.coordinator.get("context").get_messages()
            return [str(message["content"]) for message in messages if message["role"] == "tool"]

    look = (("context_recall", search), ("context_recall", read))
    if place.backend == "memory":
        found = await ask(("dump", {}), *look)
    else:
        await ask(("dump", {}))
        shared_cache.clear()  # as in another process
        found = await ask(*look, resumed=True)
    assert f"13378: {NEEDLE}" in found[-2]
    assert f"\n{NEEDLE}\n" in found[-1]
