"""Tools that return what a recording says they returned.

A kernel tool gets its arguments but not the id of the call, and recordings reuse ids. So the provider stores the
recorded result of each call of an answer, and the tool takes the result for its arguments. This is correct with any
loop, also for parallel calls.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from ..checks.message_shapes import blocks_of
from .answer_policies import MISSING, Calling


class ResultTray:
    """Results waiting to be picked up, by tool and arguments, first in, first out."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], deque[Any]] = {}

    def lay_down(self, calls: Iterable[Calling]) -> None:
        """Put down the results of an answer's calls. Leftovers of the answer before were never asked for and go."""
        self._waiting.clear()
        for call in calls:
            self._waiting.setdefault(_key(call.name, call.arguments), deque()).append(call.result)

    def pick_up(self, name: str, arguments: Mapping[str, Any]) -> Any:
        waiting = self._waiting.get(_key(name, arguments))
        return waiting.popleft() if waiting else MISSING


class RecordedTool:
    """A kernel tool of any name that returns recorded results."""

    description = "Returns what this tool returned when the session was recorded."

    def __init__(self, name: str, tray: ResultTray) -> None:
        self.name = name
        self._tray = tray

    @property
    def input_schema(self) -> dict[str, Any]:
        """Any object: what the recorded tool took is not known."""
        return {"type": "object", "additionalProperties": True}

    async def execute(self, input: dict[str, Any]) -> Any:
        from amplifier_core.models import ToolResult

        found = self._tray.pick_up(self.name, input)
        if found is MISSING or found is None:
            message = f"the recording has no result of {self.name} for this call"
            return ToolResult(success=False, output=message, error={"message": message})
        return ToolResult(output=_shown(found))


def _shown(content: Any) -> Any:
    blocks = blocks_of(content)
    if not blocks:
        return content
    return "\n".join(str(block.get("text", "")) or f"[{block.get('type')}]" for _, block in blocks)


def _key(name: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    return name, json.dumps(dict(arguments), sort_keys=True, default=str)
