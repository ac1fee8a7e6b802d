"""The pydantic-ai harness's `TieredCompaction` with the tiers that need neither a model nor code of the user's."""

# Types are checked where no peer is installed.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness.compaction import (
    ClampOversizedMessages,
    ClearToolResults,
    SlidingWindowCompaction,
    TieredCompaction,
    compact_now,
)

from amplifier_context_testing.caches.token_scale import TokenScale
from amplifier_context_testing.checks.message_shapes import (
    CALL_BLOCKS,
    THINKING_BLOCKS,
    Message,
    blocks_of,
    calls_of,
    results_of,
    texts_of,
)

_TARGET = 0.8  # of the budget: the fraction in the harness's examples
_KEPT = 0.5  # of the budget: what the sliding window keeps
_NO_TEXT = frozenset({"tool_result", *CALL_BLOCKS, *THINKING_BLOCKS})


class Tiered:
    """A history of pydantic-ai messages, compacted in place."""

    def __init__(self, scale: TokenScale, budget: int) -> None:
        self._scale = scale
        self._model = TestModel()
        self._tools: dict[str, str] = {}  # tool names by call id
        self._history: list[ModelMessage] = []
        count = scale.length
        tiers: list[Any] = [
            ClampOversizedMessages(max_part_tokens=max(1, budget // 4), tokenizer=count),
            ClearToolResults(max_tokens=1, tokenizer=count),
            SlidingWindowCompaction(max_tokens=1, keep_tokens=max(1, int(budget * _KEPT)), tokenizer=count),
        ]
        self._strategy: TieredCompaction[None] = TieredCompaction(
            tiers=tiers, target_tokens=max(1, int(budget * _TARGET)), tokenizer=count
        )

    async def add_message(self, message: Message) -> None:
        for part in self._parts(message):
            if isinstance(part, ModelResponse):
                self._history.append(part)
            elif isinstance(part, ToolReturnPart) and self._history and _only(ToolReturnPart, self._history[-1]):
                self._history[-1] = ModelRequest(parts=[*self._history[-1].parts, part])
            elif isinstance(part, UserPromptPart) and self._history and _only(SystemPromptPart, self._history[-1]):
                self._history[-1] = ModelRequest(parts=[*self._history[-1].parts, part])  # as an agent's first request
            else:
                self._history.append(ModelRequest(parts=[part]))

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        """Return the history after the tiers it needed; it stays so."""
        self._history = await compact_now(
            self._strategy, self._history, model=self._model, tokenizer=self._scale.length
        )
        return [message for one in self._history for message in _ours(one)]

    def _parts(self, message: Message) -> Iterator[Any]:
        """Yield a message as parts of pydantic-ai: results first, then the rest as text, without thinking."""
        results = results_of(message)
        for result in results:
            tool = self._tools.get(str(result.id), "tool")
            yield ToolReturnPart(tool, "\n".join(texts_of(result.content)), str(result.id))
        content, calls = message.get("content"), calls_of(message)
        own = [block for _, block in blocks_of(content) if block.get("type") not in _NO_TEXT]
        text = content if isinstance(content, str) else "\n\n".join(str(one["text"]) for one in own if one.get("text"))
        if message.get("role") == "tool" or (results and not text and not calls):
            return
        match message.get("role"):
            case "system" | "developer":
                yield SystemPromptPart(text)
            case "assistant":
                self._tools.update((str(call.id), str(call.name)) for call in calls)
                made = [ToolCallPart(str(call.name), call.arguments, str(call.id)) for call in calls]
                yield ModelResponse(parts=[*([TextPart(text)] if text or not calls else []), *made])
            case _:
                yield UserPromptPart(text)


def _only(kind: type, message: ModelMessage) -> bool:
    return isinstance(message, ModelRequest) and all(isinstance(part, kind) for part in message.parts)


def _ours(message: ModelMessage) -> list[Message]:
    if isinstance(message, ModelResponse):
        texts = [part.content for part in message.parts if isinstance(part, TextPart)]
        calls = [
            {
                "id": part.tool_call_id,
                "type": "function",
                "function": {"name": part.tool_name, "arguments": _arguments(part.args)},
            }
            for part in message.parts
            if isinstance(part, ToolCallPart)
        ]
        return [{"role": "assistant", "content": "\n".join(texts), **({"tool_calls": calls} if calls else {})}]
    found: list[Message] = []
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            found.append({"role": "tool", "tool_call_id": part.tool_call_id, "content": str(part.content)})
        elif isinstance(part, SystemPromptPart):
            found.append({"role": "system", "content": part.content})
        else:
            found.append({"role": "user", "content": str(part.content)})
    return found


def _arguments(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {})
