"""Token counts by content, shared by the sessions of one process.

A spawned child gets its parent's whole history. Its messages need not be counted a second time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

_MAX_COUNTS = 100_000  # messages; about 20 MB

_lock = threading.Lock()
_counts: OrderedDict[tuple[str, bytes], int] = OrderedDict()


def put(counter: str, content: bytes, tokens: int) -> None:
    """The oldest count gives way when the cache is full."""
    with _lock:
        _counts[counter, content] = tokens
        if len(_counts) > _MAX_COUNTS:
            _counts.popitem(last=False)


def get(counter: str, content: bytes) -> int | None:
    with _lock:
        return _counts.get((counter, content))


def is_empty() -> bool:
    """Hashing a content to look for a count is then in vain."""
    with _lock:
        return not _counts


def clear() -> None:
    with _lock:
        _counts.clear()
