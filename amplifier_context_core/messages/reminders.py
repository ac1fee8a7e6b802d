"""Text that hosts and hooks put into a conversation: what is not a person's, and which of it a newer text replaces.

Loops keep the reminders of their hooks as messages of the user, so that a request begins with the request before it
(docs/kernel.md). Each is a snapshot: a newer one with the same sources replaces it. Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

INJECTED_SOURCES = frozenset({"hook", "context-compaction"})  # docs/kernel.md: marks of text no human wrote
REFERENCE_ONLY = "amplifier_public_reference_only"  # docs/kernel.md: originals of a host, never sent
_INPUT = "amplifier_input"  # docs/kernel.md: where an input came from
_REMINDERS = frozenset({"system-reminder", "system-reminders"})  # tags of one, and of an envelope of many
# With those of what Claude Code writes in the name of its user. What the user typed has other tags.
_OF_PROGRAMS = _REMINDERS | {
    "task-notification",
    "local-command-caveat",
    "local-command-stdout",
    "local-command-stderr",
    "bash-stdout",
    "bash-stderr",
}
_INTERRUPT = re.compile(r"\s*\[Request interrupted by user(?: for tool use)?\]\s*")  # as Claude Code notes it
# How Claude Code begins the summary that it puts in place of a conversation, in the name of its user.
_CONTINUED = re.compile(r"\s*This session is being continued from a previous conversation that ran out of context\.")
# How Claude Code begins the result of a call that its user refused, and what is before the user's reason in it.
_REFUSED = re.compile(r"\s{0,9}The user (?:doesn't want|rejected)")
_REASON = "the user said:"
_REFUSAL_CHARS = 600  # of a result, from its start, in which the reason begins
# What Claude Code makes of a command that its user calls; a message with the command's prompt follows.
_OF_COMMANDS = frozenset({"command-name", "command-message", "command-args"})
_SKILL = "Base directory for this skill:"  # how it begins the text of a skill
_TAG = re.compile(r"\s*<([a-z-]{1,40})(?=[\s>])")
_LONGEST_TAG = 1_000  # characters; a longer one is no tag
_SOURCE = re.compile(r"""<system-reminder\s[^>]{0,900}?source=["']([^"'>]{1,200})["']""")
NATIVE = {"anthropic:compaction": "anthropic", "openai:compaction": "openai"}  # docs/kernel.md: key, and vendor
_UNNAMED = frozenset({"", "unknown"})  # what the kernel calls a hook that gives no name


def is_injected(metadata: Mapping[str, Any]) -> bool:
    """True if metadata says that no person wrote the message."""
    if metadata.get("ephemeral") is True or metadata.get("source") in INJECTED_SOURCES:
        return True
    if metadata.get(REFERENCE_ONLY) is True or is_native_context(metadata):
        return True
    stated = metadata.get(_INPUT)
    return isinstance(stated, dict) and cast("dict[str, Any]", stated).get("kind") == "service"


def is_native_context(metadata: Mapping[str, Any]) -> bool:
    """True for a message that carries a provider's own compaction of the conversation before it (docs/kernel.md)."""
    return not NATIVE.keys().isdisjoint(metadata)


def is_of_a_program(text: str) -> bool:
    """True if the text of a user's message is only reminders, reports of a program, its summary, or an interrupt."""
    return _INTERRUPT.fullmatch(text) is not None or is_summary_of_host(text) or _holds_only(_OF_PROGRAMS, text)


def is_summary_of_host(text: str) -> bool:
    """True if a host put the text in place of the conversation before it: no call from there is answered any more."""
    return _CONTINUED.match(text) is not None


def is_command(text: str) -> bool:
    """True if the text of a user's message is only the name and arguments of a command of the host."""
    return bool(text.strip()) and _holds_only(_OF_COMMANDS, text)


def is_skill(text: str) -> bool:
    return text.lstrip().startswith(_SKILL)


def reason_of_refusal(result: str) -> str:
    """Return what a person said who refused a call, from the text of its result; empty for every other result."""
    start = result.find(_REASON, 0, _REFUSAL_CHARS) if _REFUSED.match(result) else -1
    return result[start + len(_REASON) :].strip() if start >= 0 else ""


def lineages_of(role: str, metadata: Mapping[str, Any], text: str) -> frozenset[str]:
    """Return what a newer message must repeat to replace this one; empty for a message that none replaces."""
    if is_native_context(metadata):
        return frozenset()
    name = metadata.get("hook_name")
    if role in ("system", "developer", "user") and isinstance(name, str) and name not in _UNNAMED:
        return frozenset((f"hook {name}",)) if role != "user" or is_injected(metadata) else frozenset()
    is_snapshot = metadata.get("ephemeral") is True and metadata.get("persisted") is True
    if role != "user" or not is_snapshot or not _holds_only(_REMINDERS, text):
        return frozenset()
    return frozenset(f"reminder {source}" for source in _SOURCE.findall(text)) or frozenset(("reminder",))


def _holds_only(names: frozenset[str], text: str) -> bool:
    """True if a text is nothing but elements with these tags, each up to the first closing tag of its name."""
    place = 0
    while (opening := _TAG.match(text, place)) is not None and opening[1] in names:
        end_of_tag = text.find(">", opening.end(), opening.end() + _LONGEST_TAG)
        closing = f"</{opening[1]}>"
        close = text.find(closing, end_of_tag)
        if end_of_tag < 0 or close < 0:
            return False
        place = close + len(closing)
    return not text[place:].strip()
