"""The context manager: the kernel's five methods, and what else a host can ask of a session.

Each method is one thing that a session can do. `session/lifecycle.py` opens, saves and closes the session,
`session/requests.py` takes its views, and `kernel.py` mounts it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from .arguments import checked_count, checked_flag, checked_text
from .economics.meter import Units
from .economics.trigger import recall_room
from .errors import ConfigError, PinRefused
from .futures import in_thread
from .items import ContextPool, ContextQueue
from .locks import on_one_loop
from .messages.parsing import copy_message
from .messages.usage import Response
from .rendering.recalled import ONE_LINE
from .rendering.system_prompt import PromptFactory
from .session.forgetting import Erased, SessionForgetting
from .session.requests import span_of
from .transcript.entry import seq_of, seqs_of
from .transcript.redaction import forms_of
from .transcript.transcript import CopyingSnapshot, Snapshot
from .view.chapters import chapters_of
from .view.explain import SessionFigures, explain
from .view.measured_view import CountView, FitOutput
from .view.pins import check_pin
from .view.undo import UNDONE, first_changed, undo_compaction, undone_report

log = logging.getLogger(__name__)


class ContextManager(SessionForgetting):
    """The memory of one session: what the kernel and a host can ask of it.

    The first call of any method opens the store and resumes what it holds. Adding and reading are safe from any thread
    and event loop, also at the same time. A request or an edit raises `ContextError` while another live loop makes one.
    """

    # -- the kernel's protocol --------------------------------------------------------------------------------------

    async def add_message(self, message: dict[str, Any]) -> None:
        """Append a message to the history.

        Raises:
            InvalidMessage: it cannot be stored; the field is named, nothing was stored.
            StoreError: the store refused it; nothing was stored.
        """
        await self.ready()
        if not self.items.is_saved:  # a message may say what became of them: they must outlive this process with it
            await self._save()
        response: Response | None = None
        requested_at: str | None = None
        has_listed = False
        if message.__class__ is dict and message.get("role") == "assistant":
            response, requested_at = await self._response_to(message), self._usage_reports.requested_at
            has_listed = await self._record_sent_list()
        before = self._cancellation_state()
        entry = await self.history.add(message, requested=requested_at, reported=response)
        if self._cancellation_state() != before:  # adding applied the policy for a cancelled turn
            await self._save_edited()
        elif has_listed:
            await self._save()
        if entry is None:
            return
        self.compactor.short_forms.result_came(entry.seq, entry.answered_ids)
        if entry.role == "assistant":
            self._answered(response)
        else:
            self._usage_reports.given_up()

    @on_one_loop
    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        """Return the messages to send now: valid for every provider and within the budget.

        Args:
            token_budget: tokens that the request may have; by default the provider's window, else `max_tokens`.
            provider: the kernel's provider, if its window counts.

        Raises:
            ConfigError: the budget is not a whole number of at least 1 token.
            ContextOverflow: under `strict`, when what must be kept does not fit; it is sent otherwise, with a warning.
        """
        return self._outgoing(await self._request(token_budget, provider, frozenset()))

    async def get_messages(self) -> list[dict[str, Any]]:
        """Return the whole history as it was stored, in copies."""
        return await self._messages()

    @on_one_loop
    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        """Make a list the history: what is stored already stays as it is, the rest is an edit.

        The list is the whole history. A view that this session handed out is taken for it: what the view did not show
        stays. Of any other list, what it lacks goes to the archive.

        Raises:
            InvalidMessage: a message of the list cannot be stored; then nothing was changed.
            StoreError: the store refused the change.
        """
        await self.ready()
        await self.token_counter()
        before, revision = self.history.last_seq, self.history.revision
        if await self.history.set(messages, self._handed_views):
            new = [entry.message for entry in self.history.snapshot() if entry.seq > before]
            self.items.came_back(new)
            if self.history.revision != revision:
                self._warn_of_chapters(new)
            await self._save_edited()

    @on_one_loop
    async def clear(self) -> None:
        """Drop the history, its checkpoints, pins and registered short forms. Nothing of it is recalled any more."""
        await self.ready()
        await self.history.clear()
        self.compactor.reset()
        self._cache_health.clear()
        self.items.clear()
        self._usage_reports.end()
        await self._save()

    @property
    def _system_prompt_factory(self) -> PromptFactory | None:
        """The factory in use, under the name at which hooks look for it to put theirs around it (docs/hosts.md)."""
        return self._prompt.factory

    async def set_system_prompt_factory(self, factory: PromptFactory | None) -> None:
        """Take the system prompt of every request from an async callable, in place of stored system messages.

        Messages that a hook added (``metadata.source`` is ``hook``) stay.
        """
        self._prompt.factory = factory

    # -- the session's own capabilities ------------------------------------------------------------------------------

    @on_one_loop
    async def compact(
        self, focus: str | None = None, first: str | None = None, last: str | None = None
    ) -> dict[str, Any]:
        """Compact now.

        Args:
            focus: what a summary should dwell on; kept for later compactions too.
            first: mark; rounds before it stay as they are. Chapters may be condensed all the same.
            last: mark; rounds after it stay as they are.

        Returns:
            ``compacted`` and, if so, the figures of ``context:post_compact``.

        Raises:
            ValueError: `first` or `last` is no mark.
        """
        span = span_of(first, last)
        focus = None if focus is None else checked_text("focus", focus)
        await self.ready()
        self.compactor.focus = focus or self.compactor.focus
        report = await self._then_save(self._compact_now(span))
        if report is None:
            return {"compacted": False, "reason": "nothing could be freed, or a handler postponed it"}
        return {"compacted": True, **report}

    async def explain(self) -> dict[str, Any]:
        """Report in plain JSON what became of every round, by which rule, and why the threshold is what it is."""
        await self.load()
        compactor = self.compactor
        last = await self._last_sent()
        async with compactor.lock.hold():  # a view that another thread works on may be in the middle of a change
            figures = SessionFigures(
                self.history.session_id,
                self.turn_count,
                compactor.compactions,
                compactor.tokens_saved,
                self.warnings.texts,
                self._cache_health.line,
            )
            exact = getattr(self.counter, "exact", False)
            history = self.history.snapshot()
            pins = frozenset(compactor.pins)
            return await in_thread(explain, last, history, figures, config=self.config, pins=pins, exact=exact)

    async def chapters(self) -> list[dict[str, Any]]:
        """Return the chapters of the last view, with ``mark``, ``to``, ``rounds``, ``tokens`` and ``text``."""
        await self.ready()
        last = await self._last_sent()
        async with self.compactor.lock.hold():
            return chapters_of(last.view.segments())

    @property
    def pool(self) -> ContextPool[Any]:
        """Items of the session by id; assign another one to replace it."""
        return self.items.pool

    @pool.setter
    def pool(self, pool: ContextPool[Any]) -> None:
        self.items.pool = pool
        self.host.offer("context.pool", pool)

    @property
    def queue(self) -> ContextQueue[Any]:
        """The newest items of the session; assign another one to replace it."""
        return self.items.queue

    @queue.setter
    def queue(self, queue: ContextQueue[Any]) -> None:
        self.items.queue = queue
        self.host.offer("context.queue", queue)

    async def recall_room(self, wanted: int) -> int:
        """Take room for recalled text, which the caller then brings into the conversation as a tool result.

        Between two compactions recalls get `recall_share` of the room above the target, all together. The text counts
        a line towards the next compaction, and it is the first to go there.

        Args:
            wanted: tokens.

        Returns:
            The tokens that the text may have, at most `wanted`; 0 when the room is used up.
        """
        await self.ready()
        last = await self._last_sent()
        left = recall_room(self.compactor.limits(last.limits.budget, last.key), self.config.recall_share)
        left -= last.view.recalled.tokens + self._recall_taken
        free = last.limits.capacity - last.counted - self._recall_taken
        granted = max(0, min(checked_count("wanted", wanted), left, free, last.view.output_limit - ONE_LINE))
        self._recall_taken += granted
        return granted

    async def cache_health(self) -> dict[str, Any]:
        """Report in plain JSON what the providers read from their caches in this process, and why it was not more."""
        return self._cache_health.as_json()

    @on_one_loop
    async def interrupt(self) -> dict[str, Any]:
        """Remove the unfinished current turn from the history. Earlier snapshots still show it."""
        await self.ready()
        taken = await self.history.interrupt()
        if taken:
            await self._save_edited()
        return {"interrupted": bool(taken), "removed": [entry.mark for entry in taken]}

    def snapshot(self) -> Snapshot:
        """Return the history as it is now. It never changes: messages read from it are copies.

        It is empty before the first call of another method. Of a resumed session it may hold the newest messages only:
        an access to the others raises `NotLoaded` until `load` was called.
        """
        return CopyingSnapshot(self.history.snapshot())

    @property
    def turn_count(self) -> int:
        """Number of turns so far; a human message and what follows it count as one."""
        return self.history.turn_count

    @on_one_loop
    async def pin(self, mark: str, pinned: bool = True) -> None:
        """Keep a message and its round verbatim in every view, or stop keeping it.

        Args:
            mark: of the message, e.g. ``m12``.
            pinned: false to unpin it.

        Raises:
            ConfigError: `pinned` is neither true nor false.
            PinRefused: there is no such message, or pins would outgrow their share (`pin_share`) of the budget.
        """
        await self.load()
        history = self.history.snapshot()
        try:
            entry = history.find(seq_of(mark))
        except ValueError as problem:
            raise PinRefused(str(problem)) from None
        if entry is None:
            raise PinRefused(f"{mark}: the history has no such message")
        if not checked_flag("pinned", pinned):
            self.compactor.pins.discard(entry.seq)
            await self._save()
            return
        async with self.compactor.lock.hold():  # or another task could pin between the check and its pin
            last = self.compactor.last_sent
            await in_thread(
                check_pin,
                entry,
                history,
                frozenset(self.compactor.pins),
                capacity=last.limits.capacity if last else self._last_asked()[0],
                units=last.limits.units if last else Units(),
                pin_share=self.config.pin_share,
            )
            self.compactor.pins.add(entry.seq)
        await self.compactor.show_verbatim((entry.seq,))
        await self._save()

    @on_one_loop
    async def undo(self, mark: str | None = None) -> dict[str, Any]:
        """Take the newest compaction back: what it folded is shown again where it fits below the trigger.

        What it only clipped, cleared or replaced stays so.

        Args:
            mark: of a message; only the chapter that holds it is taken back.

        Returns:
            ``undone`` and, if there is such a chapter, ``first`` and ``last`` (marks), ``shows``, what the next request
            is sent for it: ``originals``, ``digest`` or ``chapter``, and ``chapters``, the same for each of them. Where
            they differ, ``shows`` is that of a chapter whose originals do not fit.

        Raises:
            ValueError: `mark` is no mark.
        """
        seq = None if mark is None else seq_of(mark)
        await self.load()
        counter = await self.token_counter()
        last, compactor = self.compactor.last_sent, self.compactor
        async with compactor.lock.hold():
            views = [view for view in compactor.cache.views if view.checkpoint]
            view = last.view if last and last.view in views else views[-1] if views else None
            if view is None:
                return {"undone": False, "reason": "nothing is folded"}
            system = sum(shown.tokens for shown in last.system) if last else 0
            limit = last.limits.threshold if last else int(view.budget * self.config.compact_threshold)
            compactor.cache.note_edit()
            undone = await undo_compaction(view, self.history.snapshot(), seq, limit - system, counter)
        if not undone:
            none = "nothing is folded; what compactions clipped or replaced stays so"
            return {"undone": False, "reason": f"no chapter holds {mark}" if mark else none}
        report = undone_report(undone)
        first = first_changed(report)
        if self._extra and first is not None:  # another module's state may be about the chapters: it takes out what is
            self._extra = {**self._extra, UNDONE: min(first, self._extra.get(UNDONE, first))}
        await self._save()
        return report

    @on_one_loop
    async def compact_summary(self, call_id: str, summary: str) -> None:
        """Register the short form of a tool result, to be shown in place of a clipped one. `clear` drops it.

        A result that a view has shown already keeps its form there until the next compaction.

        Args:
            call_id: of the call. The short form is for its newest result; if there is none yet, for its next one.
        """
        summary = checked_text("summary", summary)
        if not checked_text("call_id", call_id):
            raise ConfigError("call_id", "must be the id of a call, got an empty text")
        await self.ready()
        await self.compactor.register_short_form(await self._newest_result(call_id), call_id, summary)
        await self._save()

    @on_one_loop
    async def forget(self, marks: Sequence[str] = (), *, containing: str = "", trace: bool = True) -> Erased:
        """Erase the content of messages from history, archive, search index and chapters, e.g. a pasted secret.

        The messages stay, with the text ``(erased)``. All views are rebuilt from what is left, so nothing that derives
        from the content is sent again. A host that sends one of the messages again cannot restore it; see
        docs/forgetting.md.

        Args:
            marks: a list of marks such as ``m12``, or one mark.
            containing: a text; every message that holds it is erased, too.
            trace: keep a hash of each content. It recognises a message that a host sends again without its timestamp.
                A short text can be guessed from its hash. False drops earlier hashes of these messages, too.

        Returns:
            The marks of the messages that are erased now; unknown marks are left out. Its `also_in` has the marks of
            messages that contain the words of one of `marks`, and are not erased.

        Raises:
            ValueError: `marks` is no list, or one of them is no mark.
            StoreError: the store refused; nothing was erased.
            NotErased: they read as erased, but a file still holds their content; the same call again finishes it.
        """
        seqs, trace = set(seqs_of(marks)), checked_flag("trace", trace)
        forms = forms_of(containing) if checked_text("containing", containing) else frozenset[str]()
        await self.ready()
        return await self._forget(seqs, forms, trace)

    async def recall(self, mark: str) -> dict[str, Any] | None:
        """Return the original of a message by its mark, e.g. ``m12``; None if there is none.

        What edits and interrupts took out is read from the archive. What `clear` took out is not recalled.
        """
        await self.ready()
        entry = await self.history.find(seq_of(mark))
        return copy_message(entry.message) if entry else None

    async def search(self, query: str, limit: int = 10) -> list[str]:
        """Return the marks of messages that match a query, best first."""
        await self.ready()
        return [f"m{seq}" for seq in await self._search.matching(query, limit)]

    @on_one_loop
    async def request_retention(
        self,
        *,
        retain_contents: list[str],
        provider: Any | None = None,
        token_budget: int | None = None,
        hard_fit: bool = False,
    ) -> list[dict[str, Any]]:
        """Return a view in which certain texts stay verbatim, for the kernel's newer orchestrators.

        Args:
            retain_contents: texts; of each, the newest user message equal to it stays.
            provider: as for `get_messages_for_request`.
            token_budget: as for `get_messages_for_request`.
            hard_fit: true after a provider refused a request. The view fits in any case.

        Raises:
            ValueError: a text is not in the history.
            ContextLengthError: the view cannot fit.
        """
        await self.ready()
        seqs = await self._retained(retain_contents)
        sent = await self._request(token_budget, provider, seqs)
        missing = [seq for seq in seqs if not sent.view.shows(seq)]
        if missing:
            await self.load()
            await self.compactor.show_verbatim(missing)
            await self._save()
            sent = await self._request(token_budget, provider, seqs)
        if not sent.is_valid_for(seqs):
            from amplifier_core.llm_errors import ContextLengthError

            raise ContextLengthError("the texts to retain do not fit the budget of this request")
        return self._outgoing(sent)

    @on_one_loop
    async def measured_request_view(
        self,
        *,
        provider: Any | None = None,
        retain_contents: Sequence[str] = (),
        count_view: CountView,
        fit_output: FitOutput | None = None,
    ) -> dict[str, Any]:
        """Return a view that its provider has counted, and a transaction that decides whether it is sent.

        The session changes when the transaction is committed, not before; see docs/reference.md.

        Args:
            provider: as for `get_messages_for_request`.
            retain_contents: as for `request_retention`.
            count_view: counts a view as part of the whole request.
            fit_output: asks for a shorter answer when the input alone cannot be made to fit.

        Raises:
            ValueError: a text to retain is not in the history.
            ContextLengthError: the view cannot be made to fit what the provider takes.
            ContextOverflow: under `strict`, when what must be kept does not fit the budget.
            TypeError: a callback returned something of another form.
        """
        return await self._measured_request(provider, retain_contents, count_view, fit_output)

    def foreground_usage(self) -> Callable[..., bool]:
        """Return a recorder for the usage of the loop's own requests, which side calls cannot be taken for.

        It is called as ``record(input_tokens=..., cache_write_tokens=0)`` before the answer is stored; None as
        `input_tokens` means that the request was refused. It returns false for figures that make no sense.
        """
        return self._usage_reports.own

    # -- what the kernel reports ------------------------------------------------------------------------------------

    def on_request(self) -> None:
        """Note that a provider was sent the view handed out last. Its answer is what the loop adds next."""
        self._usage_reports.sent()

    def on_failed_request(self) -> None:
        """Note that a provider sent no answer."""
        self._usage_reports.given_up()

    def on_response(self, response: Response) -> None:
        """Note a response that a provider reported; it may be the answer to the view handed out last."""
        self._usage_reports.record(response)

    async def on_turn_complete(self) -> None:
        """Apply the policy for a cancelled turn (`on_interrupt`) at the end of a turn."""
        before = self._cancellation_state()
        await self.history.on_turn_complete()
        if self._cancellation_state() != before:
            await self._save_edited()

    def on_context_length_error(self) -> None:
        """Make the next view smaller, because the provider refused a request as too long."""
        refused = self._usage_reports.request or self.compactor.last_sent
        if refused is not None:
            window = self.meter.refused(refused.counted, refused.key)
            log.info("session %s: a request was refused as too long; window now %d tokens", self.session_id, window)
