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

* Needing metadata: a request none of whose messages has any gets no breakpoint in the conversation. The lab leaves this
  out: the hosts' messages carry metadata, its recordings do not.

Tool definitions are not recorded, and the least lengths a provider caches are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from .bill import Bill
from .entries import Entries
from .request import Memo, Request
from .wire import Wire, WireMessage, shape, wire_of

TTL = 300.0  # seconds: 5 minutes, refreshed by use (Anthropic's guide "Prompt caching")
LOOK_BACK = 20  # blocks before a breakpoint (the same guide)


class Anthropic:
    """Writes at the provider's breakpoints, reads what was written a little before them."""

    def __init__(self, *, inferring: bool, needs_metadata: bool = False) -> None:
        self._needs_metadata = needs_metadata
        self._entries = Entries(TTL)
        self._shapes = Memo(shape)
        self._stability = Stability() if inferring else None

    def bill(self, request: Request, at: float) -> Bill:
        """Return the bill of a request after the requests before it."""
        sent = wire_of(request, self._shapes)
        unstable = 0 if self._stability is None else self._stability.unstable(sent)
        messages = ([sent.system] if sent.system else []) + sent.messages
        first = len(messages) - len(sent.messages)
        is_cached = not self._needs_metadata or any(message.get("metadata") for message in request.messages)
        placed = breakpoints(sent.messages, unstable) if is_cached else []
        marked = [*range(first), *(first + index for index in placed)]
        read = self._longest(messages, marked, at)
        cached = messages[marked[-1]].offset if marked else 0
        used = [messages[index].prefix for index in marked]
        if read is not None:
            used.append(read.prefix)
        self._entries.use(used, at)
        hit = read.offset if read is not None else 0
        return Bill(hit, cached - hit, sent.tokens - cached)

    def _longest(self, messages: Sequence[WireMessage], marked: Sequence[int], at: float) -> WireMessage | None:
        for mark in reversed(marked):
            for index in range(mark, -1, -1):
                if messages[mark].end - messages[index].end > LOOK_BACK:
                    break
                if self._entries.holds(messages[index].prefix, at):
                    return messages[index]
        return None


class Stability:
    """How many trailing messages a provider takes for unstable, from what became of the request before.

    One memory for each conversation; a conversation is its system block and its first message.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], tuple[list[int], int]] = {}

    def unstable(self, sent: Wire) -> int:
        """Return how many trailing messages may not carry a breakpoint, and remember the request."""
        if not sent.messages:
            return 0
        chain = [message.prefix for message in sent.messages]
        key = (sent.system.prefix if sent.system else 0, chain[0])
        known = self._before.get(key)
        if known is None:
            self._before[key] = (chain, 0)
            return 0
        before, observed = known
        if before == chain:
            return observed  # the same request once more says nothing new
        shared = next(
            (place for place, (a, b) in enumerate(zip(before, chain, strict=False)) if a != b),
            min(len(before), len(chain)),
        )
        observed = len(before) - shared
        self._before[key] = (chain, observed)
        return observed


def breakpoints(messages: Sequence[WireMessage], unstable: int = 0) -> list[int]:
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
    asked = next((index for index in range(primary, 0, -1) if _is_instruction(messages[index])), None)
    start = asked - 1 if asked is not None else primary - 2
    secondary = _safe(messages, start)
    return sorted({primary} if secondary is None else {secondary, primary})


def _is_instruction(message: WireMessage) -> bool:
    """True if a user message holds more than results."""
    return message.shape.role == "user" and not message.shape.results


def _safe(messages: Sequence[WireMessage], start: int) -> int | None:
    """Return the last message up to `start` that can carry a breakpoint without parting a call from its results."""
    for index in range(start, -1, -1):
        parts = index + 1 < len(messages) and messages[index].shape.calls and messages[index + 1].shape.results
        if not parts and not messages[index].shape.closed:
            return index
    return None
