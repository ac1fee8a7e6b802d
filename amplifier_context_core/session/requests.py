"""The requests of a session: the view that each is sent, what the session says of it, and what its answer teaches.

A request takes the budget, the system prompt and the items. `view/compactor.py` plans its view, compacts it where that
is due, and commits it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from ..arguments import checked_count, checked_texts
from ..compaction.digest import chapter_spans
from ..compaction.recalled import ONE_LINE
from ..economics.budget import Budget, budget_for, model_of, name_of, prices_of
from ..economics.meter import Key
from ..economics.trigger import recall_room
from ..errors import NotLoaded
from ..events import USAGE, emit, inside_handler
from ..futures import in_thread
from ..messages.parsing import Message, text_of
from ..messages.usage import Response, Usage
from ..outgoing.prefix import RequestPrefix
from ..transcript.entry import Entry
from ..transcript.returned_views import HandedViews
from ..transcript.transcript import Snapshot
from ..view.candidate import ViewRequest
from ..view.directions import calls_of_operations
from ..view.explain import chapters_of, explain
from ..view.handed_views import handed_views, is_dropped_chapter, views_of_before
from ..view.measured_view import CountView, FitOutput, MeasuredRequest, RequestTransaction
from ..view.plan import CompactionResult
from ..view.sent_view import SentView, outgoing_messages
from ..view.usage_reports import CacheHealth, UsageReports
from ..view.window_usage import step_of, window_usage
from .host import Host
from .host_checkpoint import HostCheckpoint
from .items import ItemList
from .session import Session
from .system_prompt import SystemPrompt, rendered_instruction

log = logging.getLogger(__name__)


class Requests:
    """Takes views of a session, and reports on them. `manager.py` documents the reports."""

    def __init__(self, session: Session, clock: Callable[[], str]) -> None:
        self.host = Host()  # what runs the session; one that offers nothing until the session is mounted
        # What the session offers a host that keeps transcripts itself.
        self.checkpoint = HostCheckpoint(session)
        self.prompt = SystemPrompt()
        self.reports = UsageReports()  # of the request that the next answer is to
        self.cache_health = CacheHealth()
        self._recall_taken = 0  # tokens granted to recalls since the last request
        self._session = session
        self._clock = clock
        self._is_cap_logged = False

    async def view(
        self, token_budget: int | None, provider: object, required: frozenset[int] = frozenset()
    ) -> SentView:
        """Hand out the view for a request, with the entries `required` verbatim in it. Raises `ContextOverflow`: under
        `strict`, when what must be kept does not fit.
        """
        session = self._session
        await self._begin(token_budget, provider)
        budget = self.budget(token_budget, provider).tokens
        while True:
            revision = session.history.revision
            request, listed = await self._with_items(budget, provider, required)
            sent = await session.then_save(self._viewed(request))
            if session.history.revision == revision:
                break  # else the request may show what was erased meanwhile, in its system prompt for one
        session.items.sent_list = listed
        self._handed_out(sent, provider)
        await self._announce_sent(sent)
        return sent

    async def retaining(self, texts: Sequence[str], token_budget: int | None, provider: object) -> SentView | None:
        """Hand out a view in which the newest user messages equal to these texts stay verbatim; None if none can be.
        Raises `ValueError`: a text is not in the history.
        """
        session = self._session
        await session.ready()
        seqs = await self._retained(texts)
        sent = await self.view(token_budget, provider, seqs)
        missing = [seq for seq in seqs if not sent.view.shows(seq)]
        if missing:
            await session.load()
            await session.compactor.show_verbatim(missing)
            await session.save()
            sent = await self.view(token_budget, provider, seqs)
        is_valid = sent.counted <= sent.limits.capacity and all(sent.view.shows(seq) for seq in seqs)
        return sent if is_valid else None

    async def measured(
        self, provider: object, retain_contents: Sequence[str], count_view: CountView, fit_output: FitOutput | None
    ) -> dict[str, Any]:
        session = self._session
        await self._begin(None, provider)
        required = await self._retained(retain_contents)
        for_view, listed = await self._with_items(self.budget(None, provider).tokens, provider, required)
        request = MeasuredRequest(session.compactor, for_view, session.config, self.outgoing, count_view, fit_output)
        plan, report = await request.run()

        async def accept(agree: Callable[[], bool]) -> bool:
            with session.one_loop.at_work():
                handed = await session.compactor.hand_out_if(plan, agree)
                if handed is None:
                    return False
                sent, result = handed
                session.items.sent_list = listed
                self._handed_out(sent, provider)
                if tokens := report["measured_after"]:
                    session.meter.report(sent.counted, Usage(tokens), for_view.key)
                await session.history.shielded(self._after_commit(result))
                return True

        return {**report, "transaction": RequestTransaction(accept)}

    async def last_sent(self) -> SentView:
        """Before the first view, take one, but do not compact for it."""
        compactor = self._session.compactor
        if compactor.last_sent is None:
            await self._viewed(await self.for_last_budget(), compact=False)
        if compactor.last_sent is None:
            raise ValueError("no view was handed out yet")
        return compactor.last_sent

    def last_asked(self) -> tuple[int, Key]:
        """Return budget and provider of the last request; those of a request that names neither before the first."""
        return self._session.compactor.sent.asked or (self.budget().tokens, ("", ""))

    async def for_last_budget(self) -> ViewRequest:
        return await self.request_for(*self.last_asked())

    async def request_for(self, budget: int, key: Key, required: frozenset[int] = frozenset()) -> ViewRequest:
        session = self._session
        counter = await session.counter()
        limits = session.compactor.limits(budget, key)
        system = await self.prompt.messages(session.history.snapshot(), counter)
        prefix = RequestPrefix.of(key, self.host.tools(), system)
        return ViewRequest(limits, prefix, tuple(system), counter, required)

    def budget(self, token_budget: int | None = None, provider: object = None) -> Budget:
        """Note the prices that the provider states. Raises `ConfigError`: the budget is not a whole number of at least
        1 token.
        """
        session = self._session
        budget = budget_for(session.config, token_budget, provider)
        if (prices := prices_of(provider)) is not None:
            session.meter.note_prices((name_of(provider), model_of(provider) or ""), prices)
        if budget.capped_from and not self._is_cap_logged:
            self._is_cap_logged = True
            log.info("max_tokens %d caps the larger budget of %d tokens", budget.tokens, budget.capped_from)
        return budget

    def outgoing(self, sent: SentView) -> list[dict[str, Any]]:
        return outgoing_messages(sent, merge=self._session.config.merge_consecutive)

    async def explain(self) -> dict[str, Any]:
        session, compactor = self._session, self._session.compactor
        await session.load()
        last = await self.last_sent()
        async with compactor.lock.hold():  # a view that another thread works on may be in the middle of a change
            history = session.history.snapshot()
            own = {
                "session_id": session.history.session_id,
                "turns": session.history.turn_count,
                "compactions": compactor.compactions,
                "tokens_saved": compactor.log.tokens_saved,  # as the providers count
                "warnings": [*session.warnings.texts],
                "cache": self.cache_health.line,
            }
            pins, exact = frozenset(compactor.directions.pins), session.counter.is_exact
            return own | await in_thread(explain, last, history, config=session.config, pins=pins, exact=exact)

    async def chapters(self) -> list[dict[str, Any]]:
        await self._session.ready()
        last = await self.last_sent()
        async with self._session.compactor.lock.hold():
            return chapters_of(last.view.segments())

    async def usage(self, sent: SentView | None = None) -> dict[str, Any]:
        """Return the usage of a view, by default of the last one."""
        session, compactor = self._session, self._session.compactor
        if sent is None:
            await session.ready()
            sent = await self.last_sent()
        async with compactor.lock.hold():
            reported = self.reports.reported(compactor.compactions)
            return window_usage(sent, compactor.directions.pins, exact=session.counter.is_exact, reported=reported)

    async def recall_room(self, wanted: int) -> int:
        session = self._session
        await session.ready()
        last = await self.last_sent()
        left = recall_room(session.compactor.limits(last.limits.budget, last.key), session.config.recall_share)
        left -= last.view.recalled.tokens + self._recall_taken
        free = last.limits.capacity - last.counted - self._recall_taken
        granted = max(0, min(checked_count("wanted", wanted), left, free, last.view.output_limit - ONE_LINE))
        self._recall_taken += granted
        return granted

    async def handed_views(self) -> HandedViews:
        session, compactor = self._session, self._session.compactor
        merge = session.config.merge_consecutive
        found = handed_views(compactor, merge=merge)
        if not found:
            found = await views_of_before(compactor, await self.for_last_budget(), merge=merge)
        erased, dropped = await session.history.redacted_seqs(), compactor.sent.dropped_chapters
        is_dropped = partial(is_dropped_chapter, dropped=dropped, erased=erased)
        return HandedViews(found, is_dropped, compactor.sent.erased_forms)

    def warn_of_chapters(self, new: Sequence[Message]) -> None:
        """Warn, once, of chapters that an edit brought: they are those of no view that is known here."""
        if count := sum(len(chapter_spans(message)) for message in new):
            text = (
                f"set_messages was given {count:,} chapters that no known view of this session has. They are kept as "
                "messages, and what the list lacks is in the archive, where recall reads it. Give the whole history, "
                "as get_messages returns it, or the view of the last request"
            )
            self._session.warnings.once("unknown view", text)

    async def record_items(self) -> bool:
        """Add the list of items that the last request ended with to the history, before its answer; False if it had
        none.
        """
        if self._session.items.sent_list is None:
            return False
        return await self._session.history.shielded(self._record())

    async def _record(self) -> bool:
        """See `record_items`. Until this task has begun, the list stays the one to record."""
        await self.settle_items()
        items = self._session.items
        sent, items.sent_list = items.sent_list, None
        if sent is None:
            return False
        try:
            await self._session.history.add(sent[0].message)
        except BaseException:
            items.sent_list = sent  # the caller adds the answer again, or a request lists the items again
            raise
        items.noted(sent[0])
        return True

    async def settle_items(self) -> None:
        """Find out whether the history has the list that was sent: of an attempt to record it that was cut off, of
        another request that sent the same, or of a host that hands in its view.
        """
        if (sent := self._session.items.sent_list) is not None:
            added = await self._session.history.added_after(sent[1])
            if sent[0].is_among(entry.message for entry in added):
                self._session.items.noted(sent[0])

    async def announce(self, result: CompactionResult | None) -> None:
        """Save a compaction, then report it: a handler or an observer may hang or end the process."""
        if result is None:
            return
        session, compactor = self._session, self._session.compactor
        if result.has_gain:
            row = compactor.log.add(self._clock(), result.report)
            log.info("session %s: compacted: %s", session.history.session_id, row)
            await session.save(changes_only=True)
        await compactor.announce(result)

    # -- answers ----------------------------------------------------------------------------------------------------

    async def response_to(self, message: dict[str, Any]) -> Response | None:
        """Return what the provider reported of an answer; None if that is unknown.

        It comes with the request that it answers, if the message has thinking that is bound to it.
        """
        request = self.reports.request
        if request is None:
            return None
        response = self.reports.match(request.counted, self._session.meter.estimate(request.counted, request.key))
        if not request.prefix.binds_answer(message, response):
            return response
        return replace(response or Response(), prefix=await request.digest())

    def answered(self, response: Response | None) -> None:
        request = self.reports.request
        usage = self.reports.end(response)
        if usage and request:
            self._session.meter.report(request.counted, usage, request.key)
        reported = response.usage if response else None  # a loop's own report has no cache reads
        if reported and request and self.cache_health.record(request, reported):
            self._session.warnings.once("cache setting", self.cache_health.advice)

    def refused_as_too_long(self) -> None:
        """The next view is smaller."""
        session = self._session
        refused = self.reports.request or session.compactor.last_sent
        if refused is not None:
            window = session.meter.refused(refused.counted, refused.key)
            id = session.history.session_id
            log.info("session %s: a request was refused as too long; window now %d tokens", id, window)

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _begin(self, token_budget: int | None, provider: object) -> None:
        session = self._session
        await session.companion.before_request(token_budget, provider)
        await session.ready()
        await self.checkpoint.before_request(self.host.preserve_evidence())
        session.saves.request_begins()

    async def _with_items(
        self, budget: int, provider: object, required: frozenset[int]
    ) -> tuple[ViewRequest, tuple[ItemList, int] | None]:
        """Return a request whose view ends with the list of the items if they changed, and what to keep of it."""
        session = self._session
        session.items.activate()  # for the tools that the caller runs after this request
        await self.settle_items()
        required |= calls_of_operations(session.history.snapshot(), self.host.active_operations())
        request = await self.request_for(budget, (name_of(provider), model_of(provider) or ""), required)
        listed = session.items.changed_list(budget)
        appended = rendered_instruction(listed.message, request.counter) if listed else ()
        sent = (listed, session.history.last_seq) if listed else None
        return replace(request, appended=appended, late=session.companion.late), sent

    async def _viewed(self, request: ViewRequest, *, compact: bool = True) -> SentView:
        """A handler of the compaction in flight that asks for a view does not wait for it, nor is it asked again."""
        compactor = self._session.compactor
        plan = await compactor.plan(request)
        while compact and compactor.must_compact(plan):
            is_nested = inside_handler(compactor) and compactor.is_compacting
            async with nullcontext() if is_nested else compactor.in_flight.hold():
                plan, result = await compactor.compacted(plan, with_hooks=not is_nested)
                await self.announce(result)
            plan = await compactor.plan(request, plan)
        sent = compactor.hand_out(plan, serves=plan.reason is None, is_sent=compact)
        await self._session.save(changes_only=True)  # late chapters: a handler of a warning may end the process
        await self._session.warnings.emit_pending(compactor)
        return sent

    def _handed_out(self, sent: SentView, provider: object) -> None:
        """`provider` is None if the loop did not name one."""
        session = self._session
        if not inside_handler(session.compactor):  # such a handler looks at views; the loop's is another
            self.reports.begin(sent, self._clock())
        session.history.on_request()
        self._recall_taken = 0  # the view counts what recalls brought before this request
        session.companion.handed_out(sent, provider)

    async def _after_commit(self, result: CompactionResult | None) -> None:
        session = self._session
        await session.then_save(self.announce(result))
        await session.warnings.emit_pending(session.compactor)
        if session.compactor.last_sent is not None:
            await self._announce_sent(session.compactor.last_sent)

    async def _announce_sent(self, sent: SentView) -> None:
        """Emit what a view that was handed out means for the provider's cache, and how full its window is by now."""
        compactor, reports = self._session.compactor, self.reports
        await compactor.sent.announce(compactor.hooks, compactor)
        step = step_of(sent)
        if step != reports.step and not inside_handler(compactor):
            reports.step = step
            await emit(compactor.hooks, compactor, USAGE, await self.usage(sent))

    async def _retained(self, texts: Sequence[str]) -> frozenset[int]:
        texts = checked_texts("retain_contents", texts)
        history = self._session.history
        try:
            return frozenset(_newest_user_message(history.snapshot(), text).seq for text in texts)
        except NotLoaded:
            await self._session.load()
        return frozenset(_newest_user_message(history.snapshot(), text).seq for text in texts)


def _newest_user_message(history: Snapshot, text: str) -> Entry:
    for index in range(len(history) - 1, -1, -1):
        entry = history[index]
        if entry.role == "user" and text_of(entry.message.get("content")) == text:
            return entry
    raise ValueError("a text to retain is not in the history")
