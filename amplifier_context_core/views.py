"""Views: what the model is sent, and the compactions that keep it within its budget.

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

from .checkpoint import Checkpoint, Piece, chain, content_hash
from .config import Config
from .errors import ContextOverflow, PinRefused
from .events import COMPACTION, POST_COMPACT, PRE_COMPACT, Hooks, emit, inside_handler
from .floor import floor_tokens, mark_floor
from .gate import Gate
from .history import History
from .kin import remember_checkpoint, remember_count
from .ladder import Climb, climb
from .lines import Attempt, Line, round_of
from .meter import Key, Meter
from .notices import Notices
from .plugins import Plugins
from .render import Rendered
from .saved import Saved
from .shelf import Limits, Shelf
from .strategies import Goal, Strategy
from .tokens import TokenCounter
from .transcript import Snapshot

log = logging.getLogger(__name__)

_CLEAR_SHARE = 0.05  # of the budget: what a compaction must free to be worth a broken prefix, unless config says
_BREATHE = 500  # entries hashed in between two breaths of the event loop


@dataclass(slots=True)
class View:
    """What was handed out last, for the meter, for events and for reports."""

    limits: Limits
    key: Key
    system: list[Rendered]
    messages: list[Rendered]
    counted: int
    prefix: int
    line: Line


@dataclass(slots=True)
class _Plan:
    """A compaction that is about to happen."""

    reason: str
    source: Line
    key: Key
    focus: str | None = None
    protect: frozenset[int] = field(default_factory=frozenset[int])


class Views:
    """The views of one session.

    Attributes:
        last: the view handed out last; None before the first.
        compactions: accepted so far.
        saved_tokens: that they freed together.
        pins: seqs pinned by command.
        summaries: short forms of tool results, by seq of the result and call id.
    """

    def __init__(
        self,
        history: History,
        config: Config,
        ladder: Sequence[Strategy],
        meter: Meter,
        plugins: Plugins,
        hooks: Hooks | None,
        notices: Notices,
        save: Callable[[], Awaitable[None]],
    ) -> None:
        self.last: View | None = None
        self.compactions = 0
        self.saved_tokens = 0
        self.pins: set[int] = set()
        self.summaries: dict[int, dict[str, str]] = {}
        self.focus: str | None = None
        self._history = history
        self._config = config
        self._ladder = ladder
        self._meter = meter
        self._plugins = plugins
        self._hooks = hooks
        self._notices = notices
        self._save = save
        self.gate = Gate()
        self.shelf = Shelf(history, config, ladder, self.pins, self.summaries)
        self._in_flight: Future[None] | None = None
        self._last_climb: Climb | None = None

    # -- requests ---------------------------------------------------------------------------------------------------

    async def request(
        self,
        budget: int,
        system: Sequence[Rendered],
        key: Key,
        counter: TokenCounter,
        *,
        protect: frozenset[int] = frozenset(),
        compact: bool = True,
    ) -> View:
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
                line, reason = await self.shelf.choose(history, limits, system_tokens, counter)
                tokens = system_tokens + line.tokens
                if reason is None or not compact or (inside_handler(self) and tokens <= limits.room):
                    view = self._hand_out(line, limits, key, system)
                    break
                plan = _Plan(reason, line, key, protect=protect)
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
        await self._notices.tell(self)
        return view

    def limits(self, budget: int, key: Key) -> Limits:
        """The figures for a budget, as the meter sees them now."""
        room = self._meter.room(budget, key)
        config = self._config
        trigger = int(room * config.compact_threshold) if config.auto_compact else room
        clear = config.clear_at_least if config.clear_at_least is not None else int(room * _CLEAR_SHARE)
        return Limits(budget, room, max(1, trigger), max(1, int(room * config.target_usage)), clear)

    async def compact_now(
        self, focus: str | None, limits: Limits, system_tokens: int, key: Key, counter: TokenCounter
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
                line, _ = await self.shelf.choose(history, limits, system_tokens, counter)
            return await self._announced(_Plan("manual", line, key, focus), limits, system_tokens, counter)
        finally:
            self._in_flight = None
            flight.set_result(None)

    async def reveal(self, seqs: Collection[int]) -> None:
        """Bring entries that were folded, clipped or dropped back into the view, verbatim.

        Raises:
            PinRefused: the history has no such entry.
        """
        async with self.gate:
            history = self._history.snapshot()
            for seq in seqs:
                if history.find(seq) is None:
                    raise PinRefused(f"m{seq}: the history has no such message")
            await self.shelf.reveal(seqs)

    def drop_lines(self) -> None:
        """Forget every rendering; the next view is made from the history."""
        self.shelf.book.clear()
        self.last = None

    def forget(self) -> None:
        """The history was cleared: forget everything derived from it."""
        self.drop_lines()
        self.pins.clear()
        self.summaries.clear()
        self._notices.forget()
        self.focus = None

    def round_tokens(self, seqs: Collection[int], history: Snapshot) -> int:
        """Tokens of the rounds that hold these entries, each round once: what stays together is pinned together."""
        rounds = {held.first: held.tokens for seq in seqs if (held := round_of(seq, history))}
        return sum(rounds.values())

    # -- kept beside the history -----------------------------------------------------------------------------------

    def saved(self, counter: TokenCounter) -> Saved:
        """What a resumed session goes on from."""
        return replace(
            self.shelf.saved(counter),
            corrections=tuple((*key, replace(known)) for key, known in self._meter.corrections.items()),
            pins=tuple(sorted(self.pins)),
            summaries=tuple((seq, dict(short)) for seq, short in self.summaries.items()),
            interrupted=tuple(sorted(self._history.interrupted)),
            focus=self.focus,
            compactions=self.compactions,
            tokens_saved=self.saved_tokens,
            warned=tuple(sorted(self._notices.kinds)),
        )

    def restore_figures(self, saved: Saved) -> None:
        """Of what was saved, all but the checkpoints."""
        for provider, model, known in saved.corrections:
            self._meter.corrections[provider, model] = known
        self.pins.update(saved.pins)
        self.summaries.update(saved.summaries)
        self.focus = saved.focus
        self.compactions, self.saved_tokens = saved.compactions, saved.tokens_saved
        self._notices.kinds.update(saved.warned)

    # -- compaction -------------------------------------------------------------------------------------------------

    async def _announced(
        self, plan: _Plan, limits: Limits, system_tokens: int, counter: TokenCounter
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

    def _figures(self, plan: _Plan, limits: Limits, system_tokens: int) -> dict[str, Any]:
        """What a compaction is about to work on, for handlers."""
        line = plan.source
        tokens = system_tokens + line.tokens
        due = self.shelf.due(line, limits, system_tokens)
        return {
            "message_count": len(line.view()),
            "token_count": self._meter.estimate(tokens, plan.key),
            "budget": limits.budget,
            "trigger": plan.reason,
            "threshold": self._meter.estimate(due, plan.key),
            "target": self._meter.estimate(self._target(plan, limits, system_tokens), plan.key),
            "reason": _because(plan.reason, tokens, limits, due),
        }

    def _target(self, plan: _Plan, limits: Limits, system_tokens: int) -> int:
        if plan.reason == "manual":
            return limits.target  # whoever asks twice gets the same
        return self.shelf.target(plan.source, limits, system_tokens)

    async def _carried_out(
        self, plan: _Plan, limits: Limits, system_tokens: int, counter: TokenCounter
    ) -> dict[str, Any] | None:
        """Compact, and tell handlers what came of it; the report, or None when nothing was gained."""
        started = time.monotonic()
        async with self.gate:
            history = self._history.snapshot()
            # It may have become needless, or another line may serve, while handlers were told.
            current, reason = await self.shelf.choose(history, limits, system_tokens, counter)
            if plan.reason != "manual":
                if reason is None:
                    return None
                plan.reason = reason
            plan.source = current
            report = self._figures(plan, limits, system_tokens)
            before = system_tokens + current.tokens
            accepted = await self._compact(plan, limits, system_tokens, counter, history)
            done = self._last_climb
            serving = self.shelf.book.source(limits.budget) or current
            after = system_tokens + serving.tokens
            report["before_messages"] = report["message_count"]
            report["message_count"] = report["after_messages"] = len(serving.view())

        def sent(counted: int) -> int:
            """Tokens as the provider will count them, like the budget."""
            return self._meter.estimate(counted, plan.key)

        freed = done.freed if done else ()
        report |= {
            "token_count": sent(after),
            "before_tokens": sent(before),
            "after_tokens": sent(after),
            "accepted": accepted is not None,
            "strategies": [{"name": name, "freed": sent(tokens) - sent(0)} for name, tokens in freed],
            "strategy_level": len(freed),
            "floor_tokens": sent(done.floor_tokens) if done else 0,
            "prefix_given_up_tokens": sent(accepted) - sent(0) if accepted else 0,
            "target_tokens": report["target"],
            "duration_ms": round((time.monotonic() - started) * 1000, 3),
        }
        if accepted is not None:
            self.compactions += 1
            self.saved_tokens += sent(before) - sent(after)
            await self._save()
            self._plugins.tell("amplifier_context_folded", session_id=self._history.session_id, report=report)
            await emit(self._hooks, self, COMPACTION, report)
        await emit(self._hooks, self, POST_COMPACT, report)
        self._note_floor(done, limits, system_tokens)
        return report if accepted is not None else None

    async def _compact(
        self, plan: _Plan, limits: Limits, system_tokens: int, counter: TokenCounter, history: Snapshot
    ) -> int | None:
        """Make a checkpoint and a line that goes on from it; tokens of prefix given up, or None when not worth it."""
        line = plan.source
        draft, later, cost = line.draft(system_tokens, limits.room)
        covered = line.coverable
        self._last_climb = None
        if not draft.pieces or not covered:
            return self._not_worth_it(line, system_tokens, limits)
        target = self._target(plan, limits, system_tokens)
        goal = Goal(
            target,
            limits.room,
            counter,
            human_tokens=int(target * self._config.protected_human),
            protected_results=self._config.protected_tool_results,
            chapter_tokens=int(limits.room * self._config.chapter_share),
            summaries=self.summaries,
            focus="\n\n".join(dict.fromkeys(text for text in (self.focus, plan.focus) if text)) or None,
        )
        done = self._last_climb = await climb(
            draft,
            goal,
            self._ladder,
            trigger=limits.trigger,
            pins=self.pins | plan.protect,
            pin_tokens=int(limits.room * self._config.pin_share),
            recent_tokens=int(target * self._config.protected_recent),
            later=later,
        )
        freed = cost - sum(piece.tokens for piece in done.draft.pieces)
        if freed <= 0 or (plan.reason == "trigger" and freed < limits.clear):
            return self._not_worth_it(line, system_tokens, limits)
        checkpoint = await self._checkpoint(line, done, covered, history, limits, counter)
        new = self.shelf.line(checkpoint, limits, counter)
        await new.take_in(history, len(history), self._history.interrupted)
        self._attempted(new, system_tokens, limits, stuck=floor_tokens(done.draft) > limits.room)
        given_up = _given_up(line.view(), new.view())
        if line.budget == limits.budget:
            self.shelf.book.replace(line, new)
        self.shelf.book.serve(limits.budget, new)
        return given_up

    def _not_worth_it(self, line: Line, system_tokens: int, limits: Limits) -> None:
        """Nothing to gain: the line serves on, and is left alone until it has grown."""
        self._attempted(line, system_tokens, limits, stuck=False)
        self.shelf.book.serve(limits.budget, line)

    def _attempted(self, line: Line, system_tokens: int, limits: Limits, *, stuck: bool) -> None:
        """No other attempt until the view has grown by what an attempt must free."""
        until = system_tokens + line.tokens + max(1, limits.clear)
        line.attempt = Attempt(limits.room, until, line.coverable, stuck)

    async def _checkpoint(
        self, line: Line, done: Climb, covered: int, history: Snapshot, limits: Limits, counter: TokenCounter
    ) -> Checkpoint:
        base = line.checkpoint
        name = repr(counter)
        digest = base.digest if base else b""
        body = history.leading
        for index in range(body + (base.covered if base else 0), body + covered):
            entry = history[index]
            content = content_hash(entry.message)
            digest = chain(digest, entry.seq, content)
            remember_count(name, content, entry.tokens)
            if index % _BREATHE == _BREATHE - 1:
                await asyncio.sleep(0)
        checkpoint = Checkpoint(
            covered,
            base.upto if base and base.covered == covered else history[body + covered - 1].seq,
            digest,
            done.draft.pieces,
            sum(piece.tokens for piece in done.draft.pieces),
            self._history.last_seq,
            limits.budget,
        )
        remember_checkpoint(self.shelf.kind(counter), checkpoint)
        return checkpoint

    # -- handing out ------------------------------------------------------------------------------------------------

    def _hand_out(self, line: Line, limits: Limits, key: Key, system: Sequence[Rendered]) -> View:
        system_tokens = sum(shown.tokens for shown in system)
        messages, counted = line.view(), system_tokens + line.tokens
        if counted > limits.room:
            messages, tokens = line.fitted(limits.room - system_tokens)
            counted = system_tokens + tokens
        if counted > limits.room:
            self._overflow(line, limits, system, counted)
        limits = replace(limits, trigger=self.shelf.due(line, limits, system_tokens))
        view = View(limits, key, list(system), messages, counted, 0, line)
        if self.last is not None:
            view.prefix = _shared([*self.last.system, *self.last.messages], [*view.system, *messages])
        self.last = view
        return view

    def _overflow(self, line: Line, limits: Limits, system: Sequence[Rendered], counted: int) -> None:
        largest = sorted(line.pieces(), key=lambda piece: piece.tokens, reverse=True)[:3]
        members = [{"mark": piece.mark, "tokens": piece.tokens} for piece in largest]
        if system:
            members.insert(0, {"mark": "system prompt", "tokens": sum(shown.tokens for shown in system)})
        named = ", ".join(f"{member['mark']} {member['tokens']:,}" for member in members)
        text = f"what must be kept needs {counted:,} tokens, the budget is {limits.room:,}: {named}"
        if self._config.strict:
            raise ContextOverflow(text)
        self._notices.once("overflow", text, budget=limits.budget, members=members)

    def _note_floor(self, done: Climb | None, limits: Limits, system_tokens: int) -> None:
        """Report, once, that what must stay leaves little room, or that pins found none in their share."""
        if done is None or not (done.floor_tokens > limits.trigger or done.refused_pins):
            return
        if system_tokens >= limits.room:
            return  # nothing can be done: the view that is handed out over its budget will say so
        parts: list[str] = []
        if done.floor_tokens > limits.trigger:
            parts.append(f"what must be kept fills {done.floor_tokens:,} of {limits.room:,} tokens")
        if done.clipped_floor:
            parts.append(f"clipped: {', '.join(done.clipped_floor[:10])}")
        if done.refused_pins:
            share = int(limits.room * self._config.pin_share)
            parts.append(f"pins without room in their share of {share:,}: {', '.join(done.refused_pins[:10])}")
        members = [
            {"mark": piece.mark, "tokens": piece.before, "why": piece.floor}
            for piece in sorted(done.draft.pieces, key=lambda piece: piece.before, reverse=True)
            if piece.floor
        ]
        if system_tokens:
            members.insert(0, {"mark": "system prompt", "tokens": system_tokens, "why": "system prompt"})
        parts.append("largest: " + ", ".join(f"{member['mark']} {member['tokens']:,}" for member in members[:3]))
        self._notices.once("floor", "; ".join(parts), budget=limits.budget, members=members[:5])

    # -- reports ----------------------------------------------------------------------------------------------------

    def pieces(self) -> list[Piece]:
        """What the last view shows, piece by piece, each with the reason it must stay."""
        if self.last is None:
            return []
        room = self.last.limits.room
        pieces, _ = mark_floor(
            self.last.line.pieces(),
            self.pins,
            pin_tokens=int(room * self._config.pin_share),
            newest_is_later=False,
            human_is_later=False,
        )
        return pieces

    def mends(self) -> Mapping[int, tuple[str, ...]]:
        """What was mended in the tail of the last view, by lowest seq of the round."""
        return self.last.line.mends if self.last else {}


def _because(reason: str, tokens: int, limits: Limits, due: int) -> str:
    if reason == "manual":
        return "asked for"
    line = limits.room if reason == "hard limit" else due
    return f"{tokens:,} tokens are above the {'budget' if reason == 'hard limit' else 'threshold'} of {line:,}"


def _shared(before: Sequence[Rendered], after: Sequence[Rendered]) -> int:
    """Tokens of the messages at the start that are byte-identical."""
    shared = 0
    for old, new in zip(before, after, strict=False):
        if old is not new and old.message != new.message:
            break
        shared += new.tokens
    return shared


def _given_up(before: Sequence[Rendered], after: Sequence[Rendered]) -> int:
    return sum(shown.tokens for shown in before) - _shared(before, after)
