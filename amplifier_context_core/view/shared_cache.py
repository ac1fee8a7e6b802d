"""The checkpoints that sessions of one process share, by content.

A spawned child gets its parent's whole history. It need not compact that again: it finds the parent's checkpoint by the
hash of what it covers. Only what derives from content alone is shared: a checkpoint that holds anything of the
session state stays with its session. A checkpoint never changes. It is dropped with the last session that uses it.
Beside it is what the compaction that made it says of the next attempt, so that all sessions compact at the same places.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..compaction.checkpoint import Checkpoint
from ..economics.trigger import CompactionBackoff

_guard = threading.Lock()
_checkpoints: WeakValueDictionary[tuple[str, bytes], Checkpoint] = WeakValueDictionary()
_backoffs: WeakKeyDictionary[Checkpoint, CompactionBackoff] = WeakKeyDictionary()  # of some of them


def put(key: str, checkpoint: Checkpoint, backoff: CompactionBackoff | None) -> None:
    """Let other sessions find a checkpoint by what it covers, if it was made from that alone. `key`: see
    `ViewFactory.compatibility_key`.
    """
    if not checkpoint.from_content:
        return
    with _guard:
        _checkpoints[key, checkpoint.digest] = checkpoint
        if backoff is not None:
            _backoffs[checkpoint] = backoff


def get(key: str, digest: bytes) -> tuple[Checkpoint, CompactionBackoff | None] | None:
    """Return the back-off too that its view had when it was made."""
    with _guard:
        found = _checkpoints.get((key, digest))
        return None if found is None else (found, _backoffs.get(found))


def is_empty() -> bool:
    return not _checkpoints


def clear() -> None:
    """Messages were erased, or a measurement must start without shared checkpoints."""
    with _guard:
        _checkpoints.clear()
        _backoffs.clear()
