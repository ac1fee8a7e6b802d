"""Typed messages: a role and a list of blocks, read from any shape that the core stores and written back to it.

A `Message` that was read from a dict keeps it. If the message was not changed, `to_dict` returns exactly that dict,
whatever its shape; a changed message is written from its blocks. So copying a history through typed messages does not
change it, however often. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from ..errors import InvalidMessage
from ..messages.parsing import (
    CALL_BLOCKS,
    Call,
    MessageInfo,
    arguments_of,
    blocks_of,
    calls_of,
    copy_message,
    parse_message,
)
from ..messages.parsing import Message as RawMessage
from .blocks import (
    ContentBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    block_list,
    block_of,
    extra_keys,
    result_content,
)

Role = Literal["user", "assistant", "system", "developer", "function"]
ROLES: frozenset[str] = frozenset(get_args(Role))

_FIELDS = frozenset({"role", "content", "tool_calls"})
_RESULT_FIELDS = _FIELDS | {"tool_call_id", "is_error"}


@dataclass(init=False, slots=True)
class Message:
    """One message of a conversation.

    Tool results are `ToolResultBlock` in a message of the user; a dict with ``role: tool`` is read as such a message.

    Args:
        role: ``user`` or ``assistant``; ``system``, ``developer`` and ``function`` for messages stored under these.
        content: blocks; a text means one text block.
        extra: JSON data under other keys of the message, e.g. ``metadata``.

    Raises:
        InvalidMessage: an argument has the wrong type; the error names the field.
    """

    role: Role
    content: list[ContentBlock]
    extra: dict[str, Any]
    _raw: RawMessage | None = field(repr=False, compare=False)  # the dict it was read from

    def __init__(
        self, role: Role, content: str | Iterable[ContentBlock], *, extra: Mapping[str, Any] | None = None
    ) -> None:
        self.role = _checked_role(role)
        self.content = [TextBlock(content)] if isinstance(content, str) else _checked_content(content)
        self.extra = extra_keys({} if extra is None else extra, _FIELDS)
        self._raw = None

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Message:
        """Read a message dict in any shape that the core reads. Later changes of `raw` have no effect.

        Raises:
            InvalidMessage: it is malformed; the error names the field.
        """
        stored, _ = parse_message(raw)
        made = cls.__new__(cls)
        made.role, made.content, made.extra = _typed(stored)
        made._raw = stored
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the message as the core stores it: the dict it was read from, or its blocks if it is new or changed.

        Raises:
            InvalidMessage: a change made it malformed; the error names the field.
        """
        role, content = _checked_role(self.role), _checked_content(self.content)
        if self._raw is not None and _typed(self._raw) == (role, content, self.extra):
            return copy_message(self._raw)
        return {"role": role, "content": [block.to_dict() for block in content], **extra_keys(self.extra, _FIELDS)}

    @property
    def text(self) -> str:
        """Text blocks, joined by newlines, without tool results."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock) and block.text)


def to_typed(given: Message | Mapping[str, Any]) -> Message:
    return given if isinstance(given, Message) else Message.from_dict(given)


def to_raw(given: Message | Mapping[str, Any]) -> tuple[RawMessage, MessageInfo]:
    """As the core stores it, and what the core reads from it."""
    return parse_message(given.to_dict() if isinstance(given, Message) else given)


def _checked_role(role: object) -> Role:
    if not isinstance(role, str) or role not in ROLES:
        hint = "; a tool result is a block of a user's message" if role == "tool" else ""
        raise InvalidMessage("role", f"must be one of {', '.join(sorted(ROLES))}{hint}")
    return cast(Role, role)


def _checked_content(content: object) -> list[ContentBlock]:
    return block_list("content", content, ContentBlock, "a content block")


def _typed(raw: RawMessage) -> tuple[Role, list[ContentBlock], dict[str, Any]]:
    role = raw["role"]
    if role == "tool":
        call_id = raw.get("tool_call_id")
        if isinstance(call_id, str) and call_id.strip():
            failed = raw.get("is_error") is True
            answer = ToolResultBlock(call_id, result_content(raw.get("content")), failed)
            return "user", [answer], _extra(raw, _RESULT_FIELDS)
        role = "user"
    return cast(Role, role), _blocks(raw), _extra(raw, _FIELDS)


def _extra(raw: RawMessage, taken: frozenset[str]) -> dict[str, Any]:
    return copy_message({key: value for key, value in raw.items() if key not in taken})


def _blocks(raw: RawMessage) -> list[ContentBlock]:
    """Return the blocks of the content, then the other calls. A call in both occurs once, where the content has it."""
    found: list[ContentBlock] = []
    content = raw.get("content")
    if isinstance(content, str) and content:
        found.append(TextBlock(content))
    calls = list(calls_of(raw))
    for block in blocks_of(raw):
        if block["type"] not in CALL_BLOCKS:
            found.append(block_of(block))
            continue
        call = next((call for call in calls if call.id == block["id"]), None)
        if call is not None:  # otherwise the content holds it twice
            calls.remove(call)
            found.append(_use(call, {key: value for key, value in block.items() if key not in ToolUseBlock.keys}))
    found.extend(_use(call, {}) for call in calls)
    return found


def _use(call: Call, extra: dict[str, Any]) -> ToolUseBlock:
    name = call.name if call.name.strip() else "unknown"
    return ToolUseBlock(call.id, name, arguments_of(call), extra=extra)
