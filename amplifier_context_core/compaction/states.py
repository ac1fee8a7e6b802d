"""States: todo lists, plans and approvals that an agent writes with a tool. Each version replaces the one before.

A tool is recognized by its name together with what it was called with, or by the shape of what it was called with
alone: a list of items that have a text and a status. A call that reads a state, changes a part of one, was refused or
got no result writes none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from ..messages.parsing import Call, Result, arguments_of, blocks_of, calls_of, json_text, result_text
from ..rendering.rounds import Results, Round
from ..transcript.entry import Entry

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_STATES = frozenset({"plan", "checklist", "tasklist"})  # and every word that begins with "todo"
_APPROVALS = frozenset({"approval", "approvals", "approve"})
_READS = frozenset({"read", "get", "list", "show", "view", "fetch", "search", "find"})
_PARTIAL = frozenset({"merge", "append", "patch"})  # arguments that make a call a change of a state
_TEXTS = frozenset({"content", "title", "text", "task", "step", "description", "subject", "name", "item"})
_STATUSES = frozenset({"status", "state", "done", "completed", "complete", "checked", "finished"})
_VALUES = frozenset(
    {"pending", "todo", "open", "planned", "notstarted", "inprogress", "active", "doing", "blocked", "cancelled",
     "canceled", "skipped", "completed", "complete", "done", "finished", "failed"}
)  # fmt: skip
_LEAST_PLAN = 40  # characters of a text from which it is a plan, not the name of one
_LISTS = ("[]", "[{", '["')  # how a list begins that is given as JSON text
_MOST_ITEMS = 1_000  # items of a list that are looked at; a longer list is data
_MOST_CHARS = 200_000  # characters of arguments as text that are looked at; longer ones are data
_MOST_KEY = 100  # characters of an argument that identifies a list, and of the name of a tool
_REFUSED = re.compile(r"\s*(?:<tool_use_error>|(?:\w*error|exception|traceback)\b)", re.IGNORECASE)


def states_of(round_: Round, tools: Collection[str] | None) -> tuple[str, ...]:
    """Return the key of each state that the calls of a round wrote, in order; versions of one state have one key.

    `tools` are those whose calls write a state; None to recognize them.
    """
    return tuple(key for _, key in written_states(round_, tools) if key)


def writes_only_states(round_: Round, tools: Collection[str] | None) -> bool:
    """True if a round is calls that wrote a state, with their results, and no text beside them."""
    head = round_.head.message
    content = head.get("content")
    spoken = content if isinstance(content, str) else "".join(str(b.get("text") or "") for b in blocks_of(head))
    keys = [key for _, key in written_states(round_, tools)]
    return bool(keys) and all(keys) and not spoken.strip() and not round_.is_human


def state_key(call: Call, tools: Collection[str] | None = None) -> str:
    """Return the key of the state that a call writes; empty if it writes none. Its result is not looked at."""
    if tools is not None:
        return _key(call.name, arguments_of(call)) if call.name in tools else ""
    words = words_of_tool(call.name)
    named = any(word in _STATES or word.startswith("todo") for word in words)
    asks = not _APPROVALS.isdisjoint(words)
    if not words or words[0] in _READS or words[-1] in _READS - {"list"}:
        return ""
    if isinstance(call.arguments, str) and len(call.arguments) > _MOST_CHARS:
        return ""
    arguments = arguments_of(call)
    if any(arguments.get(key) is True for key in _PARTIAL):
        return ""
    values = arguments.values()
    if any(map(_are_items, values)):
        return _key(call.name, arguments)
    if asks and values:
        return f"{call.name}\0{json_text(arguments)}"  # each approval is a state of its own
    if named and any(map(_is_plan, values)):
        return _key(call.name, arguments)
    return ""


def words_of_tool(name: str) -> list[str]:
    """Return the words of a name in small letters: ``todo``, ``write`` of ``TodoWrite``."""
    return [word.lower() for word in _WORDS.findall(name[:_MOST_KEY])]


def written_states(round_: Round, tools: Collection[str] | None) -> list[tuple[Call, str]]:
    """The key is empty for a call that wrote none."""
    if not round_.is_tool_round or (tools is not None and not tools):
        return []
    calls = [call for entry in round_.entries if entry.role == "assistant" for call in calls_of(entry.message)]
    keys = [state_key(call, tools) for call in calls]
    if not any(keys):
        return list(zip(calls, keys, strict=True))
    results = Results(round_.entries)
    answers = [results.take(call.id) for call in calls]
    return [
        (call, key if key and found is not None and not _is_refused(*found) else "")
        for call, key, found in zip(calls, keys, answers, strict=True)
    ]


def _is_refused(entry: Entry, result: Result) -> bool:
    flagged = entry.message.get("is_error") is True or any(
        block.get("is_error") is True and result.call_id in (block.get("tool_use_id"), block.get("tool_call_id"))
        for block in blocks_of(entry.message)
    )
    return flagged or _REFUSED.match(result_text(result.content)[:200]) is not None


def _key(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool's name and the arguments that identify one of its lists."""
    parts = [
        f"{key}={value}"
        for key, value in sorted(arguments.items())
        if isinstance(value, str | int) and len(str(value)) <= _MOST_KEY and _identifies(key)
    ]
    return "\0".join((name, *parts))


def _identifies(key: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(key)]
    return bool(words) and (words[-1] in ("id", "path", "file", "name"))


def _are_items(value: object) -> bool:
    if not isinstance(value, list):
        return False
    items = cast("list[object]", value)
    return 0 < len(items) <= _MOST_ITEMS and all(_is_item(item) for item in items)


def _is_item(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    fields = {str(key).lower(): field for key, field in cast("dict[object, object]", value).items()}
    return any(isinstance(fields.get(key), str) for key in _TEXTS) and any(
        _is_status(fields[key]) for key in _STATUSES if key in fields
    )


def _is_status(value: object) -> bool:
    if isinstance(value, bool):
        return True
    return isinstance(value, str) and "".join(_WORDS.findall(value[:40])).lower() in _VALUES


def _is_plan(value: object) -> bool:
    if isinstance(value, str):
        return len(value) >= _LEAST_PLAN or value.startswith(_LISTS)
    return isinstance(value, list)
