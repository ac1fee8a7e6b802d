"""The views of a session as requests ask for them, and the compactions that keep them within their budgets.

One task at a time works on the views (`lock`). This lock is not held while event handlers run. One compaction at a time
is in flight (`in_flight`), from its announcement to its end, also while handlers run. A request that needs a compaction
waits for the one in flight. A handler that requests a view does not wait (`inside_handler`). It gets the present view;
if that does not fit, it is compacted without another announcement.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

from ..compaction.re_reads import ReReads
from ..compaction.strategies import Strategy
from ..config import Config
from ..economics.meter import Key, Meter
from ..economics.trigger import TokenLimits, back_off, token_limits
from ..errors import ContextOverflow, PinRefused
from ..events import COMPACTION, POST_COMPACT, PRE_COMPACT, HookDecision, Hooks, emit, inside_handler
from ..history.history import History
from ..locks import CrossLoopLock
from ..messages.tokens import TokenCounter
from ..outgoing.outgoing import tokens_of
from ..transcript.entry import Entry
from . import shared_cache
from .cache import ViewCache
from .candidate import Candidate, ViewRequest
from .checkpoint_maker import Carry, CheckpointMaker
from .directions import Directions
from .figures import CompactionLog, announcement, clipped_protected, many_re_reads, overflow
from .plan import CompactionJob, CompactionResult, Plan
from .sent_view import SentView, SentViews
from .session_warnings import SessionWarnings
from .view import with_segments
from .view_factory import ViewFactory

log = logging.getLogger(__name__)

_MANY_SOURCES = 3  # read again and again, from which the budget is taken to be too small


class Compactor:
    """The views of one session."""

    def __init__(
        self,
        history: History,
        config: Config,
        ladder: Sequence[Strategy],
        meter: Meter,
        hooks: Hooks | None,
        warnings: SessionWarnings,
        carry: Carry | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.directions = Directions()
        self._history = history
        self._config = config
        self.meter = meter
        self.hooks = hooks
        self.warnings = warnings
        self.lock = CrossLoopLock()  # held by the task that works on the views
        factory = ViewFactory(config, ladder, self.directions)
        self.cache = ViewCache(history, config, factory)
        self.maker = CheckpointMaker(history, config, ladder, factory, carry, prepare)
        # Held by the compaction in flight, from its announcement to its end. To enter it waits for the one before.
        self.in_flight = CrossLoopLock()
        self.sent = SentViews()
        self.log = CompactionLog()

    @property
    def compactions(self) -> int:
        return self.log.count

    @property
    def last_sent(self) -> SentView | None:
        return self.sent.last

    async def plan(self, request: ViewRequest, known: Plan | None = None) -> Plan:
        """Return what a request is to be sent; where the view must be compacted first, `compacted` takes the plan.
        `known`: an earlier plan of this request; it is returned if it is current.
        """
        async with self.lock.hold():
            plan = await self._current(request, known)
            return plan if plan.reason else await plan.fitted()

    def must_compact(self, plan: Plan) -> bool:
        """A handler gets the view as it is, if it fits."""
        has_room = plan.candidate.tokens <= plan.request.limits.capacity
        return plan.reason is not None and not (has_room and inside_handler(self))

    def limits(self, budget: int, key: Key) -> TokenLimits:
        return token_limits(self._config, self.meter, budget, key)

    @property
    def is_compacting(self) -> bool:
        return self.in_flight.is_held

    async def show_verbatim(self, seqs: Collection[int]) -> None:
        """Raises `PinRefused`: the history has no such entry."""
        async with self.lock.hold():
            history = self._history.snapshot()
            if gone := [seq for seq in seqs if history.find(seq) is None]:
                raise PinRefused(f"m{gone[0]}: the history has no such message")
            await self.cache.show_verbatim(seqs)

    def start_over(self, counter: TokenCounter, erased: Collection[Entry]) -> None:
        """Drop what may quote erased messages: every rendering, and what summaries should dwell on. `erased`: their
        entries, as they were.

        The next views are made from the history, for the budgets that the session had.
        """
        shown = (one for view in self.cache.views if view.checkpoint for one in view.checkpoint.shown)
        self.sent.start_over(shown, erased, merge=self._config.merge_consecutive)
        self.cache.start_over(counter)
        self.directions.drop_focus()

    def drop_state(self) -> None:
        """Drop the views, and what commands and handlers asked for: the history or the state is another from now on."""
        self.cache.clear()
        self.sent.clear()
        self.directions.clear()

    async def _current(self, request: ViewRequest, plan: Plan | None) -> Plan:
        """The caller holds the lock."""
        return plan if plan is not None and self.cache.is_current(plan) else await self.choose(request)

    async def choose(self, request: ViewRequest) -> Plan:
        """Choose the view for a request, with its chapters written again if the prefix is; the caller holds the lock.

        It shows the newest human message whole again once there is room for it.
        """
        while True:
            plan = await self.cache.choose(request)
            if clipped := await plan.candidate.clipped_human():
                plan = await self.cache.with_verbatim(plan, (clipped,))
            checkpoint, late = plan.view.checkpoint, request.late
            # Where the whole prefix is written again, a view may change at no extra cost, as within a compaction.
            if checkpoint and late and self.sent.break_before(request, plan.pause) is not None:
                segments = await self.maker.late(late, checkpoint, request)
                if segments is not checkpoint.segments:
                    plan = await self.cache.with_checkpoint(plan, with_segments(checkpoint, segments))
            # Else the history was edited meanwhile, and the view may show what was erased.
            if plan.history.revision == self._history.revision:
                return plan

    async def ask_handlers(self, job: CompactionJob) -> HookDecision:
        """The caller holds `in_flight`."""
        return await emit(self.hooks, self, PRE_COMPACT, announcement(job))

    async def compacted(
        self, plan: Plan, *, span: range | None = None, with_hooks: bool = True
    ) -> tuple[Plan, CompactionResult | None]:
        """Compact the view of a plan, and commit that; return the plan that is current then, and what it came to: None
        if a handler postponed it, or if it was out of date or needless by then. `span`: see `CompactionJob`.

        The caller holds `in_flight`. It saves the session, and then announces the result.
        """
        job = CompactionJob(plan, span, focus_drops=self.directions.focus_drops)
        if with_hooks:
            if not job.is_manual and not self.cache.is_current(plan):
                return plan, None  # another compaction ended meanwhile
            decision = await self.ask_handlers(job)
            job = replace(job, injected=decision.injected)
            if decision.denied and plan.candidate.tokens <= job.request.limits.capacity:
                log.info("session %s: a handler postponed the compaction", self._history.session_id)
                self.back_off(plan)  # also if it is out of date: handlers are not asked again
                return self._committed(plan), None
        async with self.lock.hold():
            while True:
                # While handlers ran, it may have become needless, or another view may have come to serve the budget.
                plan = await self._current(job.request, job.plan)
                if not job.is_manual and plan.reason is None:
                    return plan, None
                plan = await self.compact(job if plan is job.plan else replace(job, plan=plan))
                if plan.revision == self.cache.revision(job.request.limits.budget):
                    return self._committed(plan), plan.result

    def _committed(self, plan: Plan) -> Plan:
        """Commit a plan; return it as one whose view need not be compacted, or as it is if it is out of date."""
        if not self.commit(plan):
            return plan
        revision = self.cache.revision(plan.request.limits.budget)
        return replace(Plan.of(plan.candidate, plan.history, plan.interrupted, revision, self._config), reason=None)

    def commit(self, plan: Plan) -> bool:
        """Let the view of a plan serve its budget from now on. This is the one place where a plan changes the session.
        False, with nothing changed, if what the session has for the budget is not what the plan was made from.
        """
        limits, view, result = plan.request.limits, plan.view, plan.result
        if plan.revision != self.cache.revision(limits.budget):
            return False
        if result is not None and result.has_gain:
            if view.checkpoint:
                key = self.cache.factory.compatibility_key(plan.request.counter)
                shared_cache.put(key, view.checkpoint, view.backoff)
            self.directions.short_forms.shown(view.newest_seq)
            self.directions.injected = result.job.injected
            self.log.accepted(result.report)
            self._warn_of_re_reads(result.re_reads, result.job.request.limits)
        elif result is not None or plan.postponed is not None:  # no other attempt before the view has grown
            self.back_off(plan)
        if plan.is_copy or (result is not None and result.has_gain):
            self.cache.put_in(limits.budget, view)
        else:
            self.cache.touch(limits.budget, view)
        return True

    async def announce(self, result: CompactionResult) -> None:
        """The caller does not hold `lock`. It saves the session first: a handler may hang or end the process."""
        for name, why in result.ladder.skipped if result.ladder else ():
            self.warnings.fault(f"strategy {name} {why}; it is skipped")
        if result.has_gain:
            report, history = result.report, self._history
            history.observers.notify("amplifier_context_folded", session_id=history.session_id, report=report)
            await emit(self.hooks, self, COMPACTION, report)
        await emit(self.hooks, self, POST_COMPACT, result.report)
        await self._warn_of_protected(result)

    async def compact(self, job: CompactionJob) -> Plan:
        """The caller holds the lock."""
        directions = self.directions
        if job.focus_drops != directions.focus_drops:  # what handlers injected may have been erased since
            job = replace(job, injected=None, focus_drops=directions.focus_drops)
        result = await self.maker.result(job)
        return replace(job.plan, candidate=result.candidate, result=result)

    def back_off(self, plan: Plan) -> None:
        """Let a view, and the one that it is a copy of, serve as it is, with no other attempt before it has grown."""
        candidate, limits = plan.candidate, plan.request.limits
        made = back_off(candidate.lasting_tokens, candidate.compactable_count, limits, infeasible=False)
        candidate.view.backoff = made
        if plan.is_copy and plan.revision.view is not None:
            plan.revision.view.backoff = made

    def hand_out(self, plan: Plan, *, serves: bool, is_sent: bool = True) -> SentView:
        """Note and return what is handed to a request; `serves`: commit the plan. With `is_sent` false it is for a
        report of a view that a request would compact first, and need not fit. Raises `ContextOverflow`: under `strict`,
        when what must be kept does not fit.
        """
        sent = plan.sent
        if is_sent and sent.counted > sent.limits.capacity:
            text, members = overflow(sent)
            if self._config.strict:
                raise ContextOverflow(text)
            self.warnings.once("overflow", text, budget=sent.limits.budget, members=members)
        if serves:
            self.commit(plan)
        self.directions.short_forms.shown(sent.newest_seq)
        return self.sent.note(sent, plan.pause, self.log.count)

    async def hand_out_if(
        self, plan: Plan, agree: Callable[[], bool]
    ) -> tuple[SentView, CompactionResult | None] | None:
        """Commit a plan, if it is not out of date, and hand it out; None if its history was edited or `agree` says no.
        `agree`: called right before the session changes, with nothing in between.
        """
        async with self.lock.hold():
            then = plan.history  # messages may have come after it
            is_edited = self._history.unchanged_since(then.revision) < len(then) - then.leading_count
            if is_edited or not agree():
                return None
            is_current = plan.revision == self.cache.revision(plan.request.limits.budget)
            return self.hand_out(plan, serves=True), plan.result if is_current else None

    def _warn_of_re_reads(self, found: ReReads, limits: TokenLimits) -> None:
        """Once, and again after a compaction that found none."""
        if not found.sources:
            self.warnings.rearm("re-reads", limits.budget)
        elif found.sources >= _MANY_SOURCES:
            text, figures = many_re_reads(found, limits)
            self.warnings.once("re-reads", text, budget=limits.budget, **figures)

    async def _warn_of_protected(self, result: CompactionResult) -> None:
        """Warn, once, that what must stay is above the threshold, or was clipped, or that pins found no room."""
        ladder, request, limits = result.ladder, result.job.request, result.job.request.limits
        if ladder is None:
            return
        is_above = max(request.system_tokens, ladder.protected_tokens) > limits.threshold
        if not (is_above or ladder.clipped_protected or ladder.refused_pins):
            return
        async with self.lock.hold():
            fitted = await (await Candidate.of(result.candidate.view, request)).fitted()
        if request.system_tokens + tokens_of(fitted) > limits.capacity:
            return  # the view that is handed out above its budget is reported by itself
        pin_tokens = int(limits.capacity * self._config.pin_share)
        text, members = clipped_protected(ladder, limits, request.system_tokens, pin_tokens)
        self.warnings.once("floor", text, budget=limits.budget, members=members)
