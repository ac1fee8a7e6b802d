"""A view as a request: its messages with their numbers, weights, and a hash of each prefix.

Every measure reads the same request, so a message of a view is recognised once and not once for each measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Generic, TypeVar

from ..checks.message_shapes import Message
from .token_scale import TokenScale

T = TypeVar("T")


class Request:
    """One request to a model.

    Attributes:
        numbers: one for each message; the same bytes have the same number.
    """

    def __init__(self, messages: Sequence[Message], numbers: Sequence[int], tokens: Sequence[int]) -> None:
        self.messages = messages
        self.numbers = numbers
        self.tokens = tokens

    @classmethod
    def of(cls, view: Sequence[Message], scale: TokenScale) -> Request:
        numbers = [scale.number(message) for message in view]
        return cls(view, numbers, [scale.tokens_of(number) for number in numbers])

    def first(self, count: int) -> Request:
        return Request(self.messages[:count], self.numbers[:count], self.tokens[:count])

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def offsets(self) -> list[int]:
        """Tokens before each message, and of all of them at the end."""
        return list(accumulate(self.tokens, initial=0))

    @cached_property
    def prefixes(self) -> list[int]:
        """Return a hash of each prefix: the empty one first, all of the request last."""
        return list(accumulate(self.numbers, lambda before, number: hash((before, number)), initial=0))

    def grew_from(self, before: Request) -> bool:
        """True if the request before is a prefix of this one."""
        return len(before) <= len(self) and self.prefixes[len(before)] == before.prefixes[-1]


class Memo(Generic[T]):
    """What a function makes of a message, made once for each different message."""

    def __init__(self, make: Callable[[Message], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}

    def each(self, request: Request) -> list[T]:
        """Return what the function makes of each message of a request, in order."""
        return [self.of(number, message) for number, message in zip(request.numbers, request.messages, strict=True)]

    def of(self, number: int, message: Message) -> T:
        try:
            return self._made[number]
        except KeyError:
            made = self._made[number] = self._make(message)
            return made


class Entries:
    """Stored prefixes, by their hash.

    Args:
        ttl: seconds an entry is kept after its last use.
    """

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._used: dict[int, float] = {}

    def holds(self, prefix: int, at: float) -> bool:
        """True if the prefix is stored and alive at this time."""
        used = self._used.get(prefix)
        return used is not None and at - used <= self._ttl

    def use(self, prefixes: Iterable[int], at: float) -> None:
        self._used.update(dict.fromkeys(prefixes, at))
