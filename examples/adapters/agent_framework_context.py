"""Microsoft's Agent Framework: a compaction strategy and a history provider over context managers.

`Agent(client, compaction_strategy=AmplifierCompaction(view), context_providers=[AmplifierHistory(open_context)])`.
`view` is the context manager of one conversation; `open_context` makes, of a session's id, the one that keeps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from agent_framework import EXCLUDED_KEY, Content, HistoryProvider, Message

from amplifier_context_core import ContextManager
from amplifier_context_core.compat import fitted
from amplifier_context_core.messages import arguments_of, calls_of, text_of

_MADE = "amplifier_made"  # property of a message that stands for others
_OWN = "agent_framework"  # metadata: a message of the framework


@dataclass
class AmplifierCompaction:
    """Excludes what a view leaves out, and adds its chapters and shortened messages."""

    context: ContextManager

    async def __call__(self, messages: list[Message]) -> bool:
        """Edit a list in place; return true if the request becomes another one."""
        before = [id(one) for one in messages if not one.additional_properties.get(EXCLUDED_KEY)]
        own = [one for one in messages if not one.additional_properties.get(_MADE)]
        given = [(one, part) for one in own for part in _parts(one)]
        counts = Counter(id(one) for one, _ in given)
        places = {id(one): place for place, one in enumerate(own)}
        placed, place, whole = list(enumerate(own)), -1, set[int]()
        for _, group in groupby(await fitted(self.context, given), key=lambda shown: id(shown.source)):
            shown = list(group)
            name = id(shown[0].source)
            place = places.get(name, place)
            if name in places and all(one.is_whole for one in shown) and len(shown) == counts[name]:
                whole.add(name)
            else:  # beside what it shortens, or after what was shown before it
                placed += [(place, _made_of(one.message, {_MADE: True})) for one in shown]
        for one in own:
            one.additional_properties[EXCLUDED_KEY] = id(one) not in whole
        messages[:] = [one for _, one in sorted(placed, key=itemgetter(0))]
        return before != [id(one) for one in messages if not one.additional_properties.get(EXCLUDED_KEY)]


class AmplifierHistory(HistoryProvider):
    """Keeps the history of each session, all of it; `context` has the context manager of a session."""

    def __init__(self, open_context: Callable[[str | None], ContextManager]) -> None:
        super().__init__("amplifier_context")
        self.context = cache(open_context)

    async def get_messages(self, session_id: str | None, **_: Any) -> list[Message]:
        """Return the messages of a session; where content was erased, they say so."""
        kept = await self.context(session_id).get_messages()
        return [Message.from_dict(one["metadata"].get(_OWN) or _made_of(one).to_dict()) for one in kept]

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], **_: Any) -> None:
        """Append messages; one with several results becomes as many messages."""
        for one in messages:
            for part in _parts(one):
                result = part.get("tool_call_id")
                own = [c for c in one.contents if (c.call_id if c.type == "function_result" else None) == result]
                kept = one.to_dict() | {"contents": [content.to_dict() for content in own]}
                await self.context(session_id).add_message(part | {"metadata": {_OWN: kept}})


def _parts(one: Message) -> Iterator[dict[str, Any]]:
    """Yield a message as the context manager keeps it: each result by itself, of data only its type."""
    blocks: list[dict[str, Any]] = []
    for content in one.contents:
        if content.type == "function_result":
            yield {"role": "tool", "tool_call_id": content.call_id, "content": str(content.result or "")}
        elif content.type == "function_call":
            blocks.append({"type": "tool_use", "id": content.call_id, "name": content.name, "input": content.arguments})
        elif content.type == "text_reasoning":
            blocks.append({"type": "thinking", "thinking": content.text, "signature": content.protected_data})
        else:
            blocks.append({"type": "text", "text": content.text or f"[{content.type}]"})
    if blocks:
        yield {"role": "user" if one.role == "tool" else one.role, "content": blocks}


def _made_of(message: dict[str, Any], properties: dict[str, Any] | None = None) -> Message:
    """Return a message for what is not shown whole, for a chapter, and for what was erased."""
    text = text_of(message["content"])
    if answered := message.get("tool_call_id"):
        return Message("tool", [Content.from_function_result(answered, result=text)], additional_properties=properties)
    calls = [Content.from_function_call(one.id, one.name, arguments=arguments_of(one)) for one in calls_of(message)]
    contents = [*([Content.from_text(text)] if text else []), *calls]
    return Message(message["role"], contents, additional_properties=properties)
