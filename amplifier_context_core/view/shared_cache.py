"""What sessions of one process know of each other's content.

A spawned child gets its parent's whole history. Counting and compacting it again would cost what the parent has paid
already; so counts and checkpoints are found again by content hash. Only what derives from content alone is shared:
a checkpoint that holds anything of its session's state stays with its session. Nothing is shared that could change,
and nothing is kept alive: a checkpoint goes when the last session that uses it goes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from weakref import WeakValueDictionary

from ..compaction.checkpoint import Checkpoint

_MOST_COUNTS = 100_000  # messages whose counts are remembered, about 20 MB

_guard = threading.Lock()
_counts: OrderedDict[tuple[str, bytes], int] = OrderedDict()
_checkpoints: WeakValueDictionary[tuple[str, bytes], Checkpoint] = WeakValueDictionary()


def remember_count(counter: str, content: bytes, tokens: int) -> None:
    """Note the tokens of a content, as a counter counted it."""
    with _guard:
        _counts[counter, content] = tokens
        if len(_counts) > _MOST_COUNTS:
            _counts.popitem(last=False)


def known_count(counter: str, content: bytes) -> int | None:
    """Tokens of a content that some session of this process counted; None if none did lately."""
    with _guard:
        return _counts.get((counter, content))


def any_count() -> bool:
    """Is there any count to be found? If not, hashing a content to look for one is in vain."""
    with _guard:
        return len(_counts) > 0


def remember_checkpoint(counter: str, checkpoint: Checkpoint) -> None:
    """Let other sessions find a checkpoint by what it covers, if it was made from that alone."""
    if not checkpoint.from_content:
        return
    with _guard:
        _checkpoints[counter, checkpoint.digest] = checkpoint


def known_checkpoint(counter: str, digest: bytes) -> Checkpoint | None:
    """A checkpoint that covers exactly this content; None if no living session has one."""
    with _guard:
        return _checkpoints.get((counter, digest))


def any_checkpoint() -> bool:
    """Is there any checkpoint to be found?"""
    with _guard:
        return len(_checkpoints) > 0


def forget() -> None:
    """Forget everything: what was said was erased, or no session may profit from another (measurements, tests)."""
    with _guard:
        _counts.clear()
        _checkpoints.clear()
