"""The context manager: the kernel's five methods, and what the people of this session can ask of it.

Each method is one thing that a session can do. lifecycle.py opens, saves and closes it, and kernel.py mounts it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Any

from .errors import ConfigError, NotLoaded, PinRefused
from .futures import in_thread
from .lifecycle import SessionLifecycle
from .messages.parsing import copy_message, text_of
from .messages.usage import Response
from .rendering.system_prompt import PromptFactory
from .stores import Searchable
from .transcript.redaction import forms_of, holds
from .transcript.transcript import CopyingSnapshot, Entry, Snapshot, seq_of, seqs_of
from .view import shared_cache
from .view.budget import model_of, name_of
from .view.explain import SessionFigures, explain
from .view.meter import Key, Units
from .view.pins import check_pin
from .view.sent_view import outgoing_messages

log = logging.getLogger(__name__)


class ContextManager(SessionLifecycle):
    """What the kernel and the people of one session can ask of its memory.

    The first call of any method opens the store and resumes what it holds.
    """

    # -- the kernel's protocol --------------------------------------------------------------------------------------

    async def add_message(self, message: dict[str, Any]) -> None:
        """Append a message to the history.

        Raises:
            InvalidMessage: it cannot be stored; the field is named, nothing was stored.
            StoreError: the store refused it; nothing was stored.
        """
        await self.ready()
        heard: Response | None = None
        asked: str | None = None
        if message.__class__ is dict and message.get("role") == "assistant":
            heard, asked = self._response_heard(), self._usage_reports.requested_at
        before = self._settled_state()
        entry = await self.history.add(message, requested=asked, reported=heard)
        if self._settled_state() != before:  # a cancelled turn was settled on the way
            await self._save()
        if entry is None:
            return
        self.compactor.short_forms.result_came(entry.seq, entry.answered_ids)
        if entry.role == "assistant":
            last = self.compactor.last_sent
            if heard is not None and heard.usage and last:
                self.meter.report(last.counted, heard.usage, last.key)
            self._usage_reports.end()

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        """The messages to send now: valid for every provider and within the budget.

        Args:
            token_budget: tokens the request may hold; by default the provider's window, else `max_tokens`.
            provider: the kernel's provider, asked for its window.

        Raises:
            ConfigError: the budget is not a whole number of at least 1 token.
            ContextOverflow: under `strict`, when what must be kept does not fit.
        """
        return await self._request(token_budget, provider, frozenset())

    async def get_messages(self) -> list[dict[str, Any]]:
        """The whole history as it was stored. The messages are the caller's to change."""
        await self.load()
        history = self.history.snapshot()
        messages: list[dict[str, Any]] = []
        for start in range(0, len(history), 1_000):
            messages.extend(copy_message(entry.message) for entry in history[start : start + 1_000])
            if start + 1_000 < len(history):
                await asyncio.sleep(0)
        return messages

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        """Make a list the history: an echo of it changes nothing, the rest is an edit.

        Raises:
            InvalidMessage: a message of the list cannot be stored; then nothing was changed.
            StoreError: the store refused the change.
        """
        await self.ready()
        if await self.history.set(messages):
            await self._save()

    async def clear(self) -> None:
        """Forget the history, its checkpoints, pins and registered summaries."""
        await self.ready()
        await self.history.clear()
        self.compactor.reset()
        self._usage_reports.end()
        await self._save()

    async def set_system_prompt_factory(self, factory: PromptFactory | None) -> None:
        """Let an async callable give the system prompt on every request, in place of stored system messages.

        Those a hook brought (``metadata.source`` is ``hook``) stay.
        """
        self._prompt.factory = factory

    # -- what people can ask of it ----------------------------------------------------------------------------------

    async def compact(self, focus: str | None = None) -> dict[str, Any]:
        """Compact now.

        Args:
            focus: what a summary should dwell on; kept for later compactions too.

        Returns:
            ``compacted`` and, if so, the figures of ``context:post_compact``.
        """
        if focus is not None and not isinstance(focus, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("focus", f"must be text, got {type(focus).__name__}")
        await self.ready()
        self.compactor.focus = focus or self.compactor.focus
        last = self.compactor.last_sent
        counter = await self.token_counter()
        key = last.key if last else ("", "")
        limits = self.compactor.limits(last.limits.budget if last else self._budget().tokens, key)
        system = await self._system(counter)
        report = await self.compactor.compact_now(focus, limits, sum(shown.tokens for shown in system), counter)
        await self._save(compactions_only=True)
        if report is None:
            return {"compacted": False, "reason": "nothing could be freed, or a handler postponed it"}
        return {"compacted": True, **report}

    async def explain(self) -> dict[str, Any]:
        """Where every round stands, by which rule, and why the trigger stands where it stands. Plain JSON."""
        await self.load()
        compactor = self.compactor
        if compactor.last_sent is None:  # nothing was handed out yet: look, without compacting for it
            counter = await self.token_counter()
            budget = self._budget().tokens
            await compactor.request(budget, await self._system(counter), ("", ""), counter, compact=False)
        async with compactor.lock:  # a view that another thread works on may be half way through a change
            if compactor.last_sent is None:
                raise ValueError("no view was handed out yet")
            figures = SessionFigures(
                self.history.session_id,
                self.turn_count,
                compactor.compactions,
                compactor.tokens_saved,
                self.warnings.texts,
            )
            exact = getattr(self.counter, "exact", False)
            history = self.history.snapshot()
            return explain(compactor.last_sent, history, figures, config=self.config, pins=compactor.pins, exact=exact)

    async def interrupt(self) -> dict[str, Any]:
        """Take the unfinished current turn out of the history. Snapshots taken before still show it."""
        await self.ready()
        taken = await self.history.interrupt()
        if taken:
            await self._save()
        return {"interrupted": bool(taken), "removed": [entry.mark for entry in taken]}

    def snapshot(self) -> Snapshot:
        """The history as it is now; it never changes, whatever the caller does to the messages it reads from it.

        Before the first call of another method it is empty. Of a resumed session it may hold the newest messages only:
        reaching for the others raises `NotLoaded` until somebody called `load`.
        """
        return CopyingSnapshot(self.history.snapshot())

    @property
    def turn_count(self) -> int:
        """Exchanges so far; a human message and what follows it count as one."""
        return self.history.turn_count

    async def pin(self, mark: str, pinned: bool = True) -> None:
        """Keep a message (and its round) verbatim in every view, or let go of it again.

        Args:
            mark: names it, e.g. ``m12``.
            pinned: false unpins.

        Raises:
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
        if not pinned:
            self.compactor.pins.discard(entry.seq)
            await self._save()
            return
        last = self.compactor.last_sent
        check_pin(
            entry,
            history,
            self.compactor.pins,
            capacity=last.limits.capacity if last else self._budget().tokens,
            units=last.limits.units if last else Units(),
            pin_share=self.config.pin_share,
        )
        self.compactor.pins.add(entry.seq)
        await self.compactor.show_verbatim((entry.seq,))
        await self._save()

    async def compact_summary(self, call_id: str, summary: str) -> None:
        """Register the short form of a tool result, used in place of a generic clip. `clear` drops it.

        A result that a view has shown already keeps its form there until the next compaction.

        Args:
            call_id: the call whose newest result it stands for; if there is none yet, its next one.
            summary: the short form.
        """
        if not isinstance(call_id, str) or not call_id or not isinstance(summary, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("compact_summary", "needs a call id and a text")
        await self.ready()
        self.compactor.short_forms.register(await self._newest_result(call_id), call_id, summary)
        await self._save()

    async def _newest_result(self, call_id: str) -> int | None:
        """Seq of the newest result of a call; None while it is still to come."""
        history = self.history.snapshot()
        for index in range(len(history) - 1, -1, -1):
            if index in history.gap:
                await self.load()
                history = self.history.snapshot()
            if call_id in history[index].answered_ids:
                return history[index].seq
            if call_id in history[index].call_ids:
                break  # the call is there, its result is still to come
        return None

    async def forget(self, marks: Sequence[str] = (), *, containing: str = "", trace: bool = True) -> list[str]:
        """Erase what messages say from everything: history, archive, search index, chapters. For a pasted secret.

        Their places stay, with the text ``(erased)``. All views are made anew from what is left, so nothing derived
        from them is sent again. A host that still has one of them cannot bring it back; see docs/forgetting.md.

        Args:
            marks: a list of marks such as ``m12``, or one mark.
            containing: a text; every message that holds it is erased, too.
            trace: keep a hash of what each said, by which its echo is recognised where a host strips timestamps. A
                short text can be guessed from it. Without, the hashes of these messages go, kept ones included.

        Returns:
            The marks of what is erased now; those the session does not know are left out.

        Raises:
            ValueError: this is no list of marks, or one is no mark.
            StoreError: the store refused; nothing was erased.
            NotErased: they read as erased, but a file still holds what they said; the same call again finishes it.
        """
        seqs = set(seqs_of(marks))
        forms = forms_of(containing) if containing else frozenset[str]()
        await self.ready()
        return await self.history.shielded(self._forget(seqs, forms, trace))

    async def _forget(self, seqs: Collection[int], forms: Collection[str], trace: bool) -> list[str]:
        try:
            left, problem = await self.history.redact(
                lambda entry: entry.seq in seqs or (bool(forms) and holds(entry.message, forms)), trace=trace
            )
        finally:  # a store may have replaced them, and the answer was lost
            self.compactor.drop_views()
            self.compactor.focus = None
        gone = {call for entry in left for call in (*entry.call_ids, *entry.answered_ids)}
        self.compactor.short_forms.drop(lambda call, text: call in gone or holds(text, forms))
        shared_cache.clear()
        await self._save()
        if problem is not None:
            raise problem
        return [entry.mark for entry in left]

    async def recall(self, mark: str) -> dict[str, Any] | None:
        """The original of a message by its mark, ``m12``; None when the history has none."""
        await self.ready()
        entry = await self.history.find(seq_of(mark))
        return copy_message(entry.message) if entry else None

    async def search(self, query: str, limit: int = 10) -> list[str]:
        """Marks of messages that match words, best first."""
        await self.ready()
        if isinstance(self.store, Searchable) and self.config.search_index == "scan":
            return [f"m{seq}" for seq in await self.store.search(self.history.session_id, query, limit)]
        await self.load()
        found = await in_thread(self._index.search, self.history.snapshot(), query, limit)
        return [entry.mark for entry in found]

    async def request_retention(
        self,
        *,
        retain_contents: list[str],
        provider: Any | None = None,
        token_budget: int | None = None,
        hard_fit: bool = False,
    ) -> list[dict[str, Any]]:
        """A view in which certain texts stay verbatim (the kernel's newer orchestrators ask for it).

        Args:
            retain_contents: texts; of each, the newest user message equal to it stays.
            provider: as for `get_messages_for_request`.
            token_budget: as for `get_messages_for_request`.
            hard_fit: the view must fit this very budget (after a provider refused a request).

        Raises:
            ValueError: a text is not in the history.
            ContextLengthError: the view cannot fit.
        """
        await self.ready()
        history = self.history.snapshot()
        try:
            seqs = frozenset(_newest_user_message(history, text).seq for text in retain_contents)
        except NotLoaded:
            await self.load()
            history = self.history.snapshot()
        seqs = frozenset(_newest_user_message(history, text).seq for text in retain_contents)
        messages = await self._request(token_budget, provider, seqs)
        last = self.compactor.last_sent
        missing = [seq for seq in seqs if last is None or not last.view.shows(seq)]
        if missing:
            await self.load()
            await self.compactor.show_verbatim(missing)
            await self._save()
            messages = await self._request(token_budget, provider, seqs)
            last = self.compactor.last_sent
        if last is None or not last.is_valid_for(seqs):
            from amplifier_core.llm_errors import ContextLengthError

            raise ContextLengthError("the texts to retain do not fit the budget of this request")
        return messages

    # -- what the kernel reports ------------------------------------------------------------------------------------

    def on_response(self, response: Response) -> None:
        """A provider reported a response. Taken for the next assistant message, if a view was handed out for it."""
        self._usage_reports.record(response)

    async def on_turn_complete(self) -> None:
        """The turn is over: do to a cancelled one what the config says."""
        before = self._settled_state()
        await self.history.on_turn_complete()
        if self._settled_state() != before:
            await self._save()

    def on_context_length_error(self) -> None:
        """The provider answered that the request was too long: the next view is smaller."""
        last = self.compactor.last_sent
        if last is not None:
            window = self.meter.refused(last.counted, last.key)
            log.info("session %s: a request was refused as too long; window now %d tokens", self.session_id, window)

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _request(
        self, token_budget: int | None, provider: object, required: frozenset[int]
    ) -> list[dict[str, Any]]:
        await self.ready()
        budget = self._budget(token_budget, provider)
        key: Key = (name_of(provider), model_of(provider) or "")
        counter = await self.token_counter()
        system = await self._system(counter)
        try:
            sent = await self.compactor.request(budget.tokens, system, key, counter, required=required)
        finally:  # even where the view does not fit, or a handler was cancelled
            await self._save(compactions_only=True)
        self._usage_reports.begin(self._clock())
        self.history.on_request()
        return outgoing_messages(sent, merge=self.config.merge_consecutive)

    def _settled_state(self) -> tuple[frozenset[int], int]:
        return self.history.interrupted, self.history.revision

    def _response_heard(self) -> Response | None:
        last = self.compactor.last_sent
        if last is None or self._usage_reports.requested_at is None:
            return None
        return self._usage_reports.match(last.counted, self.meter.estimate(last.counted, last.key))


def _newest_user_message(history: Snapshot, text: str) -> Entry:
    for index in range(len(history) - 1, -1, -1):
        entry = history[index]
        if entry.role == "user" and text_of(entry.message.get("content")) == text:
            return entry
    raise ValueError("a text to retain is not in the history")
