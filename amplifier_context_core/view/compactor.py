"""The views of a session as requests ask for them, and the compactions that keep them within their budgets.

One task at a time works on the views (`lock`). Neither this lock nor any other is held while event handlers run. A
request that comes while a compaction runs waits for its result. A handler that requests a view gets the present one,
and that compaction is not announced again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from ..compaction.checkpoint import Draft, Segment
from ..compaction.ladder import LadderResult, run_ladder
from ..compaction.protected import protected_tokens
from ..compaction.recalled import newest_recalled
from ..compaction.strategies import Strategy
from ..config import Config
from ..errors import ContextOverflow, PinRefused
from ..events import COMPACTION, POST_COMPACT, PRE_COMPACT, Hooks, emit, inside_handler
from ..history.history import History
from ..locks import CrossLoopLock, Hold
from ..messages.token_bounds import BoundingTokenCounter
from ..messages.tokens import TokenCounter
from ..plugins import Observers
from ..rendering.renderer import RenderedMessage
from ..transcript.transcript import Snapshot
from . import shared_cache
from .cache import Selection, ViewCache
from .chapter_carriers import Carry, carrier_room
from .compaction_job import CompactionJob, CompactionResult, compaction_result, goal_of
from .figures import clipped_protected, overflow
from .meter import Key, Meter
from .new_checkpoint import new_checkpoint
from .prefix import RequestPrefix, tools_of
from .prefix_break import PrefixBreak
from .sent_view import SentView, fitted, recounted, shared_prefix
from .sent_views import SentViews
from .session_warnings import SessionWarnings
from .short_forms import ShortForms
from .trigger import TokenLimits, back_off, token_limits

log = logging.getLogger(__name__)


class Compactor:
    """The views of one session.

    Attributes:
        compactions: accepted so far. When it grows, the session's state has changed and is to be saved.
        tokens_saved: that they freed together.
        pins: seqs pinned by command.
        short_forms: short forms of tool results.
        focus: what a summary should dwell on.
        injected: the same, of the handlers of the compaction that was accepted last.
        save: saves the session's state; awaited before handlers and observers hear of a compaction, because one of them
            may hang or end the process.
        carry: puts a provider's own compaction beside the chapters of a new checkpoint; None to put in nothing.
        tools: returns the tools that requests offer, by name, as a coordinator has mounted them.
        lock: held by the task that works on the views.
        cache: the views.
    """

    def __init__(
        self,
        history: History,
        config: Config,
        ladder: Sequence[Strategy],
        meter: Meter,
        observers: Observers,
        hooks: Hooks | None,
        warnings: SessionWarnings,
    ) -> None:
        self.compactions = 0
        self.tokens_saved = 0
        self.pins: set[int] = set()
        self.short_forms = ShortForms()
        self.focus: str | None = None
        self.injected: str | None = None
        self.tools: Callable[[], object] = dict[str, object]
        self.save: Callable[[], Awaitable[None]] = _save_nothing
        self.carry: Carry | None = None
        self._history = history
        self._config = config
        self._ladder = ladder
        self._meter = meter
        self._observers = observers
        self.hooks = hooks
        self._warnings = warnings
        self.lock = CrossLoopLock()
        self.cache = ViewCache(history, config, ladder, self.pins, self.short_forms)
        self._in_flight = CrossLoopLock()  # held from the announcement of a compaction to its end
        self._sent = SentViews()

    @property
    def last_sent(self) -> SentView | None:
        """The view handed out last; None before the first."""
        return self._sent.last

    # -- requests ---------------------------------------------------------------------------------------------------

    async def request(
        self,
        budget: int,
        system: Sequence[RenderedMessage],
        key: Key,
        counter: TokenCounter,
        *,
        required: frozenset[int] = frozenset(),
        compact: bool = True,
    ) -> SentView:
        """Return the view for one request.

        Args:
            budget: tokens, as the provider counts them.
            system: the system prompt, sent before the view.
            key: provider and model.
            counter: text to tokens.
            required: seqs that must stay verbatim in this view.
            compact: false to take the view as it is, even above its threshold.

        Raises:
            ContextOverflow: under `strict`, when what must be kept does not fit.
        """
        limits = self.limits(budget, key)
        system_tokens = sum(shown.tokens for shown in system)
        prefix = self.prefix(key, system)
        selection: Selection | None = None
        while True:
            async with self.lock.hold():
                selection = await self._current(selection, limits, system_tokens, counter, prefix)
                handling = inside_handler(self)
                fits = system_tokens + selection.view.tokens <= limits.capacity
                if selection.reason is None or not compact or (handling and fits):
                    sent = await self._sent_view(selection, limits, system, prefix)
                    sent = self.hand_out(sent, budget if selection.reason is None else None)
                    break
                flight = self._in_flight.try_acquire()
            job = CompactionJob(selection.reason, selection, limits, system_tokens, counter, prefix, required=required)
            if handling and flight is None:
                # A handler of the compaction in flight asks, and the view is over the hard limit: no second hook.
                selection, _ = await self._run(job)
                continue
            if flight is None:
                async with self.alone():
                    continue  # the compaction in flight has ended
            try:
                selection, _ = await self._compact_with_hooks(job)
            finally:
                flight.release()
        await self.emit_warnings()
        return sent

    async def request_within_bounds(
        self, budget: int, system: Sequence[RenderedMessage], key: Key, counter: BoundingTokenCounter
    ) -> SentView | None:
        """Return the view for one request if it is below its trigger whatever the exact counts are.

        Args:
            budget: tokens, as the provider counts them.
            system: the system prompt, sent before the view.
            key: provider and model.
            counter: counts upper bounds. `recount` replaces them.

        Returns:
            None if only exact counts decide it.
        """
        limits = self.limits(budget, key)
        async with self.lock.hold():
            prefix, system_tokens = self.prefix(key, system), sum(one.tokens for one in system)
            selection = await self.cache.select_within_bounds(limits, system_tokens, counter, prefix)
            if selection is None:
                return None
            sent = await self._sent_view(selection, limits, system, prefix)
            sent = self.hand_out(sent, budget)
        await self.emit_warnings()
        return sent

    async def recount(self, counter: TokenCounter) -> None:
        """Count the views, and the one handed out last, with this counter in place of upper bounds.

        If there is no vocabulary, views that were counted with one are dropped.
        """
        async with self.lock.hold():
            if not getattr(counter, "exact", False):
                self.drop_views()
                return
            self.cache.recount()
            sent = await self.recount_sent(counter)
            if sent is not None:
                limits = self.limits(sent.limits.budget, sent.key)
                system_tokens = sum(shown.tokens for shown in sent.system)
                selection = await self.cache.select(limits, system_tokens, counter, sent.prefix)
                self._sent.recounted(replace(sent, limits=replace(limits, threshold=selection.threshold)))

    async def recount_sent(self, counter: TokenCounter) -> SentView | None:
        """Count the view handed out last with this counter in place of upper bounds; return it. Takes no lock."""
        while (sent := self.last_sent) is not None:
            counted = await recounted(sent, counter)
            if self.last_sent is sent:  # no other view was handed out meanwhile
                self._sent.recounted(counted)
                return counted
        return None

    def prefix(self, key: Key, system: Sequence[RenderedMessage]) -> RequestPrefix:
        """Return what a request to a provider and model begins with now."""
        return RequestPrefix.of(key, tools_of(self.tools()), system)

    async def emit_warnings(self) -> None:
        """Emit the warnings that came up; the caller holds no lock."""
        await self._warnings.emit_pending(self)

    def limits(self, budget: int, key: Key) -> TokenLimits:
        """Return the limits of a request, as the meter sees them now."""
        return token_limits(self._config, self._meter, budget, key)

    def prefix_break(
        self, history: Snapshot, limits: TokenLimits, key: Key, system: Sequence[RenderedMessage]
    ) -> PrefixBreak | None:
        """Return why the next request writes the whole prefix again, whatever its view; None if it need not.

        At such a moment the view may change at no extra cost, as it may within an accepted compaction.
        """
        return self._sent.break_before(self.prefix(key, system), system, history, limits.cache_ttl)

    async def compact_now(
        self, limits: TokenLimits, system_tokens: int, counter: TokenCounter, prefix: RequestPrefix
    ) -> dict[str, Any] | None:
        """Compact whatever the threshold; return the report, or None when there was nothing to free."""
        if inside_handler(self):
            return None  # a handler of a compaction asks for another: there would be no end to it
        async with self.alone():
            async with self.lock.hold():
                selection = await self.cache.select(limits, system_tokens, counter, prefix)
            job = CompactionJob("manual", selection, limits, system_tokens, counter, prefix)
            _, result = await self._compact_with_hooks(job)
            return result.report if result and result.has_gain else None

    def alone(self) -> Hold:
        """Return what waits for the compaction in flight, when it is entered, and is then the one in flight."""
        return self._in_flight.hold()

    @property
    def is_compacting(self) -> bool:
        """True while a compaction is announced or made."""
        return self._in_flight.is_held

    async def show_verbatim(self, seqs: Collection[int]) -> None:
        """Bring entries that were folded, clipped or dropped back into the view, verbatim.

        Raises:
            PinRefused: the history has no such entry.
        """
        async with self.lock.hold():
            history = self._history.snapshot()
            for seq in seqs:
                if history.find(seq) is None:
                    raise PinRefused(f"m{seq}: the history has no such message")
            await self.cache.show_verbatim(seqs)

    async def register_short_form(self, seq: int | None, call_id: str, text: str) -> None:
        """Note the short form of a tool result, in the views too that took the result in but were not handed out.

        Args:
            seq: of the result; None for the next result of the call.
            call_id: of the call.
            text: the short form.
        """
        if self.short_forms.register(seq, call_id, text) and seq is not None:
            async with self.lock.hold():
                self.cache.render_again(seq)

    def drop_views(self) -> None:
        """Drop every rendering; the next view is made from the history."""
        self.cache.clear()
        self._sent.clear()

    def reset(self) -> None:
        """Drop everything that derives from a history that was cleared."""
        self.drop_state()
        self._warnings.reset()

    def drop_state(self) -> None:
        """Drop the views, and what commands and handlers asked for, before the state of the store takes its place."""
        self.drop_views()
        self.pins.clear()
        self.short_forms.clear()
        self.focus = self.injected = None

    # -- compaction -------------------------------------------------------------------------------------------------

    async def _current(
        self,
        selection: Selection | None,
        limits: TokenLimits,
        system_tokens: int,
        counter: TokenCounter,
        prefix: RequestPrefix,
    ) -> Selection:
        """Return this selection, or another one if the history or the cache changed since."""
        if selection is not None and self.cache.is_current(selection):
            return selection
        return await self.cache.select(limits, system_tokens, counter, prefix)

    async def _compact_with_hooks(self, job: CompactionJob) -> tuple[Selection, CompactionResult | None]:
        """Announce a compaction, and run it unless a handler postpones it."""
        decision = await emit(self.hooks, self, PRE_COMPACT, job.announcement())
        if decision.denied and job.tokens <= job.limits.capacity:
            log.info("a handler postponed the compaction%s", f": {decision.reason}" if decision.reason else "")
            return self.postpone(job), None
        return await self._run(replace(job, injected=decision.injected))

    async def _run(self, job: CompactionJob) -> tuple[Selection, CompactionResult | None]:
        """Run a compaction and accept its result; return the view that serves the budget now.

        While handlers ran, the compaction may have become needless, or another view may have come to serve the budget.
        """
        async with self.lock.hold():
            selection = await self._current(job.selection, job.limits, job.system_tokens, job.counter, job.prefix)
            if job.reason != "manual":
                if selection.reason is None:
                    return selection, None
                job = replace(job, reason=selection.reason)
            result = await self.compact(replace(job, selection=selection))
            selection = self.accept(result)
        await self.announce(result)
        return selection, result

    def shows_current_history(self, selection: Selection) -> bool:
        """True if the history that was selected from was not edited since; messages may have come behind it."""
        then = selection.history
        return self._history.unchanged_since(then.revision) >= len(then) - then.leading_count

    def accept(self, result: CompactionResult) -> Selection:
        """Let the view of a compaction serve its budget from now on; the caller holds the lock.

        This is the one place where a compaction changes the session.
        """
        job = result.job
        if not result.has_gain:
            return self.postpone(job)
        new, limits, history = result.view, job.limits, job.selection.history
        if new.checkpoint:
            shared_cache.put(self.cache.compatibility_key(job.counter), new.checkpoint)
        if job.view.budget == limits.budget:
            self.cache.replace(job.view, new)
        self.cache.touch(limits.budget, new)
        self.short_forms.shown(new.newest_seq)
        self.injected = job.injected
        self.compactions += 1
        self.tokens_saved += result.report["before_tokens"] - result.report["after_tokens"]
        return self.cache.selected(new, limits, job.system_tokens, history, job.selection.interrupted)

    async def announce(self, result: CompactionResult) -> None:
        """Report the result of a compaction to observers and handlers; the caller holds no lock."""
        for name, why in result.ladder.skipped if result.ladder else ():
            self._warnings.fault(f"strategy {name} {why}; it is skipped")
        if result.has_gain:
            report = result.report
            await self.save()
            self._observers.notify("amplifier_context_folded", session_id=self._history.session_id, report=report)
            await emit(self.hooks, self, COMPACTION, report)
        await emit(self.hooks, self, POST_COMPACT, result.report)
        await self._warn_of_protected(result)

    async def compact(self, job: CompactionJob) -> CompactionResult:
        """Make a checkpoint and a view that goes on from it, unless it would not be worth its price.

        The session is not changed before the result is accepted. The caller holds the lock.
        """
        started = time.monotonic()
        view, limits, counter = job.view, job.limits, job.counter
        history, interrupted = job.selection.history, job.selection.interrupted
        await view.bind(job.prefix)  # another request may have bound it to its own prefix
        draft, later, cost = await view.draft(job.system_tokens, limits.capacity)
        covered = view.compactable_count
        if not draft.segments or not covered:
            return compaction_result(job, view, time.monotonic() - started)
        ladder = await self.ladder_result(job, draft, later)
        freed = cost - sum(segment.tokens for segment in ladder.draft.segments)
        if job.reason != "hard limit":
            freed -= dict(ladder.freed).get("recalled", 0)  # recalled text alone is not worth a new prefix
        if freed <= 0 or (job.reason == "trigger" and freed < limits.min_freed):
            return compaction_result(job, view, time.monotonic() - started, ladder)
        is_asked = bool(self.focus or job.injected or job.required)
        made = view.whole(ladder.draft.segments)
        room = carrier_room(limits, job.system_tokens)
        segments = await self.carry(made, job.prefix.key, room, counter) if self.carry else made
        of_session = self.pins or self.short_forms or interrupted or is_asked or Draft(segments).has_texts
        checkpoint = await new_checkpoint(job, segments, covered, self._history.last_seq, from_content=not of_session)
        new = self.cache.new_view(checkpoint, limits, counter)
        await new.update(history, len(history), interrupted)
        await new.bind(job.prefix)
        is_infeasible = protected_tokens(ladder.draft) > limits.capacity
        tokens = job.system_tokens + new.lasting_tokens
        new.backoff = back_off(tokens, new.compactable_count, limits, infeasible=is_infeasible)
        old_messages, new_messages = view.view(), new.view()
        invalidated = sum(shown.tokens for shown in old_messages) - shared_prefix(old_messages, new_messages)[1]
        return compaction_result(job, new, time.monotonic() - started, ladder, invalidated)

    async def ladder_result(
        self, job: CompactionJob, draft: Draft, later: Sequence[Segment], growth: int = 0
    ) -> LadderResult:
        """Return what the ladder makes of a draft.

        Args:
            job: the compaction.
            draft: of its view.
            later: segments of the view that no compaction may touch yet.
            growth: tokens that the view will have grown by; what they take is left free beside the draft.
        """
        target, capacity = job.target, job.limits.capacity
        kept = newest_recalled(draft.segments) if not later else 0  # does not count: recalls bring no compaction closer
        goal = goal_of(job, self._config, max(1, target + kept - growth), self.short_forms.known, self.focus)
        return await run_ladder(
            draft,
            goal,
            self._ladder,
            trigger=max(1, job.limits.threshold + kept - growth),
            pins=self.pins,
            required=job.required,
            pin_tokens=int(capacity * self._config.pin_share),
            recent_tokens=max(0, int(target * self._config.protected_recent) - growth),
            later=later,
        )

    def postpone(self, job: CompactionJob) -> Selection:
        """Let the view serve as it is, with no other attempt before it has grown."""
        lasting = job.system_tokens + job.view.lasting_tokens
        job.view.backoff = back_off(lasting, job.view.compactable_count, job.limits, infeasible=False)
        return self.cache.kept(job.limits.budget, job.selection)

    # -- handing out ------------------------------------------------------------------------------------------------

    async def _sent_view(
        self, selection: Selection, limits: TokenLimits, system: Sequence[RenderedMessage], prefix: RequestPrefix
    ) -> SentView:
        """Return what a request is sent if this view is handed to it, clipped as far as it can be to fit."""
        view, system_tokens = selection.view, sum(shown.tokens for shown in system)
        messages, counted = await fitted(view, limits, system_tokens, prefix)
        limits = replace(limits, threshold=selection.threshold)
        return SentView(limits, prefix.key, tuple(system), messages, counted, 0, view, prefix)

    def hand_out(self, sent: SentView, budget: int | None) -> SentView:
        """Note and return what is handed to a request, for the meter and for reports; the caller holds the lock.

        Args:
            sent: what is handed out.
            budget: that its view serves from now on; None if it serves none.

        Raises:
            ContextOverflow: under `strict`, when what must be kept does not fit.
        """
        if sent.counted > sent.limits.capacity:
            system_tokens = sum(shown.tokens for shown in sent.system)
            text, members = overflow(sent.view.segments(), sent.limits, system_tokens, sent.counted)
            if self._config.strict:
                raise ContextOverflow(text)
            self._warnings.once("overflow", text, budget=sent.limits.budget, members=members)
        if budget is not None:
            self.cache.touch(budget, sent.view)
        self.short_forms.shown(sent.view.newest_seq)
        return self._sent.note(sent, self._history.snapshot(), self.compactions)

    async def _warn_of_protected(self, result: CompactionResult) -> None:
        """Warn, once, that protected rounds were clipped, that pins found no room, or that the prompt left none."""
        job, ladder, limits = result.job, result.ladder, result.job.limits
        if ladder is None or not (
            ladder.clipped_protected or ladder.refused_pins or job.system_tokens > limits.threshold
        ):
            return
        if (await fitted(result.view, limits, job.system_tokens, job.prefix))[1] > limits.capacity:
            return  # the view that is handed out above its budget is reported by itself
        pin_tokens = int(limits.capacity * self._config.pin_share)
        text, members = clipped_protected(ladder, limits, job.system_tokens, pin_tokens)
        self._warnings.once("floor", text, budget=limits.budget, members=members)


async def _save_nothing() -> None:
    pass
