"""A request in Anthropic's shape, as far as its cache sees it: one system block, then messages of blocks.

As `_assemble_request_params` and `_convert_messages` of provider-anthropic build it: all system messages become one
block in front, and results that follow each other become one user message. Two simplifications, for recordings hold
neither and every cache bills the same tokens: developer messages count as system messages, which the provider sends as
the first user messages; results without a call are kept, which the provider leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ..checks.message_shapes import (
    CALL_BLOCKS,
    SYSTEM_ROLES,
    THINKING_BLOCKS,
    Message,
    blocks_of,
    calls_of,
)
from .request import Memo, Request, prefixes


@dataclass(frozen=True, slots=True)
class Shape:
    """What a breakpoint needs to know of a message.

    Attributes:
        closed: its last block can carry no breakpoint: empty text or thinking.
    """

    role: str
    blocks: int
    calls: bool
    results: bool
    closed: bool


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message on the wire.

    Attributes:
        offset: tokens up to its end.
    """

    shape: Shape
    end: int
    offset: int
    prefix: int


@dataclass(frozen=True, slots=True)
class Wire:
    """A request on the wire.

    Attributes:
        system: the system block, as a message; None without one.
        messages: the others, in order.
    """

    system: WireMessage | None
    messages: list[WireMessage]
    tokens: int


SYSTEM = Shape("system", 1, calls=False, results=False, closed=False)


def wire_of(request: Request, shapes: Memo[Shape]) -> Wire:
    """Return a request as it goes over the wire; `shapes` remembers what was made of its messages before."""
    rows = list(zip(shapes.each(request), request.numbers, request.tokens, strict=True))
    rows.sort(key=lambda row: row[0].role != "system")  # stable: system messages first, else in order
    front = sum(row[0].role == "system" for row in rows)
    chain = prefixes(number for _, number, _ in rows)
    offsets = list(accumulate((tokens for _, _, tokens in rows), initial=0))
    conversation = [found for found, _, _ in rows[front:]]
    blocks = list(accumulate((found.blocks for found in conversation), initial=int(front > 0)))
    system = WireMessage(SYSTEM, 1, offsets[front], chain[front]) if front else None
    messages = [
        WireMessage(conversation[end - 1], blocks[end], offsets[front + end], chain[front + end])
        for end in _ends(conversation)
    ]
    return Wire(system, messages, offsets[-1])


def shape(message: Message) -> Shape:
    role, content = str(message.get("role")), message.get("content")
    if role in SYSTEM_ROLES:
        return SYSTEM
    if role in ("tool", "function"):
        return Shape("tool", 1, calls=False, results=True, closed=False)
    kinds = [str(block.get("type")) for _, block in blocks_of(content)]
    parts = [kind for kind in kinds if kind not in CALL_BLOCKS]
    calls = len(calls_of(message)) if role == "assistant" else 0
    text = isinstance(content, str) and bool(content.strip())
    results = role == "user" and bool(kinds) and set(kinds) == {"tool_result"}
    blocks = calls + len(parts) + text
    closed = not calls and (not (parts or text) or bool(parts and _cannot_end(content, parts[-1])))
    return Shape(role, max(1, blocks), bool(calls), results, closed)


def _cannot_end(content: object, last: str) -> bool:
    """True if the last block of a content is thinking or empty text."""
    text = str(blocks_of(content)[-1][1].get("text") or "")
    return last in THINKING_BLOCKS or (last == "text" and not text.strip())


def _ends(shapes: Sequence[Shape]) -> list[int]:
    ends: list[int] = []
    before = ""
    for count, current in enumerate(shapes, 1):
        if ends and current.role == "tool" and before == "tool":
            ends[-1] = count
        else:
            ends.append(count)
        before = current.role
    return ends
