"""A scripted agent that gets an output far larger than its window, and finds a line in it by recall."""

from __future__ import annotations

import re
from typing import Any

from amplifier_core import ToolResult

from amplifier_context_testing import mount_plan, session
from amplifier_context_testing.checks.message_shapes import text_of

WINDOW = 17_600  # tokens; less a tenth for the answer, the budget is about 16k
LINES = 20_000
QUESTION = "Question:"
SIZES: list[int] = []  # characters of the requests of the last question
NEEDLE = "order 4711: refused by gate B7-kestrel"


class Dump:
    """A tool with one huge output: about 200,000 tokens."""

    name = "dump"
    description = "Returns the log."
    input_schema = {"type": "object", "properties": {}}  # noqa: RUF012 - what the kernel reads

    async def execute(self, input: dict[str, Any]) -> ToolResult:
        lines = [f"order {number}: accepted at gate A{number % 9}" for number in range(LINES)]
        lines[13_377] = NEEDLE
        return ToolResult(success=True, output="\n".join(lines))


async def mount_dump(coordinator: Any, config: Any = None) -> None:
    await coordinator.mount("tools", Dump(), name="dump")


class Agent:
    """Calls the dump once, searches the output that its view names, reads the line there, and answers with it."""

    def __call__(self, request: Any) -> Any:
        messages = [message.model_dump(exclude_unset=True) for message in request.messages]
        shown = [text_of(message.get("content")) for message in messages]
        SIZES.append(sum(map(len, shown)))
        question = max(place for place, message in enumerate(messages) if QUESTION in shown[place])
        since = "\n".join(shown[question:])
        place = re.search(r"kept outside this view: (m\d+)", "\n".join(shown))
        if place is None:
            return {"calls": [{"tool": "dump", "arguments": {}}]}
        found = re.search(r"^(\d+): order 4711: refused", since, re.MULTILINE)
        read = re.search(r"^order 4711: refused.*", since, re.MULTILINE)
        if found is None:
            return {"calls": [{"tool": "context_recall", "arguments": self.search(place[1])}]}
        if read is None:
            arguments = {"operation": "read", "mark": place[1], "offset": int(found[1]), "limit": 1}
            return {"calls": [{"tool": "context_recall", "arguments": arguments}]}
        return f"I found: {read[0]}"

    def search(self, mark: str) -> dict[str, Any]:
        return {"operation": "search", "query": '"order 4711: refused"', "mark": mark}


def agent(config: Any) -> Agent:
    return Agent()


def plan_of(context: dict[str, Any]) -> dict[str, Any]:
    return mount_plan(
        context,
        script="tests.recall.agent:agent",
        window=WINDOW,
        provider={"check": True},
        tools={"tool-dump": {}, "tool-context-recall": {}},
    )


async def ask(context: dict[str, Any], session_id: str, question: str, *, resumed: bool) -> dict[str, Any]:
    """Ask one question in a session; return the answer, the sizes of its requests, and rules that they break."""
    modules = {"tool-dump": mount_dump}
    async with session(plan_of(context), modules=modules, session_id=session_id, is_resumed=resumed) as running:
        SIZES.clear()
        answer = await running.execute(f"{QUESTION} {question}")
        provider = running.coordinator.get("providers")["replay"]
        names = await running.coordinator.get_capability("context.lacking_names")([], 3)
        return {"answer": answer, "sizes": list(SIZES), "violations": provider.violations, "lacking": names}
