"""Recorded transcripts: reading them, and feeding them to any context manager message by message.

Every message goes in as it was recorded, odd ones included, and before each assistant message the context is asked for
the view a model would have been sent.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..checks.message_shapes import SYSTEM_ROLES, Message, as_list, as_mapping


@dataclass(frozen=True, slots=True)
class Transcript:
    """One recorded conversation.

    Attributes:
        messages: the messages as recorded, in order.
        meta: whatever else the recording says of itself.
    """

    id: str
    source: str
    messages: list[Message]
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    path: Path | None = None


def read_transcripts(path: str | Path) -> Iterator[Transcript]:
    """Yield the transcripts of a JSONL file, `.gz` or not, one after the other.

    Two forms are read: a transcript per line (`{"id", "source", "messages", "meta"}`; lines without messages are
    passed over), and a message per line, as Amplifier writes its own `transcript.jsonl`: then the file is one
    transcript, named after it.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line is not JSON, or neither a transcript nor a message; names the file and the line.
    """
    file = Path(path)
    loose: list[Message] = []
    opened: Any = gzip.open if file.name.endswith(".gz") else open
    with opened(file, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            entry = _object(line, file, number)
            if "messages" in entry:
                yield _transcript(entry, file, number)
            elif "role" in entry:
                loose.append(dict(entry))
            elif "id" not in entry:
                raise ValueError(f"{file}, line {number}: neither a transcript (messages) nor a message (role)")
    if loose:
        name = file.name.removesuffix(".gz").removesuffix(".jsonl")
        yield Transcript(name, str(file), loose, path=file)


class Context(Protocol):
    """The methods of a context manager that `replay` calls."""

    async def add_message(self, message: Message) -> None: ...

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[Message]: ...


OnRequest = Callable[[int, list[Message]], object]
"""Called with the index of the message about to be made (all before it are in) and the view for it."""


async def replay(
    transcript: Transcript,
    context: Context,
    on_request: OnRequest,
    *,
    token_budget: int | None = None,
    provider: Any = None,
) -> None:
    """Feed a transcript to a context, asking for a view before every assistant message, as loops do.

    Nothing is asked before there is a message that is no system prompt: no loop requests an empty conversation.

    Args:
        token_budget: tokens, passed on with each request; `None` leaves the budget to provider and context.
    """
    asked = set(requests_of(transcript.messages))
    for index, message in enumerate(transcript.messages):
        if index in asked:
            on_request(index, await context.get_messages_for_request(token_budget=token_budget, provider=provider))
        await context.add_message(message)


def requests_of(messages: Sequence[Message]) -> list[int]:
    """Return where a view is asked for: before each assistant message that is not the first of the conversation."""
    roles = [message.get("role") for message in messages]
    first = next((index for index, role in enumerate(roles) if role not in SYSTEM_ROLES), len(roles))
    return [index for index, role in enumerate(roles) if role == "assistant" and index > first]


def _object(line: str, file: Path, number: int) -> Mapping[str, Any]:
    try:
        entry = as_mapping(json.loads(line))
    except ValueError as problem:
        raise ValueError(f"{file}, line {number}: not JSON: {problem}") from problem
    if entry is None:
        raise ValueError(f"{file}, line {number}: not an object")
    return entry


def _transcript(entry: Mapping[str, Any], file: Path, number: int) -> Transcript:
    messages = as_list(entry.get("messages"))
    if messages is None or not all(isinstance(message, dict) for message in messages):
        raise ValueError(f"{file}, line {number}: `messages` is not a list of objects")
    return Transcript(
        id=str(entry.get("id") or f"line-{number}"),
        source=str(entry.get("source") or file),
        messages=messages,
        meta=dict(as_mapping(entry.get("meta")) or {}),
        path=file,
    )
