"""What sessions of one process know of each other's content.

A spawned child gets its parent's whole history. Counting and compacting it again would cost what the parent has paid
already; so counts and checkpoints are found again by content hash. Only what derives from content alone is shared:
a checkpoint that holds anything of its session's state stays with its session. Nothing is shared that could change,
and nothing is kept alive: a checkpoint goes when the last session that uses it goes.
"""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from ..compaction.checkpoint import Checkpoint
from ..messages import count_cache

_guard = threading.Lock()
_checkpoints: WeakValueDictionary[tuple[str, bytes], Checkpoint] = WeakValueDictionary()


def put(key: str, checkpoint: Checkpoint) -> None:
    """Let other sessions find a checkpoint by what it covers, if it was made from that alone."""
    if not checkpoint.from_content:
        return
    with _guard:
        _checkpoints[key, checkpoint.digest] = checkpoint


def get(key: str, digest: bytes) -> Checkpoint | None:
    """A checkpoint that covers exactly this content; None if no living session has one."""
    with _guard:
        return _checkpoints.get((key, digest))


def is_empty() -> bool:
    """True if there is no checkpoint to be found."""
    with _guard:
        return not _checkpoints


def clear() -> None:
    """Forget everything: what was said was erased, or no session may profit from another (measurements, tests)."""
    count_cache.clear()
    with _guard:
        _checkpoints.clear()
