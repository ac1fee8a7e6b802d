"""Fit the history of another framework: its own objects go in, and come out where the view shows them whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Generic, NamedTuple, TypeVar

from ..manager import ContextManager
from ..messages.parsing import THINKING_BLOCKS, Message, arguments_of, blocks_of, calls_of, metadata_of, text_of

T = TypeVar("T")
_ORIGIN = "amplifier_origin"  # metadata: which of the given messages it is


class Fitted(NamedTuple, Generic[T]):
    source: T | None  # the object that it was made from; None of a chapter and of what providers need besides
    message: Message  # as it is to be sent
    is_whole: bool  # nothing of the source is left out, so that the source itself can be sent


async def fitted(
    context: ContextManager, given: Iterable[tuple[T, Message]], token_budget: int | None = None
) -> list[Fitted[T]]:
    """Make a list the history of a context manager, and return the view of it.

    Args:
        context: of this conversation only.
        given: the whole history each time: an object of the framework, and the message that it is.

    Raises:
        InvalidMessage: a message cannot be stored; then nothing was changed.
        StoreError: the store refused the change.
    """
    sources: dict[str, T] = {}
    messages: list[Message] = []
    times: Counter[str] = Counter()  # equal messages may be of objects with different ids
    for source, message in given:
        key = _key_of(message)
        times[key] += 1
        origin = f"{key}.{times[key]}"
        sources[origin] = source
        messages.append(message | {"metadata": {**metadata_of(message), _ORIGIN: origin}})
    await context.set_messages(messages)
    shown: list[Fitted[T]] = []
    for message in await context.get_messages_for_request(token_budget):
        origin = str(metadata_of(message).get(_ORIGIN, ""))
        is_whole = origin in sources and origin.partition(".")[0] == _key_of(message)
        shown.append(Fitted(sources.get(origin), message, is_whole))
    return shown


def _key_of(message: Message) -> str:
    """Hash what a view may shorten or leave out: texts, calls, and whether there is thinking."""
    calls = [(call.id, call.name, arguments_of(call)) for call in calls_of(message)]
    thinks = any(block.get("type") in THINKING_BLOCKS for block in blocks_of(message))
    said = [message.get("role"), message.get("tool_call_id"), text_of(message.get("content")), calls, thinks]
    return blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()
