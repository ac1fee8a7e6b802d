"""The prefixes a cache holds, each until it was not used for its time to live."""

from __future__ import annotations

from collections.abc import Iterable


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
