"""Compactor: what the model is sent, and the compactions that keep it within its budget.

One task at a time works on the lines (`_gate`); no gate and no lock is held while handlers are told. A compaction in
flight is waited for, not repeated; a handler that asks for a view gets the one there is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from ..compaction.checkpoint import Checkpoint, Segment
from ..compaction.ladder import LadderResult, run_ladder
from ..compaction.protected import mark_protected, protected_tokens
from ..compaction.strategies import Goal, Strategy
from ..config import Config
from ..errors import ContextOverflow, PinRefused
from ..events import COMPACTION, POST_COMPACT, PRE_COMPACT, Hooks, emit, inside_handler
from ..futures import in_thread_if
from ..history.history import History
from ..locks import Gate
from ..messages import count_cache
from ..messages.hashing import chain_hash, content_hash
from ..messages.tokens import TokenCounter, are_large
from ..plugins import Observers
from ..rendering.renderer import RenderedMessage
from ..transcript.transcript import Snapshot
from .cache import TokenLimits, ViewCache
from .figures import announcement, clipped_floor, outcome, overflow
from .meter import Key, Meter
from .session_state import SessionState
from .session_warnings import SessionWarnings
from .shared_cache import remember_checkpoint
from .short_forms import ShortForms
from .view import CompactionBackoff, View, round_of

log = logging.getLogger(__name__)

_CLEAR_SHARE = 0.05  # of the budget: what a compaction must free to be worth a broken prefix, unless config says
_BREATHE = 500  # entries hashed in between two breaths of the event loop


@dataclass(slots=True)
class SentView:
    """What was handed out last, for the meter, for events and for reports."""

    limits: TokenLimits
    key: Key
    system: list[RenderedMessage]
    messages: list[RenderedMessage]
    counted: int
    prefix: int
    view: View


@dataclass(slots=True)
class _Plan:
    """A compaction that is about to happen."""

    reason: str
    source: View
    focus: str | None = None
    protect: frozenset[int] = field(default_factory=frozenset[int])


class Compactor:
    """The views of one session.

    Attributes:
        last_sent: the view handed out last; None before the first.
        compactions: accepted so far.
        saved_tokens: that they freed together.
        pins: seqs pinned by command.
        short_forms: short forms of tool results.
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
        save: Callable[[], Awaitable[None]],
    ) -> None:
        self.last_sent: SentView | None = None
        self.compactions = 0
        self.saved_tokens = 0
        self.pins: set[int] = set()
        self.short_forms = ShortForms()
        self.focus: str | None = None
        self._history = history
        self._config = config
        self._ladder = ladder
        self._meter = meter
        self._observers = observers
        self._hooks = hooks
        self._warnings = warnings
        self._save = save
        self.gate = Gate()
        self.cache = ViewCache(history, config, ladder, self.pins, self.short_forms)
        self._in_flight: Future[None] | None = None
        self._last_climb: LadderResult | None = None

    # -- requests ---------------------------------------------------------------------------------------------------

    async def request(
        self,
        budget: int,
        system: Sequence[RenderedMessage],
        key: Key,
        counter: TokenCounter,
        *,
        protect: frozenset[int] = frozenset(),
        compact: bool = True,
    ) -> SentView:
        """The view for one request.

        Args:
            budget: tokens, as the provider counts them.
            system: the system prompt, sent before the view.
            key: provider and model.
            counter: text to tokens.
            protect: seqs that must stay verbatim in this view.
            compact: may it be compacted for this? False only looks.

        Raises:
            ContextOverflow: under `strict`, when what must be kept does not fit.
        """
        limits = self.limits(budget, key)
        system_tokens = sum(shown.tokens for shown in system)
        while True:
            async with self.gate:
                history = self._history.snapshot()
                line, reason = await self.cache.choose(history, limits, system_tokens, counter)
                tokens = system_tokens + line.tokens
                if reason is None or not compact or (inside_handler(self) and tokens <= limits.room):
                    view = await self._hand_out(line, limits, key, system)
                    break
                plan = _Plan(reason, line, protect=protect)
                handling = inside_handler(self)
                flight, first = self._in_flight, self._in_flight is None
                if flight is None:
                    flight = self._in_flight = Future[None]()
            if (
                handling and not first
            ):  # a handler of the compaction in flight asks, over the hard limit: no asking again
                await self._carried_out(plan, limits, system_tokens, counter)
                continue
            if not first:
                await asyncio.shield(asyncio.wrap_future(flight))  # a waiter that is cancelled must not end it for all
                continue
            try:
                await self._announced(plan, limits, system_tokens, counter)
            finally:
                self._in_flight = None
                flight.set_result(None)
        await self._warnings.tell(self)
        return view

    def limits(self, budget: int, key: Key) -> TokenLimits:
        """The figures for a budget, as the meter sees them now."""
        room = self._meter.room(budget, key)
        config = self._config
        trigger = int(room * config.compact_threshold) if config.auto_compact else room
        clear = config.clear_at_least if config.clear_at_least is not None else int(room * _CLEAR_SHARE)
        target = max(1, int(room * config.target_usage))
        accepted = self._meter.accepted(budget, key)
        return TokenLimits(budget, accepted, self._meter.units(key), room, max(1, trigger), target, clear)

    async def compact_now(
        self, focus: str | None, limits: TokenLimits, system_tokens: int, counter: TokenCounter
    ) -> dict[str, Any] | None:
        """Compact at once, whatever the trigger says; the report, or None when there was nothing to free."""
        if inside_handler(self):
            return None  # a handler of a compaction asks for another: there would be no end to it
        while (flight := self._in_flight) is not None:
            await asyncio.shield(asyncio.wrap_future(flight))
        flight = self._in_flight = Future[None]()
        try:
            async with self.gate:
                history = self._history.snapshot()
                line, _ = await self.cache.choose(history, limits, system_tokens, counter)
            return await self._announced(_Plan("manual", line, focus), limits, system_tokens, counter)
        finally:
            self._in_flight = None
            flight.set_result(None)

    async def show_verbatim(self, seqs: Collection[int]) -> None:
        """Bring entries that were folded, clipped or dropped back into the view, verbatim.

        Raises:
            PinRefused: the history has no such entry.
        """
        async with self.gate:
            history = self._history.snapshot()
            for seq in seqs:
                if history.find(seq) is None:
                    raise PinRefused(f"m{seq}: the history has no such message")
            await self.cache.show_verbatim(seqs)

    def drop_lines(self) -> None:
        """Forget every rendering; the next view is made from the history."""
        self.cache.clear()
        self.last_sent = None

    def forget(self) -> None:
        """The history was cleared: forget everything derived from it."""
        self.drop_lines()
        self.pins.clear()
        self.short_forms.clear()
        self._warnings.forget()
        self.focus = None

    def round_tokens(self, seqs: Collection[int], history: Snapshot) -> int:
        """Tokens of the rounds that hold these entries, each round once: what stays together is pinned together."""
        rounds = {held.first: held.tokens for seq in seqs if (held := round_of(seq, history))}
        return sum(rounds.values())

    # -- kept beside the history -----------------------------------------------------------------------------------

    def saved(self, counter: TokenCounter) -> SessionState:
        """What a resumed session goes on from."""
        return replace(
            self.cache.saved(counter),
            corrections=tuple((*key, replace(known)) for key, known in self._meter.corrections.items()),
            pins=tuple(sorted(self.pins)),
            summaries=tuple((seq, dict(short)) for seq, short in self.short_forms.known.items()),
            at_once=tuple((seq, dict(short)) for seq, short in self.short_forms.at_once.items()),
            interrupted=tuple(sorted(self._history.interrupted)),
            focus=self.focus,
            compactions=self.compactions,
            tokens_saved=self.saved_tokens,
            warned=tuple(sorted(self._warnings.kinds)),
        )

    def restore_figures(self, saved: SessionState) -> None:
        """Of what was saved, all but the checkpoints."""
        for provider, model, known in saved.corrections:
            self._meter.corrections[provider, model] = known
        self.cache.restore_starts(saved)
        self.pins.update(saved.pins)
        self.short_forms.restore(saved.summaries, saved.at_once)
        self.focus = saved.focus
        self.compactions, self.saved_tokens = saved.compactions, saved.tokens_saved
        self._warnings.kinds.update(saved.warned)

    # -- compaction -------------------------------------------------------------------------------------------------

    async def _announced(
        self, plan: _Plan, limits: TokenLimits, system_tokens: int, counter: TokenCounter
    ) -> dict[str, Any] | None:
        """Tell handlers, compact if none objects, tell them what came of it."""
        line = plan.source
        tokens = system_tokens + line.tokens
        answer = await emit(self._hooks, self, PRE_COMPACT, self._figures(plan, limits, system_tokens))
        if answer.denied and tokens <= limits.room:
            self._not_worth_it(line, system_tokens, limits)
            log.info("a handler postponed the compaction%s", f": {answer.reason}" if answer.reason else "")
            return None
        plan.focus = "\n\n".join(part for part in (plan.focus, answer.injected) if part) or None
        return await self._carried_out(plan, limits, system_tokens, counter)

    def _figures(self, plan: _Plan, limits: TokenLimits, system_tokens: int) -> dict[str, Any]:
        """What a compaction is about to work on, for handlers."""
        line = plan.source
        due, target = self.cache.due(line, limits, system_tokens), self._target(plan, limits, system_tokens)
        tokens = system_tokens + line.tokens
        return announcement(plan.reason, len(line.view()), tokens, limits, due=due, target=target)

    def _target(self, plan: _Plan, limits: TokenLimits, system_tokens: int) -> int:
        if plan.reason == "manual":
            return limits.target  # whoever asks twice gets the same
        return self.cache.target(plan.source, limits, system_tokens)

    async def _carried_out(
        self, plan: _Plan, limits: TokenLimits, system_tokens: int, counter: TokenCounter
    ) -> dict[str, Any] | None:
        """Compact, and tell handlers what came of it; the report, or None when nothing was gained."""
        started = time.monotonic()
        async with self.gate:
            history = self._history.snapshot()
            # It may have become needless, or another line may serve, while handlers were told.
            current, reason = await self.cache.choose(history, limits, system_tokens, counter)
            if plan.reason != "manual":
                if reason is None:
                    return None
                plan.reason = reason
            plan.source = current
            report = self._figures(plan, limits, system_tokens)
            before = system_tokens + current.tokens
            accepted = await self._compact(plan, limits, system_tokens, counter, history)
            done = self._last_climb
            serving = self.cache.book.source(limits.budget) or current
            after = system_tokens + serving.tokens
            report["before_messages"] = report["message_count"]
            report["message_count"] = report["after_messages"] = len(serving.view())

        report |= outcome(before, after, accepted, done, limits.units)
        report |= {
            "target_tokens": report["target"],
            "duration_ms": round((time.monotonic() - started) * 1000, 3),
        }
        if accepted is not None:
            self.compactions += 1
            self.saved_tokens += report["before_tokens"] - report["after_tokens"]
            await self._save()
            self._observers.notify("amplifier_context_folded", session_id=self._history.session_id, report=report)
            await emit(self._hooks, self, COMPACTION, report)
        await emit(self._hooks, self, POST_COMPACT, report)
        await self._note_floor(done, limits, system_tokens)
        return report if accepted is not None else None

    async def _compact(
        self, plan: _Plan, limits: TokenLimits, system_tokens: int, counter: TokenCounter, history: Snapshot
    ) -> int | None:
        """Make a checkpoint and a line that goes on from it; tokens of prefix given up, or None when not worth it."""
        line = plan.source
        draft, later, cost = await line.draft(system_tokens, limits.room)
        covered = line.compactable_count
        self._last_climb = None
        if not draft.segments or not covered:
            return self._not_worth_it(line, system_tokens, limits)
        target = self._target(plan, limits, system_tokens)
        goal = Goal(
            target,
            limits.room,
            counter,
            human_tokens=int(target * self._config.protected_human),
            protected_results=self._config.protected_tool_results,
            chapter_tokens=int(limits.room * self._config.chapter_share),
            summaries=self.short_forms.known,
            focus="\n\n".join(dict.fromkeys(text for text in (self.focus, plan.focus) if text)) or None,
        )
        done = self._last_climb = await run_ladder(
            draft,
            goal,
            self._ladder,
            trigger=limits.trigger,
            pins=self.pins,
            required=plan.protect,
            pin_tokens=int(limits.room * self._config.pin_share),
            recent_tokens=int(target * self._config.protected_recent),
            later=later,
        )
        for name, why in done.skipped:
            self._warnings.fault(f"strategy {name} {why}; it is skipped")
        freed = cost - sum(segment.tokens for segment in done.draft.segments)
        if freed <= 0 or (plan.reason == "trigger" and freed < limits.clear):
            return self._not_worth_it(line, system_tokens, limits)
        from_content = not (self.pins or self.short_forms or self._history.interrupted or goal.focus or plan.protect)
        checkpoint = await self._checkpoint(line, done, covered, history, limits, counter, from_content=from_content)
        new = self.cache.line(checkpoint, limits, counter)
        await new.update(history, len(history), self._history.interrupted)
        self._attempted(new, system_tokens, limits, infeasible=protected_tokens(done.draft) > limits.room)
        given_up = _given_up(line.view(), new.view())
        if line.budget == limits.budget:
            self.cache.book.replace(line, new)
        self.cache.book.serve(limits.budget, new)
        return given_up

    def _not_worth_it(self, line: View, system_tokens: int, limits: TokenLimits) -> None:
        """Nothing to gain: the line serves on, and is left alone until it has grown."""
        self._attempted(line, system_tokens, limits, infeasible=False)
        self.cache.book.serve(limits.budget, line)

    def _attempted(self, line: View, system_tokens: int, limits: TokenLimits, *, infeasible: bool) -> None:
        """No other attempt until the view has grown by what an attempt must free."""
        until = system_tokens + line.tokens + max(1, limits.clear)
        line.backoff = CompactionBackoff(limits.room, until, line.compactable_count, infeasible)

    async def _checkpoint(
        self,
        line: View,
        done: LadderResult,
        covered: int,
        history: Snapshot,
        limits: TokenLimits,
        counter: TokenCounter,
        *,
        from_content: bool,
    ) -> Checkpoint:
        base = line.checkpoint
        name = repr(counter)
        digest = base.digest if base else b""
        body = history.leading
        for index in range(body + (base.covered if base else 0), body + covered):
            entry = history[index]
            content = await in_thread_if(are_large((entry.message,)), content_hash, entry.message)
            digest = chain_hash(digest, entry.seq, content)
            count_cache.put(name, content, entry.tokens)
            if index % _BREATHE == _BREATHE - 1:
                await asyncio.sleep(0)
        checkpoint = Checkpoint(
            covered,
            base.upto if base and base.covered == covered else history[body + covered - 1].seq,
            digest,
            done.draft.segments,
            sum(segment.tokens for segment in done.draft.segments),
            self._history.last_seq,
            limits.budget,
            from_content and (base is None or base.from_content),
        )
        remember_checkpoint(self.cache.kind(counter), checkpoint)
        return checkpoint

    # -- handing out ------------------------------------------------------------------------------------------------

    async def _hand_out(self, line: View, limits: TokenLimits, key: Key, system: Sequence[RenderedMessage]) -> SentView:
        system_tokens = sum(shown.tokens for shown in system)
        messages, counted = await _fitted(line, limits, system_tokens)
        if counted > limits.room:
            text, members = overflow(line.segments(), limits, system_tokens, counted)
            if self._config.strict:
                raise ContextOverflow(text)
            self._warnings.once("overflow", text, budget=limits.budget, members=members)
        limits = replace(limits, trigger=self.cache.due(line, limits, system_tokens))
        view = SentView(limits, key, list(system), messages, counted, 0, line)
        if self.last_sent is not None:
            view.prefix = _shared([*self.last_sent.system, *self.last_sent.messages], [*view.system, *messages])
        self.last_sent = view
        return view

    async def _note_floor(self, done: LadderResult | None, limits: TokenLimits, system_tokens: int) -> None:
        """Report, once, that what must stay was clipped, that pins found no room, or that a system prompt left none."""
        if done is None or not (done.clipped_protected or done.refused_pins or system_tokens > limits.trigger):
            return
        line = self.cache.book.source(limits.budget)
        if line is not None and (await _fitted(line, limits, system_tokens))[1] > limits.room:
            return  # the view that is handed out above its budget will be reported
        pin_tokens = int(limits.room * self._config.pin_share)
        text, members = clipped_floor(done, limits, system_tokens, pin_tokens)
        self._warnings.once("floor", text, budget=limits.budget, members=members)

    # -- reports ----------------------------------------------------------------------------------------------------

    def segments(self) -> list[Segment]:
        """What the last view shows, segment by segment, each with the reason it must stay."""
        if self.last_sent is None:
            return []
        room = self.last_sent.limits.room
        segments, _ = mark_protected(
            self.last_sent.view.segments(),
            self.pins,
            pin_tokens=int(room * self._config.pin_share),
        )
        return segments

    def mends(self) -> Mapping[int, tuple[str, ...]]:
        """What was mended in the tail of the last view, by lowest seq of the round."""
        return self.last_sent.view.mends if self.last_sent else {}


async def _fitted(line: View, limits: TokenLimits, system_tokens: int) -> tuple[list[RenderedMessage], int]:
    """Return the messages of a line as far as they can be made to fit, and their tokens with the system prompt's."""
    if system_tokens + line.tokens <= limits.room:
        return line.view(), system_tokens + line.tokens
    messages, tokens = await line.clipped_to(limits.room - system_tokens)
    return messages, system_tokens + tokens


def _shared(before: Sequence[RenderedMessage], after: Sequence[RenderedMessage]) -> int:
    """Tokens of the messages at the start that are byte-identical."""
    shared = 0
    for old, new in zip(before, after, strict=False):
        if old is not new and old.message != new.message:
            break
        shared += new.tokens
    return shared


def _given_up(before: Sequence[RenderedMessage], after: Sequence[RenderedMessage]) -> int:
    return sum(shown.tokens for shown in before) - _shared(before, after)
