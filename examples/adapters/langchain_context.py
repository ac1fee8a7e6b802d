"""LangChain: a middleware that sends a view of the messages, within the budget of its context manager.

`create_agent(model, tools, middleware=[AmplifierContext(open_context)])`, where `open_context` makes the context
manager of a thread from its `thread_id`. The state of the agent stays whole. The budget is that of the messages; the
system prompt and tools come on top.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.config import get_config

from amplifier_context_core import ContextManager
from amplifier_context_core.compat import Fitted, fitted
from amplifier_context_core.messages import arguments_of, calls_of, text_of

_ROLES = {"human": "user", "ai": "assistant"}
_THINKING = ("thinking", "redacted_thinking", "reasoning")


class AmplifierContext(AgentMiddleware):
    """Fits the messages of each request; those that are shown whole are the state's own.

    Args:
        open_context: a thread's id to its context manager; called once for each thread.
    """

    def __init__(self, open_context: Callable[[str], ContextManager]) -> None:
        super().__init__()
        self._open = open_context
        self._contexts: dict[str, ContextManager] = {}

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """Send a view of the messages of a request."""
        return await handler(request.override(messages=await self._view(request.messages)))

    def wrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]) -> ModelResponse:
        """Send a view of the messages of a request. A thread without a running event loop must call this."""
        return handler(request.override(messages=asyncio.run(self._view(request.messages))))

    async def _view(self, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        thread = str(get_config().get("configurable", {}).get("thread_id", ""))
        if thread not in self._contexts:
            self._contexts[thread] = self._open(thread)
        view = await fitted(self._contexts[thread], ((one, _message(one)) for one in messages))
        return [_made_of(shown) for shown in view]


def _message(one: AnyMessage) -> dict[str, Any]:
    """Return a message as the context manager keeps it; of an image only the place."""
    blocks: list[dict[str, Any]] = []
    for block in [one.content] if isinstance(one.content, str) else one.content:
        if isinstance(block, str) or block.get("type") == "text":
            blocks.append({"type": "text", "text": block if isinstance(block, str) else block["text"]})
        elif block.get("type") in _THINKING:
            blocks.append(block)
        elif block.get("type") not in ("tool_use", "tool_call", "function_call"):
            blocks.append({"type": "text", "text": f"[{block.get('type')}]"})
    made: dict[str, Any] = {"role": _ROLES.get(one.type, one.type), "content": blocks}
    if isinstance(one, ToolMessage):
        made |= {"tool_call_id": one.tool_call_id, "content": text_of(blocks)}
    if isinstance(one, AIMessage) and one.tool_calls:
        made["tool_calls"] = [
            {"id": call["id"], "tool": call["name"], "arguments": call["args"]} for call in one.tool_calls
        ]
    return made


def _made_of(shown: Fitted[AnyMessage]) -> AnyMessage:
    """Return the source; where the view shows less, a copy that does too; of a chapter, a new message."""
    if shown.source is not None and shown.is_whole:
        return shown.source
    text = text_of(shown.message["content"])
    if isinstance(shown.source, AIMessage):
        calls = [{"id": call.id, "name": call.name, "args": arguments_of(call)} for call in calls_of(shown.message)]
        return shown.source.model_copy(update={"content": text, "tool_calls": calls})
    if shown.source is not None:
        return shown.source.model_copy(update={"content": text})
    if answered := shown.message.get("tool_call_id"):
        return ToolMessage(text, tool_call_id=answered)
    return HumanMessage(text)
