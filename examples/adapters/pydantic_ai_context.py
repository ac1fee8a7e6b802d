"""pydantic-ai: a capability that sends a view of the history, within the budget of its context manager.

`Agent(model, capabilities=[AmplifierContext(ContextManager(load_config({"max_tokens": 100_000})))])`. One context
manager is one conversation. The history of a run stays whole: hand it on as `message_history`, as always. The budget is
that of the messages; instructions and tools come on top.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai import messages as ai
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import RunContext

from amplifier_context_core import ContextManager
from amplifier_context_core.compat import Fitted, fitted
from amplifier_context_core.messages import arguments_of, calls_of, text_of

Message = dict[str, Any]
Source = tuple[ai.ModelMessage, Any]  # a response twice, or a request and one of its parts


@dataclass
class AmplifierContext(AbstractCapability[Any]):
    """Fits the messages of each request; what is shown whole is the run's own response or part."""

    context: ContextManager

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Replace the messages of a request by a view of them."""
        view = await fitted(self.context, _taken_apart(request_context.messages))
        names = {call.id: call.name for shown in view for call in calls_of(shown.message)}
        return replace(request_context, messages=[_made_of(shown, names) for shown in view])


def _taken_apart(messages: Sequence[ai.ModelMessage]) -> Iterator[tuple[Source, Message]]:
    """Yield a response as one message, and a request as one for each of its parts."""
    for message in messages:
        if isinstance(message, ai.ModelResponse):
            yield (message, message), _answer(message)
            continue
        for part in message.parts:
            one: Message = {"role": "user", "content": _text(part)}
            if isinstance(part, ai.ToolReturnPart):
                one = {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()}
            elif isinstance(part, ai.SystemPromptPart):
                one["role"] = "system"
            elif not isinstance(part, ai.UserPromptPart):  # what pydantic-ai itself notes
                one["metadata"] = {"source": "hook", "pinned": True}
            yield (message, part), one


def _text(part: Any) -> str:
    content = getattr(part, "content", None) or part.part_kind
    listed = [content] if isinstance(content, str) else content
    return "\n".join(one if isinstance(one, str) else f"[{type(one).__name__}]" for one in listed)


def _answer(response: ai.ModelResponse) -> Message:
    blocks: list[Message] = []
    for part in response.parts:
        if isinstance(part, ai.TextPart):
            blocks.append({"type": "text", "text": part.content})
        elif isinstance(part, ai.ThinkingPart):
            blocks.append({"type": "thinking", "thinking": part.content, "signature": part.signature or ""})
        elif isinstance(part, ai.ToolCallPart):
            arguments = part.args_as_dict(raise_if_invalid=False)
            blocks.append({"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": arguments})
    return {"role": "assistant", "content": blocks}


def _made_of(shown: Fitted[Source], names: dict[str, str]) -> ai.ModelMessage:
    """Return the source; where the view shows less, a copy that does too; of a chapter, a new request."""
    text = text_of(shown.message["content"])
    if shown.source is None:
        answered = shown.message.get("tool_call_id")
        part = ai.ToolReturnPart(names[answered], text, answered) if answered else ai.UserPromptPart(text)
        return ai.ModelRequest(parts=[part])
    message, part = shown.source
    if isinstance(message, ai.ModelRequest):
        return replace(message, parts=[part if shown.is_whole else replace(part, content=text)])
    if shown.is_whole:
        return message
    calls = {call.id: arguments_of(call) for call in calls_of(shown.message)}
    asked = [replace(one, args=calls[one.tool_call_id]) for one in message.tool_calls if one.tool_call_id in calls]
    others = [one for one in message.parts if not isinstance(one, ai.TextPart | ai.ThinkingPart | ai.ToolCallPart)]
    return replace(message, parts=[*others, *([ai.TextPart(text)] if text else []), *asked])
