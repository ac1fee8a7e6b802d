"""The requests of a session: the view that one is sent, and what its answer reports.

A request takes the items, the budget and the system prompt, and asks `view/compactor.py` for a view. `manager.py` has
the methods that hosts call.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ..arguments import checked_count, checked_texts
from ..compaction.digest import chapter_spans
from ..compaction.strategies import Strategy
from ..economics.budget import model_of, name_of
from ..economics.meter import Key
from ..errors import NotLoaded
from ..events import USAGE, emit, inside_handler
from ..futures import in_thread
from ..messages.parsing import Message, text_of
from ..messages.usage import Response, Usage
from ..rendering.system_prompt import rendered_instruction
from ..transcript.entry import Entry, seq_of, seqs_of
from ..transcript.returned_views import HandedViews
from ..transcript.transcript import Snapshot
from ..view.active_operations import calls_of_operations
from ..view.handed_views import handed_views, is_dropped_chapter, views_of_before
from ..view.lacking import RECENT, lacking_names, nearness
from ..view.measured_view import CountView, FitOutput, Measured, MeasuredRequest, RequestTransaction
from ..view.plan import CompactionJob, CompactionResult, Plan
from ..view.sent_view import SentView, outgoing_messages
from ..view.view_request import ViewRequest
from ..view.window_usage import step_of, text_of_usage, window_usage
from .items import ItemList
from .lifecycle import SessionLifecycle

log = logging.getLogger(__name__)

T = TypeVar("T")
_ANY = range(1 << 62)


class SessionRequests(SessionLifecycle):
    """A session that takes views for requests."""

    async def _request(self, token_budget: int | None, provider: object, required: frozenset[int]) -> SentView:
        await self._begin_request()
        budget = self._budget(token_budget, provider)
        request, listed = await self._with_items(budget.tokens, provider, required)
        sent = await self._then_save(self._view(request))
        self.items.sent_list = listed
        self._handed_out(sent, provider)
        await self._announce_request(sent)
        return sent

    async def _begin_request(self) -> None:
        await self.ready()
        await self.host_checkpoint.before_request(self.host.preserve_evidence(), self.token_counter, self._messages)
        self._requests_since_refusal += 1

    async def _measured_request(
        self, provider: object, retain_contents: Sequence[str], count_view: CountView, fit_output: FitOutput | None
    ) -> dict[str, Any]:
        """Return a view that its provider has counted, with its transaction."""
        await self._begin_request()
        required = await self._retained(retain_contents)
        for_view, listed = await self._with_items(self._budget(None, provider).tokens, provider, required)
        request = MeasuredRequest(
            self.compactor, for_view, self.config, self.meter, self._outgoing, count_view, fit_output
        )
        measured = await request.run()

        async def accept(agree: Callable[[], bool]) -> bool:
            with self.one_loop.at_work():
                sent = await self.compactor.hand_out_if(measured.plan, agree)
                if sent is None:
                    return False
                self.items.sent_list = listed
                self._handed_out(sent, provider)
                if measured.attempt.tokens:
                    self.meter.report(sent.counted, Usage(measured.attempt.tokens), for_view.key)
                await self.history.shielded(self._after_commit(measured))
                return True

        return {**measured.report(), "transaction": RequestTransaction(accept)}

    @property
    def _late(self) -> Strategy | None:
        """The strategy that writes chapters again for a request, as `ViewRequest.late`; None to leave them."""
        return None

    async def _after_commit(self, measured: Measured) -> None:
        await self._then_save(self._announce(measured.plan.result))
        await self.compactor.emit_warnings()
        if self.compactor.last_sent is not None:
            await self._announce_request(self.compactor.last_sent)

    async def _announce_request(self, sent: SentView) -> None:
        """Emit what a view that was handed out means for the provider's cache, and how full its window is by now."""
        await self.compactor.announce_prefix()
        step = step_of(sent)
        if step != self._usage_reports.step and not inside_handler(self.compactor):
            self._usage_reports.step = step
            await emit(self.compactor.hooks, self.compactor, USAGE, await self._usage_of(sent))

    async def _usage_of(self, sent: SentView) -> dict[str, Any]:
        exact = getattr(self.counter, "exact", False)
        async with self.compactor.lock.hold():
            reported = self._usage_reports.reported(self.compactor.compactions)
            return window_usage(sent, self.compactor.pins, exact=exact, reported=reported)

    async def _with_items(
        self, budget: int, provider: object, required: frozenset[int]
    ) -> tuple[ViewRequest, ItemList | None]:
        """Return a request whose view ends with the list of the items if they changed, and that list."""
        self.items.activate()  # for the tools that the caller runs after this request
        required |= calls_of_operations(self.history.snapshot(), self.host.active_operations())
        key: Key = (name_of(provider), model_of(provider) or "")
        counter = await self.token_counter()
        request = await self._view_request(budget, key, counter, required)
        listed = self.items.changed_list(budget)
        appended = rendered_instruction(listed.message, counter) if listed else ()
        return replace(request, appended=appended, late=self._late), listed

    async def _record_sent_list(self) -> bool:
        """Add the list that the last request ended with to the history, before its answer; return False if none."""
        listed = self.items.take_sent_list()
        if listed is None:
            return False
        try:
            await self.history.add(listed.message)
        except BaseException:
            self.items.sent_list = listed  # the caller adds the answer again, or a request lists the items again
            raise
        self.items.noted(listed)
        return True

    def _handed_out(self, sent: SentView, provider: object) -> None:
        """Note that a view is sent to a provider; None if the loop did not name one."""
        if not inside_handler(self.compactor):  # a handler of a compaction looks at views; the loop asked for another
            self._usage_reports.begin(sent, self._clock())
        self.history.on_request()
        self._recall_taken = 0  # the view counts what recalls brought before this request

    def _last_asked(self) -> tuple[int, Key]:
        """Return budget and provider of the last request; those of a request that names neither before the first."""
        return self.compactor.sent.asked or (self._budget().tokens, ("", ""))

    async def _last_sent(self) -> SentView:
        """Return the view handed out last. Before the first, take one, but do not compact for it."""
        if self.compactor.last_sent is None:
            counter = await self.token_counter()
            await self._view(await self._view_request(*self._last_asked(), counter), compact=False)
        if self.compactor.last_sent is None:
            raise ValueError("no view was handed out yet")
        return self.compactor.last_sent

    async def usage(self) -> dict[str, Any]:
        """Return how full the window of the last request is, by kind, and what is left until the next compaction.

        Tokens are the provider's. Costs are in plain input tokens. Before the first request it describes what a request
        of the configured budget would show.
        """
        await self.ready()
        return await self._usage_of(await self._last_sent())

    async def describe(self, width: int = 80) -> str:
        """Return the usage as a screen of text, such as a host prints for `/context`.

        Args:
            width: columns.
        """
        return text_of_usage(await self.usage(), checked_count("width", width))

    async def lacking_names(self, marks: Sequence[str], limit: int = 200) -> list[dict[str, str]]:
        """Return names that the history has and the model does not see, those that are likely needed next first.

        Args:
            marks: of messages that a search found, the best first; names of these and near them come sooner.
            limit: names at most.

        Returns:
            Identifiers as `name`, each with the `mark` of the newest message that has it.
        """
        hits, limit = seqs_of(marks), checked_count("limit", limit)
        await self.ready()
        sent = await self._last_sent()
        history = self.history.snapshot()
        first = self.history.last_seq - RECENT + 1
        wanted = {*nearness(hits), *range(max(1, first), self.history.last_seq + 1)}
        found = await self.history.find_all(sorted(wanted)) if history.gap else None
        shown = [one.message for one in (*sent.system, *sent.messages)]
        newest = max((one.seq for one in sent.messages), default=0)

        def names() -> list[tuple[str, int]]:
            entries = [entry for entry in history if entry.seq in wanted] if found is None else found
            view = [*shown, *(entry.message for entry in entries if entry.seq > newest)]
            return lacking_names(entries, hits, view, limit)

        return [{"name": name, "mark": f"m{seq}"} for name, seq in await in_thread(names)]

    def _outgoing(self, sent: SentView) -> list[dict[str, Any]]:
        return outgoing_messages(sent, merge=self.config.merge_consecutive)

    async def _handed_views(self) -> HandedViews:
        """Return the views that a host may hand back in place of the history."""
        merge = self.config.merge_consecutive
        found = handed_views(self.compactor, merge=merge)
        if not found:
            request = await self._view_request(*self._last_asked(), await self.token_counter())
            found = await views_of_before(self.compactor, request, merge=merge)
        erased, dropped = await self.history.redacted_seqs(), self.compactor.dropped_chapters
        return HandedViews(found, partial(is_dropped_chapter, dropped=dropped, erased=erased))

    def _warn_of_chapters(self, new: Sequence[Message]) -> None:
        """Warn, once, of chapters that an edit brought: they are those of no view that is known here."""
        if count := sum(len(chapter_spans(message)) for message in new):
            text = (
                f"set_messages was given {count:,} chapters that no known view of this session has. They are kept as "
                "messages, and what the list lacks is in the archive, where recall reads it. Give the whole history, "
                "as get_messages returns it, or the view of the last request"
            )
            self.warnings.once("unknown view", text)

    async def _view(self, request: ViewRequest, *, compact: bool = True) -> SentView:
        """Return the view for a request, compacted first if it must be.

        A handler of the compaction in flight that asks for a view does not wait for its end, nor is it asked again.
        """
        compactor = self.compactor
        plan = await compactor.plan(request)
        while compact and compactor.must_compact(plan):
            is_nested = inside_handler(compactor) and compactor.is_compacting
            async with nullcontext() if is_nested else compactor.alone():
                plan, result = await compactor.compacted(plan, with_hooks=not is_nested)
                await self._announce(result)
            plan = await compactor.plan(request, plan)
        sent = compactor.hand_out(plan, serves=plan.reason is None, is_sent=compact)
        await self._save(changes_only=True)  # late chapters: a handler of a warning may hang or end the process
        await compactor.emit_warnings()
        return sent

    async def _compact_now(self, span: range) -> dict[str, Any] | None:
        """Compact whatever the threshold; return the report, or None when there was nothing to free.

        Args:
            span: seqs of the rounds that may change.
        """
        compactor = self.compactor
        if inside_handler(compactor):
            return None  # a handler of a compaction asks for another: there would be no end to it
        async with compactor.alone():
            async with compactor.lock.hold():
                plan = await self._plan_to_compact(span)
            _, result = await compactor.compacted(plan, is_manual=True)
            await self._announce(result)
        return result.report if result and result.has_gain else None

    async def compactions(self) -> list[dict[str, Any]]:
        """Return the last 100 accepted compactions, the newest last."""
        await self.ready()
        return self.compactor.log.rows

    async def preview(self, first: str | None = None, last: str | None = None) -> dict[str, Any]:
        """Return what `compact` would do now. No handler is asked, and nothing changes.

        Args:
            first: mark; rounds before it stay as they are.
            last: mark; rounds after it stay as they are.

        Returns:
            ``would_compact`` and, if so, the figures of ``context:post_compact`` and ``rounds``: dicts with ``mark``,
            ``to``, ``state`` and ``tokens`` of what would be shown otherwise than now.

        Raises:
            ValueError: `first` or `last` is no mark.
        """
        span = span_of(first, last)
        await self.ready()
        compactor = self.compactor
        async with compactor.lock.hold():
            plan = await self._plan_to_compact(span)
            job = CompactionJob(plan, is_manual=True, focus_drops=compactor.focus_drops)
            result = (await compactor.compact(job)).result
            if result is None or not result.has_gain:
                return {"would_compact": False, "reason": "nothing could be freed"}
            before = {id(shown) for segment in plan.view.segments() for shown in segment.shown}
            segments = result.candidate.view.segments()
        changed = [one for one in segments if any(id(shown) not in before for shown in one.shown)]
        units = plan.request.limits.units
        rounds = [
            {"mark": f"m{one.first}", "to": f"m{one.last}", "state": one.state, "tokens": units.part(one.tokens)}
            for one in changed
        ]
        return {"would_compact": True, **result.report, "rounds": rounds}

    async def _plan_to_compact(self, span: range) -> Plan:
        """Return the plan for the last budget, in which the rounds outside a span of seqs stay as they are."""
        request = await self._view_request(*self._last_asked(), await self.token_counter())
        plan = await self.compactor.cache.choose(request)
        rounds = (segment.round for segment in plan.view.segments() if segment.round)
        kept = frozenset(entry.seq for one in rounds for entry in one.entries if entry.seq not in span)
        if not kept:
            return plan
        return replace(plan, candidate=replace(plan.candidate, request=replace(request, required=kept)))

    async def _announce(self, result: CompactionResult | None) -> None:
        """Save a compaction, then report it: a handler or an observer may hang or end the process."""
        if result is None:
            return
        if result.has_gain:
            log.info("session %s: compacted: %s", self.session_id, self.compactor.log.add(self._clock(), result.report))
            await self._save(changes_only=True)
        await self.compactor.announce(result)

    async def _then_save(self, work: Awaitable[T]) -> T:
        """Await work that may compact, then save, even where the view does not fit or a handler was cancelled."""
        try:
            done = await work
        except GeneratorExit:  # the event loop was closed: nothing can be awaited any more
            raise
        except BaseException:
            await self._save(changes_only=True)
            raise
        await self._save(changes_only=True)
        return done

    def _cancellation_state(self) -> tuple[frozenset[int], int]:
        return self.history.interrupted, self.history.revision

    async def _with_prefix(self, message: dict[str, Any], response: Response | None) -> Response | None:
        """Return the response with the request that it answers, if the message has thinking that is bound to it."""
        request = self._usage_reports.request
        if request is None or not request.prefix.binds_answer(message, response):
            return response
        return replace(response or Response(), prefix=await request.digest())

    def _matching_response(self) -> Response | None:
        request = self._usage_reports.request
        if request is None:
            return None
        return self._usage_reports.match(request.counted, self.meter.estimate(request.counted, request.key))

    async def _response_to(self, message: dict[str, Any]) -> Response | None:
        """Return what the provider reported of an answer; None if that is unknown."""
        return await self._with_prefix(message, self._matching_response())

    def _answered(self, response: Response | None) -> None:
        """Learn from what a provider reported of the answer to the request."""
        request = self._usage_reports.request
        usage = self._usage_reports.usage_for(response)
        if usage and request:
            self.meter.report(request.counted, usage, request.key)
            self._usage_reports.answered(usage)
        reported = response.usage if response else None  # a loop's own report has no cache reads
        if reported and request and self._cache_health.record(request, reported):
            self.warnings.once("cache setting", self._cache_health.advice)
        self._usage_reports.end()

    async def _retained(self, texts: Sequence[str]) -> frozenset[int]:
        """Return the seqs of the newest user messages equal to these texts."""
        texts = checked_texts("retain_contents", texts)
        try:
            return frozenset(_newest_user_message(self.history.snapshot(), text).seq for text in texts)
        except NotLoaded:
            await self.load()
        return frozenset(_newest_user_message(self.history.snapshot(), text).seq for text in texts)

    async def _newest_result(self, call_id: str) -> int | None:
        """Return the seq of the newest result of a call; None while there is none."""
        history = self.history.snapshot()
        found = _newest_with(call_id, history[history.gap.stop :])
        if found is None and history.gap:
            await self.load()
            found = _newest_with(call_id, self.history.snapshot()[:])
        return found.seq if found and call_id in found.answered_ids else None


def span_of(first: str | None, last: str | None) -> range:
    """Return the seqs from one mark to another; None for no bound.

    Raises:
        ValueError: one of them is no mark.
    """
    return range(seq_of(first) if first else _ANY.start, seq_of(last) + 1 if last else _ANY.stop)


def _newest_with(call_id: str, entries: Sequence[Entry]) -> Entry | None:
    """Return the newest entry with the result of a call, or with the call."""
    having = (entry for entry in reversed(entries) if call_id in entry.answered_ids or call_id in entry.call_ids)
    return next(having, None)


def _newest_user_message(history: Snapshot, text: str) -> Entry:
    for index in range(len(history) - 1, -1, -1):
        entry = history[index]
        if entry.role == "user" and text_of(entry.message.get("content")) == text:
            return entry
    raise ValueError("a text to retain is not in the history")
