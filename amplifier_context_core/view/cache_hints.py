"""Metadata by which a provider knows where to end a cached prefix. It is not sent to the model.

* The last chapter carries ``cache_breakpoint: true``. Up to there a view stays as it is through the next compactions;
  what follows is rewritten by each. A provider that ends a cached prefix there reads the chapters after a compaction.
* provider-anthropic places breakpoints in a conversation only if the metadata of some message says which messages are
  regenerated (docs/caching.md). Where hosts add none, the first message says that it is not: ``persisted: true``.

Both are added to what is handed out, not to what is stored or compared: the chapter before the last one loses its mark
without being another message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..messages.parsing import SYSTEM_ROLES, Message, metadata_of
from ..rendering.renderer import NOTE_METADATA
from .meter import Key

BREAKPOINT = "cache_breakpoint"
_PERSISTED = "persisted"  # of provider-anthropic: with `ephemeral`, the message is stable in spite of it
_READS_METADATA = ("anthropic", "claude")  # parts of the names of providers and models


def with_cache_hints(messages: Sequence[Message], key: Key) -> list[Message]:
    """Return the messages of a request, with metadata for the cache of their provider.

    Args:
        messages: system prompt and view. They are not changed.
        key: provider and model.
    """
    hinted = list(messages)
    first = next((index for index, message in enumerate(hinted) if message["role"] not in SYSTEM_ROLES), None)
    name = " ".join(key).lower()
    if first is not None and not metadata_of(hinted[first]) and any(part in name for part in _READS_METADATA):
        hinted[first] = {**hinted[first], "metadata": {_PERSISTED: True}}
    for index in range(len(hinted) - 1, -1, -1):
        given: Any = hinted[index].get("metadata")
        # A test of each message of the view: no call of a function, which would take more time than all else.
        if given.__class__ is dict and "chapter" in given and given.get("source") == NOTE_METADATA["source"]:
            hinted[index] = {**hinted[index], "metadata": {**given, BREAKPOINT: True}}
            break
    return hinted
