"""A thread that computes for long lets others run now and then."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T", bound=Sized)

_RANKED = 5_000  # characters of texts that are ranked: half a millisecond
INDEXED = 20_000  # of texts that are indexed: two milliseconds; at 5,000 filling an index took half as long again


def yield_gil() -> None:
    """Let other threads run. A busy thread otherwise keeps the interpreter from them for 5 ms and more."""
    time.sleep(0.00002)


def yielding(texts: Iterable[tuple[int, T]], characters: int = _RANKED) -> Iterator[tuple[int, T]]:
    """Yield texts that a thread reads, with their keys, and let other threads run before and between them: after so
    many characters.
    """
    read = characters
    for key, text in texts:
        read += len(text)
        if read > characters:
            read = 0
            yield_gil()
        yield key, text
