"""A share of what was looked for: two counts that can be added."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the things looked for were found."""

    found: int = 0
    sought: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.found + other.found, self.sought + other.sought)

    @classmethod
    def of_bits(cls, sought: int, held: int) -> Share:
        return cls((sought & held).bit_count(), sought.bit_count())

    @property
    def value(self) -> float | None:
        """0.0 to 1.0; None when nothing was looked for."""
        return self.found / self.sought if self.sought else None

    def as_json(self) -> dict[str, Any]:
        return {"found": self.found, "sought": self.sought, "share": rounded(self.value)}


NOTHING = Share()


class Places(dict[str, int]):
    """The places of texts in a set of bits."""

    def bits(self, texts: Iterable[str]) -> int:
        """Return texts as a set of bits; a new one gets the next place."""
        return union(1 << self.setdefault(text, len(self)) for text in texts)


def union(sets: Iterable[int]) -> int:
    return reduce(int.__or__, sets, 0)


def rounded(value: float | None) -> float | None:
    """Return a share with six digits, so that every machine writes the same figure."""
    return None if value is None else round(value, 6)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
