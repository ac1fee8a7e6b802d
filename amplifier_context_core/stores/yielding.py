"""A thread that computes for long lets others run now and then."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T", bound=Sized)

_YIELD_CHARACTERS = 5_000  # of texts: to rank them takes half a millisecond


def yield_gil() -> None:
    """Let other threads run. A busy thread otherwise keeps the interpreter from them for 5 ms and more."""
    time.sleep(0.00002)


def yielding(texts: Iterable[tuple[int, T]]) -> Iterator[tuple[int, T]]:
    """Yield texts that a thread reads, with their keys, and let other threads run before and between them."""
    read = _YIELD_CHARACTERS
    for key, text in texts:
        read += len(text)
        if read > _YIELD_CHARACTERS:
            read = 0
            yield_gil()
        yield key, text
