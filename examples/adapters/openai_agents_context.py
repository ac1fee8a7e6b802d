"""OpenAI Agents SDK: a session in any store, and a filter that sends a view within the budget of a context manager.

`Runner.run(agent, "...", session=AmplifierSession(kept), run_config=config)` with a `config` of
`RunConfig(call_model_input_filter=partial(fit, view))`. `kept` has the conversation, for instance in SQLite; `view`, a
context manager too, is given all of it at each call. The budget is that of the items, without instructions and tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Any

from agents.run import CallModelData, ModelInputData

from amplifier_context_core import ContextManager
from amplifier_context_core.compat import fitted
from amplifier_context_core.messages import arguments_of, calls_of, text_of

Item = dict[str, Any]  # messages too
_ITEMS = "openai_items"  # metadata: the items that a message was made from


class AmplifierSession:
    """The history of a conversation, as the protocol `agents.memory.Session` wants it."""

    def __init__(self, context: ContextManager) -> None:
        self._context, self.session_id, self.session_settings = context, context.session_id, None

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """Return the items, or the newest `limit` of them."""
        items = [item for one in await self._context.get_messages() for item in _items_of(one)]
        return items if limit is None else items[max(0, len(items) - limit) :]

    async def add_items(self, items: list[Item]) -> None:
        """Append items."""
        for group, message in _messages(items):
            await self._context.add_message(message | {"metadata": {_ITEMS: group}})

    async def pop_item(self) -> Item | None:
        """Take the newest item out of the history; `recall` still finds it."""
        if not (messages := await self._context.get_messages()):
            return None
        *left, popped = _items_of(messages.pop())
        await self._context.set_messages(messages)
        await self.add_items(left)
        return popped

    async def clear_session(self) -> None:
        """Drop the history."""
        await self._context.clear()


async def fit(context: ContextManager, data: CallModelData[Any]) -> ModelInputData:
    """Return a view of the input of a call; what it shows whole are the same items."""
    view = await fitted(context, _messages(data.model_data.input))
    made = [one.source if one.source and one.is_whole else _made_of(one.message) for one in view]
    return ModelInputData(list(chain.from_iterable(made)), data.model_data.instructions)


def _messages(items: Iterable[Any]) -> Iterator[tuple[list[Item], Item]]:
    """Yield the items of one answer together, with the message that they are; any other item by itself."""
    for role, group in groupby(items, key=_role):
        for listed in [list(group)] if role == "assistant" else [[one] for one in group]:
            content = [block for item in listed for block in _blocks(item)]
            result = {"tool_call_id": listed[0]["call_id"], "content": text_of(content)} if role == "tool" else {}
            yield listed, {"role": role, "content": content, **result}


def _role(item: Item) -> str:
    kind = str(item.get("type", "message"))
    return item["role"] if kind == "message" else "tool" if kind == "function_call_output" else "assistant"


def _blocks(item: Item) -> Iterator[Item]:
    kind, content = item.get("type", "message"), item.get("content", item.get("output"))
    if kind == "reasoning":
        yield item
    elif kind == "function_call":
        yield {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": item["arguments"]}
    else:  # of an image, a file or a call of the provider's own tools only what it is
        parts = content if isinstance(content, list) else [{"text": content or f"[{kind}]"}]
        yield from ({"type": "text", "text": part.get("text", f"[{part.get('type')}]")} for part in parts)


def _items_of(message: Item) -> list[Item]:
    return message["metadata"].get(_ITEMS) or _made_of(message)


def _made_of(message: Item) -> list[Item]:
    """Return items for what is not shown whole, for chapters, and for messages whose content was erased."""
    text = text_of(message["content"])
    if answered := message.get("tool_call_id"):
        return [{"type": "function_call_output", "call_id": answered, "output": text}]
    items: list[Item] = [{"role": message["role"], "content": text}] if text else []
    for call in calls_of(message):
        asked = {"call_id": call.id, "name": call.name, "arguments": json.dumps(arguments_of(call))}
        items.append({"type": "function_call", **asked})
    return items
