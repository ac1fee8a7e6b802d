"""What a format gives: messages, and what could not be carried.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from amplifier_context_core.messages.parsing import json_text

Message = dict[str, Any]
_NAME = re.compile(r"[\w-]{1,40}", re.ASCII)
BY_A_PROGRAM = {"source": "hook"}  # metadata of a text in the role of a user that no person wrote


class UnknownFormat(ValueError):
    """A file is not of the format that it was read as."""


@dataclass(slots=True)
class Conversation:
    """A conversation that was read.

    Attributes:
        left_out: number of things that messages cannot carry, by their names.
    """

    messages: list[Message] = field(default_factory=list[Message])
    left_out: Counter[str] = field(default_factory=Counter[str])


def mapping(value: object) -> Mapping[str, Any] | None:
    """Return a value if it is a JSON object."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None


def items(value: object) -> list[Any]:
    """Return a value if it is a JSON array; an empty list if not."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_in(made: Conversation, content: object) -> str:
    """Return the text of a content: of parts their texts. Images, which messages do not carry here, are left out."""
    if isinstance(content, str) or content is None:
        return content or ""
    if not (listed := items(content)):
        return json_text(content)
    parts = [part for one in listed if (part := mapping(one)) is not None]
    texts = [str(part["text"]) for part in parts if "text" in part]
    made.left_out["images"] += len(parts) - len(texts)
    return "\n".join(texts)


def lines_of(kind: object, what: str = "lines") -> str:
    """Return the name by which lines of a type are listed as left out. A type that cannot be printed has none."""
    is_name = isinstance(kind, str) and _NAME.fullmatch(kind)
    return f"{what} of the type {kind}" if is_name else f"{what} of no known type"


def with_metadata(message: Message, **metadata: Any) -> Message:
    """Return a message with metadata beside what it has; None is left out."""
    given = {key: value for key, value in metadata.items() if value is not None}
    return message | {"metadata": {**(mapping(message.get("metadata")) or {}), **given}} if given else message
