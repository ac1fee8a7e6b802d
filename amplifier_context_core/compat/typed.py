"""Typed messages: a role and a list of blocks, read from any shape the core stores and written back to it.

A `Message` that was read from a dict remembers it. As long as nobody changed the message, `to_dict` gives back exactly
that dict, whatever its shape; a changed one is written anew. So a history may be copied through typed messages as often
as one likes, and stays what it was.

Pure: no I/O, no clock.
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
from ..messages.parsing import Message as Wire
from .blocks import (
    USE_KEYS,
    ContentBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
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

    Tool results go into a message of the user, as `ToolResultBlock`; a dict with ``role: tool`` is read as one.

    Args:
        role: ``user`` or ``assistant``; ``system``, ``developer`` and ``function`` for what was stored under these.
        content: blocks; a text stands for one text block.
        extra: JSON data under other keys of the message, e.g. ``metadata``.

    Raises:
        InvalidMessage: one of them is something else; the field is named.
    """

    role: Role
    content: list[ContentBlock]
    extra: dict[str, Any]
    _wire: Wire | None = field(repr=False, compare=False)  # the dict it was read from

    def __init__(
        self, role: Role, content: str | Iterable[ContentBlock], *, extra: Mapping[str, Any] | None = None
    ) -> None:
        self.role = role
        self.content = [TextBlock(content)] if isinstance(content, str) else _listed(content)
        self.extra = extra_keys({} if extra is None else extra, _FIELDS)
        self._wire = None
        self._check()

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Message:
        """The typed form of a message dict of any shape the core reads. What is changed in `raw` later is not seen.

        Raises:
            InvalidMessage: it is none; the field is named.
        """
        wire, _ = parse_message(raw)
        made = cls.__new__(cls)
        made.role, made.content, made.extra = _typed(wire)
        made._wire = wire
        return made

    def to_dict(self) -> dict[str, Any]:
        """The message as the core stores it: the dict it was read from, or, for a new or changed one, its blocks.

        Raises:
            InvalidMessage: it was changed into something that is no message; the field is named.
        """
        self._check()
        if self._wire is not None and _typed(self._wire) == (self.role, self.content, self.extra):
            return copy_message(self._wire)
        extra = extra_keys(self.extra, _FIELDS)
        return {"role": self.role, "content": [block.to_dict() for block in self.content], **extra}

    @property
    def text(self) -> str:
        """What its text blocks say, joined by newlines; tool results are not part of it."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock) and block.text)

    def _check(self) -> None:
        role = cast(object, self.role)
        if not isinstance(role, str) or role not in ROLES:
            hint = "; a tool result is a block of a user's message" if role == "tool" else ""
            raise InvalidMessage("role", f"must be one of {', '.join(sorted(ROLES))}{hint}")
        if not isinstance(self.content, list):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.content = _listed(self.content)
        for index, block in enumerate(self.content):
            if not isinstance(block, ContentBlock):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidMessage(f"content[{index}]", f"must be a content block, got {type(block).__name__}")


def message_of(given: Message | Mapping[str, Any]) -> Message:
    """A typed message, read from a dict if it is one.

    Raises:
        InvalidMessage: it is neither, or a malformed one.
    """
    return given if isinstance(given, Message) else Message.from_dict(given)


def wire_of(given: Message | Mapping[str, Any]) -> tuple[Wire, MessageInfo]:
    """A typed message or a dict, as the core stores it, and what it says of itself.

    Raises:
        InvalidMessage: it is neither, or a malformed one.
    """
    return parse_message(given.to_dict() if isinstance(given, Message) else given)


def _listed(content: object) -> list[ContentBlock]:
    if not isinstance(content, Iterable) or isinstance(content, (str, bytes, bytearray, Mapping)):
        kind = type(cast(object, content)).__name__
        raise InvalidMessage("content", f"must be text or a list of content blocks, got {kind}")
    return list(cast("Iterable[ContentBlock]", content))


def _typed(wire: Wire) -> tuple[Role, list[ContentBlock], dict[str, Any]]:
    """Role, blocks and extra keys of a checked message."""
    role = wire["role"]
    if role == "tool":
        call_id = wire.get("tool_call_id")
        if isinstance(call_id, str) and call_id.strip():
            failed = wire.get("is_error") is True
            answer = ToolResultBlock(call_id, result_content(wire.get("content")), failed)
            return "user", [answer], _extra(wire, _RESULT_FIELDS)
        role = "user"
    return cast(Role, role), _blocks(wire), _extra(wire, _FIELDS)


def _extra(wire: Wire, taken: frozenset[str]) -> dict[str, Any]:
    return copy_message({key: value for key, value in wire.items() if key not in taken})


def _blocks(wire: Wire) -> list[ContentBlock]:
    """The content, and calls that stand beside it; a call stated in both comes once, in its place in the content."""
    found: list[ContentBlock] = []
    content = wire.get("content")
    if isinstance(content, str) and content:
        found.append(TextBlock(content))
    calls = list(calls_of(wire))
    for raw in blocks_of(wire):
        if raw["type"] not in CALL_BLOCKS:
            found.append(block_of(raw))
            continue
        call = next((call for call in calls if call.id == raw["id"]), None)
        if call is not None:  # else it was stated twice
            calls.remove(call)
            found.append(_use(call, {key: value for key, value in raw.items() if key not in USE_KEYS}))
    found.extend(_use(call, {}) for call in calls)
    return found


def _use(call: Call, extra: dict[str, Any]) -> ToolUseBlock:
    name = call.name if call.name.strip() else "unknown"
    return ToolUseBlock(call.id, name, arguments_of(call), extra=extra)
