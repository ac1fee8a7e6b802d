"""What a series of requests costs, by three readings of a provider's prompt cache.

*Prefix*: the longest run of whole messages a request shares with the one before is cached, the rest is fresh.
*Breakpoints*: as Anthropic caches. A request writes at most four blocks: one ends with the system prompt, the others
with this request and with the ends of the two before it, as far as they still are prefixes. A later request reads the
longest block of the request before; what lies between two ends is fresh, however much of it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..shapes import SYSTEM_ROLES, Message
from .scale import Scale

CACHED = 0.1  # price of a cached token, in prices of a plain input token
WRITTEN = 1.25  # of a fresh token where writing the cache costs extra (Anthropic, 5 minutes)
PLAIN = 1.0  # of a fresh token where it does not (OpenAI)

_ROLLING = 3  # of the four blocks: ends of requests; the first block is the system prompt's


@dataclass(frozen=True, slots=True)
class Bill:
    """One request, in tokens.

    Attributes:
        tokens: all of it.
        cached: its prefix shared with the request before.
        block_cached: the part read from blocks, where the cache knows breakpoints only.
        broken: the request before was not a prefix of it.
    """

    tokens: int
    cached: int
    block_cached: int
    broken: bool


def price(cached: int, fresh: int, write: float = WRITTEN) -> float:
    """What tokens cost, in prices of a plain input token."""
    return CACHED * cached + write * fresh


class Ledger:
    """Bills for the requests of one session, in order."""

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._last: list[int] | None = None
        self._ends: list[tuple[int, int]] = []  # ends of former requests, newest first: messages, hash of the prefix
        self._system: tuple[int, int] | None = None

    def bill(self, view: Sequence[Message]) -> Bill:
        """What a request costs after those before it."""
        numbers = [self._scale.number(message) for message in view]
        weights = [self._scale.tokens_of(number) for number in numbers]
        shared = _shared(self._last, numbers) if self._last is not None else 0
        broken = self._last is not None and shared < len(self._last)
        chain = _chain(numbers)
        alive = [end for end in self._ends if end[0] <= len(chain) - 1 and chain[end[0]] == end[1]]
        system = len(_leading_system(view))
        block = max((end[0] for end in alive), default=0)
        if self._system is not None and self._system[0] == system and chain[system] == self._system[1]:
            block = max(block, system)
        self._ends = list(dict.fromkeys([(len(numbers), chain[-1]), *alive]))[:_ROLLING]
        self._system = (system, chain[system])
        self._last = numbers
        return Bill(sum(weights), sum(weights[:shared]), sum(weights[:block]), broken)


def _shared(before: Sequence[int], now: Sequence[int]) -> int:
    for place, (a, b) in enumerate(zip(before, now, strict=False)):
        if a != b:
            return place
    return min(len(before), len(now))


def _chain(numbers: Sequence[int]) -> list[int]:
    """A hash of each prefix, the empty one first."""
    chain = [0]
    for number in numbers:
        chain.append(hash((chain[-1], number)))
    return chain


def _leading_system(view: Sequence[Message]) -> list[Message]:
    leading: list[Message] = []
    for message in view:
        if message.get("role") not in SYSTEM_ROLES:
            break
        leading.append(message)
    return leading
