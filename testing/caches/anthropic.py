"""Anthropic's cache, with breakpoints where Amplifier's provider-anthropic places them.

Read from `amplifier_module_provider_anthropic/__init__.py` of microsoft/amplifier-module-provider-anthropic at commit
026525fb: `_assemble_request_params`, `_observed_unstable_suffix_length`, `_apply_conversation_cache_control`,
`_last_safe_breakpoint_index`, `_find_rolling_secondary_index`.

* One breakpoint ends the system block, up to two more the conversation. *Primary*: the last message that does not part
  a call from its results and whose last block can carry a breakpoint. *Secondary*: before the last user message that
  holds more than results; if there is none after the first message, two messages before the primary.
* Inferring stability, as shipped: so many trailing messages get no breakpoint as the request before had beyond the
  prefix both share. After a compaction that is nearly all of them, so nothing of the conversation is read or written.
* A breakpoint stores the prefix that ends with it, and reads the longest stored prefix that ends at most 20 blocks
  before it.

On the wire, as `_convert_messages` builds it, all system messages are one block in front, and results that follow each
other are one user message. Simplified, because recordings hold neither or every cache bills the same tokens: developer
messages count as system messages, which the provider sends as the first user messages; results without a call are kept,
which the provider leaves out; a conversation without metadata has breakpoints, too. Tool definitions are not recorded,
and the least lengths a provider caches are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..checks.message_shapes import CALL_BLOCKS, SYSTEM_ROLES, THINKING_BLOCKS, Message, blocks_of, calls_of
from .bill import Bill
from .request import Entries, Memo, Request

TTL = 300.0  # seconds: 5 minutes, refreshed by use (Anthropic's guide "Prompt caching")
LOOK_BACK = 20  # blocks before a breakpoint (the same guide)


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
    """One message on the wire: its end in blocks, its end in tokens, and a hash of all up to its end."""

    shape: Shape
    end: int
    offset: int
    prefix: int


SYSTEM = Shape("system", 1, calls=False, results=False, closed=False)


class Anthropic:
    """Writes at the provider's breakpoints, reads what was written a little before them."""

    def __init__(self, *, inferring: bool) -> None:
        self._inferring = inferring
        self._entries = Entries(TTL)
        self._shapes = Memo(shape)
        self._before: dict[int, tuple[list[int], int]] = {}  # by the prefix of a conversation's first message

    def bill(self, request: Request, at: float) -> Bill:
        messages = wire_of(request, self._shapes)
        first = int(bool(messages) and messages[0].shape is SYSTEM)
        conversation = messages[first:]
        unstable = self._unstable([message.prefix for message in conversation]) if self._inferring else 0
        placed = breakpoints([message.shape for message in conversation], unstable)
        marked = [*range(first), *(first + index for index in placed)]
        read = self._longest(messages, marked, at)
        cached = messages[marked[-1]].offset if marked else 0
        used = [messages[index].prefix for index in marked]
        if read is not None:
            used.append(read.prefix)
        self._entries.use(used, at)
        hit = read.offset if read is not None else 0
        return Bill(hit, cached - hit, request.offsets[-1] - cached)

    def _longest(self, messages: Sequence[WireMessage], marked: Sequence[int], at: float) -> WireMessage | None:
        for mark in reversed(marked):
            for index in range(mark, -1, -1):
                if messages[mark].end - messages[index].end > LOOK_BACK:
                    break
                if self._entries.holds(messages[index].prefix, at):
                    return messages[index]
        return None

    def _unstable(self, chain: list[int]) -> int:
        """Return how many trailing messages of a conversation may not carry a breakpoint, and remember the request."""
        if not chain:
            return 0
        before, observed = self._before.get(chain[0], (chain, 0))
        if before != chain:  # the same request once more says nothing new
            pairs = enumerate(zip(before, chain, strict=False))
            shared = next((place for place, (a, b) in pairs if a != b), min(len(before), len(chain)))
            observed = len(before) - shared
        self._before[chain[0]] = (chain, observed)
        return observed


def wire_of(request: Request, shapes: Memo[Shape]) -> list[WireMessage]:
    """Return the messages on the wire; a system block comes first."""
    rows = list(zip(shapes.each(request), request.numbers, request.tokens, strict=True))
    rows.sort(key=lambda row: row[0] is not SYSTEM)  # stable: system messages first, else in order
    sent: list[WireMessage] = []
    end = offset = prefix = 0
    for found, number, tokens in rows:
        joined = bool(sent) and found.role in ("system", "tool") and sent[-1].shape.role == found.role
        end += 0 if joined and found is SYSTEM else found.blocks
        offset, prefix = offset + tokens, hash((prefix, number))
        if joined:
            sent.pop()
        sent.append(WireMessage(found, end, offset, prefix))
    return sent


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


def breakpoints(messages: Sequence[Shape], unstable: int = 0) -> list[int]:
    """Return where the conversation's breakpoints go: indices of messages, in order.

    Args:
        unstable: trailing messages that may not carry one.
    """
    upper = len(messages) - unstable
    if len(messages) < 2 or upper <= 0:
        return []
    primary = _safe(messages, upper - 1)
    if primary is None:
        return []
    users = (index for index in range(primary, 0, -1) if messages[index].role == "user")
    asked = next((index for index in users if not messages[index].results), None)  # a message of more than results
    start = asked - 1 if asked is not None else primary - 2
    secondary = _safe(messages, start)
    return sorted({primary} if secondary is None else {secondary, primary})


def _safe(messages: Sequence[Shape], start: int) -> int | None:
    """Return the last message up to `start` that can carry a breakpoint without parting a call from its results."""
    for index in range(start, -1, -1):
        parts = index + 1 < len(messages) and messages[index].calls and messages[index + 1].results
        if not parts and not messages[index].closed:
            return index
    return None
