"""Microsoft agent-framework's `TruncationStrategy`; what it excludes stays excluded, by its own annotations."""

# Types are checked where no peer is installed.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import Any

from agent_framework import Content, TruncationStrategy, apply_compaction
from agent_framework import Message as Theirs

from ...checks.message_shapes import Message, calls_of
from ..text import plain
from ..token_scale import TokenScale

_TRIGGER, _TARGET = 0.8, 0.5  # of the budget: ContextWindowCompactionStrategy's defaults


class Tokenizer:
    """Their tokenizer protocol, counting exactly."""

    def __init__(self, scale: TokenScale) -> None:
        self._scale = scale

    def count_tokens(self, text: str) -> int:
        """Tokens of a text."""
        return self._scale.length(text)


class Compacted:
    """A list of their messages, run through one of their strategies before each request."""

    def __init__(self, scale: TokenScale, strategy: Any) -> None:
        self._strategy = strategy
        self._tokenizer = Tokenizer(scale)
        self._state: list[Theirs] = []

    async def add_message(self, message: Message) -> None:
        """Append to the state."""
        self._state.extend(theirs(one) for one in plain(message))

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]:
        """Return what their compaction leaves included."""
        included = await apply_compaction(self._state, strategy=self._strategy, tokenizer=self._tokenizer)
        return [ours(message) for message in included]


def theirs(message: Message) -> Theirs:
    """Return a plain message as agent-framework's."""
    role, text = str(message.get("role")), str(message.get("content") or "")
    if role == "tool":
        return Theirs(role, [Content.from_function_result(str(message.get("tool_call_id")), result=text)])
    calls = [
        Content.from_function_call(str(call.id), str(call.name), arguments=call.arguments)
        for call in (calls_of(message) if role == "assistant" else [])
    ]
    return Theirs(role, [*([Content.from_text(text)] if text or not calls else []), *calls])


def ours(message: Theirs) -> Message:
    """And back."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for content in message.contents:
        if content.type == "function_call":
            function = {"name": content.name, "arguments": content.arguments}
            calls.append({"id": content.call_id, "type": "function", "function": function})
        elif content.type == "function_result":
            return {"role": "tool", "tool_call_id": content.call_id, "content": str(content.result or "")}
        else:
            texts.append(str(content.text or ""))
    return {
        "role": str(message.role),
        "content": "\n".join(texts),
        **({"tool_calls": calls} if calls else {}),
    }


def open_peer(scale: TokenScale, budget: int) -> Compacted:
    """Return the adapter for one session."""
    strategy = TruncationStrategy(
        max_n=max(2, int(budget * _TRIGGER)), compact_to=max(1, int(budget * _TARGET)), tokenizer=Tokenizer(scale)
    )
    return Compacted(scale, strategy)
