"""Text that hosts and hooks put into a conversation: what is not a person's, and which of it a newer text replaces.

Loops keep the reminders of their hooks as messages of the user, so that a request begins with the request before it
(docs/kernel.md). Each is a snapshot: a newer one with the same sources replaces it.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

INJECTED_SOURCES = frozenset({"hook", "context-compaction"})  # docs/kernel.md: marks of text no human wrote
REFERENCE_ONLY = "amplifier_public_reference_only"  # docs/kernel.md: originals of a host, never sent
_INPUT = "amplifier_input"  # docs/kernel.md: where an input came from
_OPENING = "<system-reminder"  # of one reminder, and of an envelope of many (`<system-reminders>`)
_LONGEST_TAG = 1_000  # characters; a longer one is no tag
_SOURCE = re.compile(r"""<system-reminder\s[^>]{0,900}?source=["']([^"'>]{1,200})["']""")
NATIVE = {"anthropic:compaction": "anthropic", "openai:compaction": "openai"}  # docs/kernel.md: key, and vendor
_UNNAMED = frozenset({"", "unknown"})  # what the kernel calls a hook that gives no name


def is_injected(metadata: Mapping[str, Any]) -> bool:
    """True if the metadata of a message says that no person wrote it."""
    if metadata.get("ephemeral") is True or metadata.get("source") in INJECTED_SOURCES:
        return True
    if metadata.get(REFERENCE_ONLY) is True or is_native_context(metadata):
        return True
    stated = metadata.get(_INPUT)
    return isinstance(stated, dict) and cast("dict[str, Any]", stated).get("kind") == "service"


def is_native_context(metadata: Mapping[str, Any]) -> bool:
    """True for a message that carries a provider's own compaction of the conversation before it (docs/kernel.md)."""
    return not NATIVE.keys().isdisjoint(metadata)


def says_more_than_reminders(text: str) -> bool:
    """True if a text holds anything besides reminders."""
    place = 0
    for start, end in _reminders(text):
        if text[place:start].strip():
            return True
        place = end
    return text[place:].strip() != ""


def lineages_of(role: str, metadata: Mapping[str, Any], text: str) -> frozenset[str]:
    """Return what a newer message must repeat to replace this one; empty for a message that none replaces.

    Args:
        role: of the message.
        metadata: of the message.
        text: of the message.
    """
    if is_native_context(metadata):
        return frozenset()
    name = metadata.get("hook_name")
    if role in ("system", "developer", "user") and isinstance(name, str) and name not in _UNNAMED:
        return frozenset((f"hook {name}",)) if role != "user" or is_injected(metadata) else frozenset()
    is_snapshot = metadata.get("ephemeral") is True and metadata.get("persisted") is True
    if role != "user" or not is_snapshot or says_more_than_reminders(text):
        return frozenset()
    return frozenset(f"reminder {source}" for source in _SOURCE.findall(text)) or frozenset(("reminder",))


def _reminders(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each reminder begins and ends, or each envelope with all that it holds."""
    place = 0
    while (start := text.find(_OPENING, place)) >= 0:
        end_of_tag = text.find(">", start, start + _LONGEST_TAG)
        name = "system-reminders" if text.startswith("s", start + len(_OPENING)) else "system-reminder"
        following = text[start + 1 + len(name) : start + 2 + len(name)]
        if end_of_tag < 0 or not (following == ">" or following.isspace()):
            return
        close = text.find(f"</{name}>", end_of_tag)
        if close < 0:
            return
        place = close + len(name) + 3
        yield start, place
