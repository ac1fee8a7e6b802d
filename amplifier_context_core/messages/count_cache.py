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
    """Store the tokens that a counter counted for a content hash. The oldest count gives way when the cache is full."""
    with _lock:
        _counts[counter, content] = tokens
        if len(_counts) > _MAX_COUNTS:
            _counts.popitem(last=False)


def get(counter: str, content: bytes) -> int | None:
    """Return the tokens that a session of this process counted for a content hash; None if there is no count."""
    with _lock:
        return _counts.get((counter, content))


def is_empty() -> bool:
    """True if no count is stored. Hashing a content to look for one is then in vain."""
    with _lock:
        return not _counts


def clear() -> None:
    """Drop all counts."""
    with _lock:
        _counts.clear()
