"""Reach: what a view lacks and one search brings back.

At each request whose history outgrew the budget, the identifiers that the next message uses again and the view does not
hold are looked for in what the tool `context_recall` would print for one search. Its query is the newest sentence of a
person or the agent before the request, never the message that is to come. With the identifier itself as the query
(`oracle`) the search has nothing to guess. Nothing that is printed enters the conversation, so no other figure changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from amplifier_context_core.kernel import capabilities_of
from amplifier_context_core.manager import ContextManager

from ..checks.message_shapes import Message, as_mapping, blocks_of, results_of, text_of
from .course import Course
from .figures import Figures
from .managers import mount_of
from .recall import RecallProbe
from .request import Request
from .shares import Share
from .token_scale import TokenScale

TOOL = "tool-context-recall"
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n+")
_WORD = re.compile(r"\w{2,}")


class Reach:
    """Measures the reach of one session, request by request.

    Args:
        course: the session at its budget.
        context: the manager of it; only a `ContextManager` is measured.
        scale: to weigh with.
    """

    def __init__(self, course: Course, context: object, scale: TokenScale) -> None:
        self._course, self._scale = course, scale
        self._context = context if isinstance(context, ContextManager) else None
        self._probe = RecallProbe(scale)
        self._learnt = 0
        self._tool: Any = None

    async def take(self, index: int, view: Sequence[Message], figures: Figures) -> None:
        """Add to the figures what a search brings at the request for the message at this index."""
        course, messages = self._course, self._course.session.messages
        if self._context is None:
            return
        for message in messages[self._learnt : index]:
            self._probe.learn(message)
        self._learnt = index
        if not course.outgrown(index):
            return
        sight = self._probe.sight(Request.of(view, self._scale))
        lacking = [target.name for target in course.targets[index] if not sight.holds(target.name)]
        if not lacking:
            return
        query = newest_sentence(messages[:index])
        printed = await self._printed(query) if query else ""
        for name in lacking:
            figures.reach += Share(name in printed, 1)
            figures.oracle += Share(name in await self._printed(f'"{name}"'), 1)

    async def _printed(self, query: str) -> str:
        """Return what the tool prints for a query, each time as the first call after the request."""
        manager = self._context
        assert manager is not None
        if self._tool is None:
            host = _Host(capabilities_of(manager))
            await mount_of(TOOL)(host, {})
            self._tool = host.tool
        room = manager.requests.recall_taken
        try:
            return str((await self._tool.execute({"operation": "search", "query": query})).output)
        finally:
            manager.requests.recall_taken = room


class _Host:
    """What the tool needs of a coordinator."""

    def __init__(self, capabilities: Mapping[str, Any]) -> None:
        self.get_capability = capabilities.get
        self.tool: Any = None

    async def mount(self, point: str, module: object, name: str = "") -> None:
        self.tool = module


def newest_sentence(messages: Sequence[Message]) -> str:
    """Return the last sentence that a person or the agent wrote; empty if there is none."""
    for message in reversed(messages):
        if message.get("role") not in ("user", "assistant") or _is_hooks(message):
            continue
        sentences = [one.strip() for one in _SENTENCE.split(_own_text(message)) if _WORD.search(one)]
        if sentences:
            return sentences[-1]
    return ""


def _own_text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return "" if any(True for _ in results_of(message)) else content
    return "\n".join(text_of([block]) for _, block in blocks_of(content) if block.get("type") == "text")


def _is_hooks(message: Message) -> bool:
    return (as_mapping(message.get("metadata")) or {}).get("source") == "hook"
