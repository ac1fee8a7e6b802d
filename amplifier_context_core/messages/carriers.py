"""Carriers: messages that hold a provider's own compaction of the conversation before them.

The provider sends what is in the metadata, never the content, which is a label. Only the model that made a compaction
can read it: its provider refuses a request with one of another model (provider-anthropic, `native_compaction.py`;
provider-openai, `native_context.py`). Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from .parsing import Message, metadata_of, text_of
from .reminders import NATIVE, is_native_context

_VERSION = 1  # of the metadata, in both providers


def is_carrier(message: Message) -> bool:
    """True in whatever condition the carrier is."""
    return message["role"] == "user" and is_native_context(metadata_of(message))


def can_read(message: Message, provider: str, model: str) -> bool:
    """True if a model can read a carrier. A request that does not name its provider or its model is taken to match.

    The name of a provider holds the vendor's; that of the model is empty if it is not known.
    """
    return any(
        (not provider or vendor in provider.lower()) and (not model or state.get("model") == model)
        for vendor, state in _states(message)
    )


def carried_items(message: Message) -> list[dict[str, Any]]:
    """Return what a provider sends for a carrier: Anthropic's block, OpenAI's items; none if it cannot be read."""
    for _, state in _states(message):
        if items := _items(state):
            return items
    return []


def carried_text(message: Message) -> str:
    items = carried_items(message)
    texts = [item["content"] if isinstance(item.get("content"), str) else _item_text(item) for item in items]
    return "\n\n".join(text for text in texts if text.strip())


def _items(state: dict[str, Any]) -> list[dict[str, Any]]:
    output = state.get("output")
    given = cast("list[Any]", [state.get("block"), *(cast("list[Any]", output) if isinstance(output, list) else [])])
    return [cast("dict[str, Any]", item) for item in given if isinstance(item, dict)]


def _item_text(item: dict[str, Any]) -> str:
    """In OpenAI's Responses API blocks are `input_text` and `output_text`."""
    blocks = cast("list[Any]", item["content"]) if isinstance(item.get("content"), list) else []
    texts = [cast("dict[str, Any]", block).get("text") for block in blocks if isinstance(block, dict)]
    return text_of([{"type": "text", "text": text} for text in texts])


def _states(message: Message) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield vendor and state of the compactions that the vendor's provider would accept; it knows newer versions."""
    metadata = metadata_of(message)
    for key, vendor in NATIVE.items():
        state = cast("object", metadata.get(key))
        if not isinstance(state, dict):
            continue
        state = cast("dict[str, Any]", state)
        is_whole = _is_block(state.get("block")) if vendor == "anthropic" else _is_window(state.get("output"))
        if is_whole or state.get("version") != _VERSION:
            yield vendor, state


def _is_block(value: object) -> bool:
    block = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    sealed = (block.get("content"), block.get("signature"))
    return block.get("type") == "compaction" and all(isinstance(one, str) and one for one in sealed)


def _is_window(value: object) -> bool:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    objects = [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
    sealed = any(item.get("type") == "compaction" and bool(item.get("encrypted_content")) for item in objects)
    return sealed and len(objects) == len(items)
