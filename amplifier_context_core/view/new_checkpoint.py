"""The checkpoint that a compaction makes: the accepted draft, with a hash of the entries that it covers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ..compaction.checkpoint import Checkpoint, Segment
from ..futures import YIELD_EVERY, in_thread_if
from ..messages import count_cache
from ..messages.hashing import chain_hash, content_hash
from ..messages.tokens import are_large
from .plan import CompactionJob


async def new_checkpoint(
    job: CompactionJob, segments: tuple[Segment, ...], covered: int, last_seq: int, *, from_content: bool
) -> Checkpoint:
    """Return the checkpoint of a compaction.

    Args:
        job: the compaction.
        segments: that it shows: what the strategies made of the view.
        covered: entries after the leading ones that the checkpoint replaces.
        last_seq: of the history.
        from_content: true if the checkpoint follows from the covered entries alone, so that other sessions may use it.
    """
    base, history = job.plan.view.checkpoint, job.plan.history
    name = repr(job.request.counter)
    digest = base.digest if base else b""
    leading = history.leading_count
    for index in range(leading + (base.covered if base else 0), leading + covered):
        entry = history[index]
        content = await in_thread_if(are_large((entry.message,)), content_hash, entry.message)
        digest = chain_hash(digest, entry.seq, content)
        count_cache.put(name, content, entry.tokens)
        if index % YIELD_EVERY == YIELD_EVERY - 1:
            await asyncio.sleep(0)
    return Checkpoint(
        covered,
        base.upto if base and base.covered == covered else history[leading + covered - 1].seq,
        digest,
        _dated(segments, base.segments if base else (), last_seq),
        sum(segment.tokens for segment in segments),
        last_seq,
        job.request.limits.budget,
        from_content and (base is None or base.from_content),
    )


def _dated(segments: Sequence[Segment], base: Sequence[Segment], last_seq: int) -> tuple[Segment, ...]:
    """Return segments with the time of each chapter: a chapter of the same range keeps the one that it had."""
    known = {(one.first, one.last): one.chapter.made_at for one in base if one.chapter}
    return tuple(
        replace(one, chapter=replace(one.chapter, made_at=known.get((one.first, one.last), last_seq)))
        if one.chapter and not one.chapter.made_at
        else one
        for one in segments
    )
