"""The messages of a request as its provider takes them.

Thinking blocks of other providers are left out, because they are signed. Call ids are shortened where the provider
limits their length. Metadata marks for the provider where a cached prefix may end; it is not sent to the model:

* The last chapter carries ``cache_breakpoint: true``. Up to there a view stays as it is through the next compactions;
  what follows is rewritten by each. A provider that ends a cached prefix there reads the chapters after a compaction.
* provider-anthropic places breakpoints in a conversation only if the metadata of some message says which messages are
  regenerated (docs/caching.md). Where hosts add none, the first message says that it is not: ``persisted: true``.

Both marks are added to what is handed out, not to what is stored or compared: the chapter before the last one loses its
mark without being another message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..messages.parsing import SYSTEM_ROLES, Message, metadata_of
from ..rendering.merge import merge_consecutive
from ..rendering.provider_limits import wants_short_ids, with_short_ids
from ..rendering.renderer import NOTE_METADATA, RenderedMessage
from ..rendering.thinking import without_thinking

BREAKPOINT = "cache_breakpoint"
_PERSISTED = "persisted"  # of provider-anthropic: with `ephemeral`, the message is stable in spite of it
_READS_METADATA = ("anthropic", "claude")  # parts of the names of providers and models


def provider_messages(
    key: tuple[str, str], messages: Iterable[RenderedMessage], *, merge: bool
) -> list[tuple[Message, tuple[int, ...]]]:
    """Return messages as a provider takes them, each with the seqs of the entries that it shows."""
    provider = key[0]
    made: list[tuple[Message, tuple[int, ...]]] = []
    for shown in messages:
        is_foreign = shown.provider and provider and shown.provider != provider
        message = without_thinking(shown.message) if is_foreign else shown.message
        if message is not None:
            made.append((message, (shown.seq,) if shown.seq > 0 else ()))
    if wants_short_ids(*key):
        made = list(zip(with_short_ids([message for message, _ in made]), (seqs for _, seqs in made), strict=True))
    if not merge:
        return made
    merged: list[tuple[Message, tuple[int, ...]]] = []
    for message, seqs in made:
        both = merge_consecutive([merged[-1][0], message]) if merged else [message]
        if merged and len(both) == 1:
            merged[-1] = both[0], (*merged[-1][1], *seqs)
        else:
            merged.append((message, seqs))
    return merged


def with_cache_hints(messages: Sequence[Message], key: tuple[str, str]) -> list[Message]:
    """Return the messages of a request, with metadata for the cache of their provider. They are not changed."""
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
