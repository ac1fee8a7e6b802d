"""The tool calls of one answer, run in parallel with the kernel's events around each.

No call can break the round: a denial, an unknown tool and an exception all become the text of a result. Only a
cancellation leaves calls without one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from ..checks.message_shapes import Message, as_mapping, well_formed

Content: TypeAlias = str | list[Message]

_POLL = 0.02  # seconds between looks at the cancellation token, which cannot be awaited


class ToolRound:
    """One round of parallel calls, each a `ToolCall` of the kernel.

    Attributes:
        finished: contents of results so far, by the place of the call (ids are not unique in real life): a text, or the
            blocks of a rich result.
    """

    def __init__(self, calls: list[Any], tools: Mapping[str, Any], hooks: Any, coordinator: Any, *, group: str) -> None:
        self._calls = calls
        self._tools = tools
        self._hooks = hooks
        self._coordinator = coordinator
        self._group = group
        self.finished: dict[int, Content] = {}
        self.hook_results: list[Any] = []

    async def run(self) -> None:
        tasks = [asyncio.create_task(self._one(place, call)) for place, call in enumerate(self._calls)]
        running = set(tasks)
        try:
            while running:
                _, running = await asyncio.wait(running, timeout=None if self._coordinator is None else _POLL)
                if running and self._immediate():
                    break
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):  # a hook registry or a coordinator failed: not the tool's doing
                raise outcome

    async def _one(self, place: int, call: Any) -> None:
        token = None if self._coordinator is None else self._coordinator.cancellation
        if token is not None:
            token.register_tool_start(call.id, call.name)
        try:
            self.finished[place] = await self._result(call)
        finally:
            if token is not None:
                token.register_tool_complete(call.id)

    async def _result(self, call: Any) -> Content:
        about = {"tool_name": call.name, "tool_call_id": call.id, "parallel_group_id": self._group}
        asked = {**about, "tool_input": well_formed(call.arguments)}
        before = await self._emit("tool:pre", asked, call.name)
        if before.action == "deny":
            return f"Denied by a hook: {before.reason}"
        tool = self._tools.get(call.name)
        if tool is None:
            return await self._failed(about, LookupError(f"there is no tool {call.name!r}"))
        try:
            result = await tool.execute(call.arguments)
        except Exception as problem:  # noqa: BLE001 - whatever a tool raises, its call must be answered
            return await self._failed(about, problem)
        shown = _as_json(result.model_dump() if hasattr(result, "model_dump") else str(result))
        after = await self._emit("tool:post", {**asked, "result": shown}, call.name)
        self.hook_results.append(after)
        changed = (as_mapping(after.data) or {}).get("result") if after.data is not None else None
        if changed is not None and changed != shown:
            return changed if isinstance(changed, str) else json.dumps(changed, default=str)
        if getattr(result, "content", None):
            return cast("list[Message]", result.model_dump()["content"])
        return result.get_serialized_output() if hasattr(result, "get_serialized_output") else str(result)

    async def _failed(self, about: Mapping[str, Any], problem: Exception) -> str:
        await self._hooks.emit("tool:error", {**about, "error": {"type": type(problem).__name__, "msg": str(problem)}})
        return f"Error: {problem}"

    async def _emit(self, event: str, data: dict[str, Any], name: str) -> Any:
        result = await self._hooks.emit(event, data)
        if self._coordinator is not None:
            result = await self._coordinator.process_hook_result(result, event, name)
        return result

    def _immediate(self) -> bool:
        return self._coordinator is not None and bool(self._coordinator.cancellation.is_immediate)


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(well_formed(value), default=str))
