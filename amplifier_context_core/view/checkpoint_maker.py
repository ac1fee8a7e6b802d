"""Making a compaction: the ladder runs over a draft of a view, and what it leaves becomes a checkpoint and a new view.

Nothing of the session changes: `Compactor.commit` does that.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from ..compaction.checkpoint import Checkpoint, Draft, Segment, content_digest
from ..compaction.ladder import LadderResult, apply_alone, run_ladder
from ..compaction.protected import Protection, protected_tokens
from ..compaction.re_reads import re_reads
from ..compaction.recalled import newest_recalled
from ..compaction.strategies import Goal, Strategy
from ..config import Config
from ..economics.trigger import back_off
from ..futures import in_thread
from ..history.history import History
from ..messages.tokens import TokenCounter
from .candidate import Candidate, ViewDraft, ViewRequest
from .figures import report_of
from .plan import CompactionJob, CompactionResult
from .sent_view import shared_prefix
from .view_factory import ViewFactory

Carry = Callable[[History, tuple[Segment, ...], int, TokenCounter], Awaitable[tuple[Segment, ...]]]
"""Given the history, the segments of a new checkpoint, the tokens that they may have in a request to the model that
reads the carrier, and the counter: the same segments, or some with a carrier beside a chapter."""


@dataclass(slots=True)
class CheckpointMaker:
    history: History
    config: Config
    ladder: Sequence[Strategy]
    factory: ViewFactory
    carry: Carry | None  # puts a provider's own compaction beside the chapters of a new checkpoint; None for none
    # Awaited before strategies run in a thread: it reads what they need; None for nothing.
    prepare: Callable[[], Awaitable[None]] | None

    async def result(self, job: CompactionJob) -> CompactionResult:
        """Make a checkpoint and a view that goes on from it, unless it would not be worth its price.

        The caller holds the lock of the views.
        """
        started = time.monotonic()
        old, request, limits, counter = job.plan.candidate, job.request, job.request.limits, job.request.counter
        history, interrupted, directions = job.plan.history, job.plan.interrupted, self.factory.directions
        given = await old.draft()
        if not given.draft.segments or not given.covered:
            return _result(job, old, started)
        is_asked = bool(directions.focus or job.injected or job.kept)
        ladder = await self.ladder_result(job, given)
        freed = given.cost - sum(segment.tokens for segment in ladder.draft.segments)
        if job.reason != "hard limit":
            freed -= dict(ladder.freed).get("recalled", 0)  # recalled text alone is not worth a new prefix
        if freed <= 0 or (job.reason == "trigger" and freed < limits.min_freed):
            return _result(job, old, started, ladder)
        segments = await self.with_carrier(given.whole(ladder.draft.segments), request)
        is_directed = is_asked or directions.pins or directions.short_forms.known
        of_session = is_directed or interrupted or Draft(segments).has_texts
        last_seq = self.history.last_seq
        checkpoint = await in_thread(_checkpoint, job, segments, given.covered, last_seq, from_content=not of_session)
        view = self.factory.for_limits(checkpoint, limits, counter)
        await view.update(history, len(history), interrupted)
        new = await Candidate.of(view, request)
        is_infeasible = protected_tokens(ladder.draft) > limits.capacity
        view.backoff = back_off(new.lasting_tokens, new.compactable_count, limits, infeasible=is_infeasible)
        shared = shared_prefix(old.outgoing.messages, new.outgoing.messages)[1]
        result = _result(job, new, started, ladder, old.outgoing.tokens - shared)
        return replace(result, re_reads=re_reads(given.draft.segments))

    async def with_carrier(self, segments: tuple[Segment, ...], request: ViewRequest) -> tuple[Segment, ...]:
        """Return the segments of a checkpoint with a provider's own compaction beside them, if there is one."""
        if self.carry is None:
            return segments
        # Half of the way from the target to the threshold.
        room = (request.limits.target + request.limits.threshold) // 2 - request.system_tokens
        return await self.carry(self.history, segments, room, request.counter)

    async def ladder_result(self, job: CompactionJob, given: ViewDraft, growth: int = 0) -> LadderResult:
        """`growth`: tokens that the view will have grown by; what they take is left free beside the draft."""
        config, directions, request = self.config, self.factory.directions, job.request
        target, capacity = job.target, request.limits.capacity
        # Recalled text of the newest round does not count: recalls bring no compaction closer.
        kept = 0 if given.open_rounds else newest_recalled(given.draft.segments)
        goal = Goal(
            max(1, target + kept - growth),
            capacity,
            request.counter,
            human_tokens=int(target * config.protected_human),
            protected_results=config.protected_tool_results,
            chapter_tokens=int(capacity * config.chapter_share),
            summaries=directions.short_forms.known,
            focus="\n\n".join(dict.fromkeys(text for text in (directions.focus, job.injected) if text)) or None,
            state_tools=None if config.state_tools is None else tuple(config.state_tools),
        )
        pins, pin_tokens = frozenset(directions.pins), int(capacity * config.pin_share)
        protection = Protection(pins, pin_tokens, job.kept, given.open_rounds, request.most_human_tokens)
        trigger = max(1, request.limits.threshold + kept - growth)
        recent = max(0, int(target * config.protected_recent) - growth)
        if self.prepare is not None:
            await self.prepare()
        ladder, draft = self.ladder, given.draft
        return await in_thread(run_ladder, draft, goal, ladder, protection, trigger=trigger, recent_tokens=recent)

    async def late(self, strategy: Strategy, checkpoint: Checkpoint, request: ViewRequest) -> tuple[Segment, ...]:
        """Return the segments of a checkpoint as a strategy writes its chapters; the same object if none changes."""
        draft = Draft(checkpoint.segments, request.system_tokens)
        goal = Goal(request.limits.target, request.limits.capacity, request.counter)
        if self.prepare is not None:
            await self.prepare()
        return await self.with_carrier((await in_thread(apply_alone, strategy, draft, goal)).segments, request)


def _checkpoint(
    job: CompactionJob, segments: tuple[Segment, ...], covered: int, last_seq: int, *, from_content: bool
) -> Checkpoint:
    """`covered`: entries after the leading ones that the checkpoint replaces; `from_content`: the checkpoint follows
    from the covered entries alone, so that other sessions may use it.
    """
    base, history = job.plan.view.checkpoint, job.plan.history
    leading = history.leading_count
    known, digest = job.plan.view.hashed(history)
    digest = content_digest(history[leading + known : leading + covered], digest)
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
    """Let a chapter keep the time of a former one of the same range; others get `last_seq`."""
    known = {(one.first, one.last): one.chapter.made_at for one in base if one.chapter}
    return tuple(
        replace(one, chapter=replace(one.chapter, made_at=known.get((one.first, one.last), last_seq)))
        if one.chapter and not one.chapter.made_at
        else one
        for one in segments
    )


def _result(
    job: CompactionJob,
    candidate: Candidate,
    started: float,
    ladder: LadderResult | None = None,
    invalidated: int | None = None,
) -> CompactionResult:
    report = report_of(job, candidate, invalidated, ladder, time.monotonic() - started)
    return CompactionResult(job, candidate, report, invalidated is not None, ladder)
