"""The checkpoints that sessions of one process share, by content.

A spawned child gets its parent's whole history. It need not compact that again: it finds the parent's checkpoint by the
hash of what it covers. Only what derives from content alone is shared: a checkpoint that holds anything of the
session state stays with its session. A checkpoint never changes. It is dropped with the last session that uses it.
"""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from ..compaction.checkpoint import Checkpoint
from ..messages import count_cache

_guard = threading.Lock()
_checkpoints: WeakValueDictionary[tuple[str, bytes], Checkpoint] = WeakValueDictionary()


def put(key: str, checkpoint: Checkpoint) -> None:
    """Let other sessions find a checkpoint by what it covers, if it was made from that alone.

    Args:
        key: what must be the same for it to be reused; see `ViewFactory.compatibility_key`.
        checkpoint: it is kept only while a session uses it.
    """
    if not checkpoint.from_content:
        return
    with _guard:
        _checkpoints[key, checkpoint.digest] = checkpoint


def get(key: str, digest: bytes) -> Checkpoint | None:
    """Return a checkpoint that covers exactly this content; None if no session has one."""
    with _guard:
        return _checkpoints.get((key, digest))


def is_empty() -> bool:
    """True if there is no checkpoint to be found."""
    with _guard:
        return not _checkpoints


def clear() -> None:
    """Drop all shared checkpoints and token counts: messages were erased, or a measurement must start without them."""
    count_cache.clear()
    with _guard:
        _checkpoints.clear()
