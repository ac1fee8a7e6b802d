"""The context manager: the kernel's five methods, and what else a host can ask of a session.

Each method is one thing that a session can do; `session/` has the parts that do it: `session.py` opens, saves and
closes the session, `requests.py` takes its views, `steering.py` changes them by hand. `kernel.py` mounts the manager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

from .arguments import checked_count, checked_flag, checked_text
from .config import Config
from .items import ContextPool, ContextQueue
from .locks import on_one_loop
from .messages.parsing import copy_message
from .messages.timestamps import utc_now
from .messages.tokens import TokenCounter
from .messages.usage import Response
from .plugins import installed_plugins
from .session.forgetting import Erased, forget
from .session.requests import Requests
from .session.search import SessionSearch
from .session.session import Session, SessionOptions
from .session.steering import Steering
from .session.system_prompt import PromptFactory
from .transcript.entry import seq_of, seqs_of
from .transcript.redaction import forms_of
from .transcript.transcript import CopyingSnapshot, Snapshot
from .view.measured_view import CountView, FitOutput
from .view.window_usage import text_of_usage


class ContextManager:
    """The memory of one session: what the kernel and a host can ask of it.

    The first call of any method opens the store and resumes what it holds. Adding and reading are safe from any thread
    and event loop, also at the same time. A request or an edit raises `ContextError` while another live loop makes one.

    Args:
        options: see `SessionOptions`.

    Raises:
        ConfigError: the config or an option names what there is not.
    """

    def __init__(self, config: Config | None = None, **options: Unpack[SessionOptions]) -> None:
        config = config or Config.model_validate({})
        plugins, clock = options.get("plugins") or installed_plugins(), options.get("clock", utc_now)
        started = options.get("on_new_session")
        self.session = session = Session(config, plugins, clock, partial(started, self) if started else None, options)
        self.config, self.store, self.session_id = config, session.store, session.history.session_id
        self.history, self.compactor, self.warnings = session.history, session.compactor, session.warnings
        self.requests = Requests(session, clock)
        self._search = SessionSearch(session, plugins)
        self._steering = Steering(session, self.requests)

    async def ready(self) -> None:
        """Open the store and resume what it holds, once; every method does this first.

        Raises:
            SessionInUse: another writer has the session.
            StoreError: the store cannot be opened or read; the next call tries again.
        """
        await self.session.ready()

    async def load(self) -> None:
        """Bring the whole history of a resumed session into memory."""
        await self.session.load()

    async def close(self) -> None:
        """Save what a resumed session continues from, and close the store."""
        await self.session.close()

    async def token_counter(self) -> TokenCounter:
        """Return the token counter; load it first if need be."""
        return await self.session.counter()

    # -- the kernel's protocol --------------------------------------------------------------------------------------

    async def add_message(self, message: dict[str, Any]) -> None:
        """Append a message to the history.

        Raises:
            InvalidMessage: it cannot be stored; the field is named, nothing was stored.
            StoreError: the store refused it; nothing was stored.
        """
        session = self.session
        await session.ready()
        # A message may say what became of them: they must outlive this process with it.
        if not session.items.is_saved:
            await session.save()
        response: Response | None = None
        requested_at: str | None = None
        has_listed = False
        if message.__class__ is dict and message.get("role") == "assistant":
            response, requested_at = await self.requests.response_to(message), self.requests.reports.requested_at
            has_listed = await self.requests.record_items()
        before = self._cancellation_state()
        entry = await self.history.add(message, requested=requested_at, reported=response)
        if self._cancellation_state() != before:  # adding applied the policy for a cancelled turn
            await session.save_edited()
        elif has_listed:
            await session.save()
        if entry is None:
            return
        self.compactor.directions.short_forms.result_came(entry.seq, entry.answered_ids)
        if entry.role == "assistant":
            self.requests.answered(response)
        else:
            self.requests.reports.given_up()

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
        return self.requests.outgoing(await self.requests.view(token_budget, provider))

    async def get_messages(self) -> list[dict[str, Any]]:
        """Return the whole history as it was stored, in copies."""
        return await self.session.messages()

    @on_one_loop
    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        """Make a list the history: what is stored already stays as it is, the rest is an edit.

        The list is the whole history. A view that this session handed out is taken for it: what the view did not show
        stays. Of any other list, what it lacks goes to the archive.

        Raises:
            InvalidMessage: a message of the list cannot be stored; then nothing was changed.
            StoreError: the store refused the change.
        """
        await self.session.ready()
        await self.session.counter()
        before, revision = self.history.last_seq, self.history.revision
        if await self.history.set(messages, self.requests.handed_views):
            new = [entry.message for entry in self.history.snapshot() if entry.seq > before]
            await self.requests.settle_items()  # the host may hand in the view that it was sent, with its list
            if self.history.revision != revision:
                self.requests.warn_of_chapters(new)
            await self.session.save_edited()

    @on_one_loop
    async def clear(self) -> None:
        """Drop the history, its checkpoints, pins and registered short forms. Nothing of it is recalled any more."""
        await self.session.ready()
        await self.history.clear()
        self.compactor.drop_state()
        self.warnings.reset()
        self.requests.cache_health.clear()
        self.session.items.clear()
        self.requests.reports.clear()
        await self.session.save()

    @property
    def _system_prompt_factory(self) -> PromptFactory | None:
        """The factory in use, under the name at which hooks look for it to put theirs around it (docs/kernel.md)."""
        return self.requests.prompt.factory

    async def set_system_prompt_factory(self, factory: PromptFactory | None) -> None:
        """Take the system prompt of every request from an async callable, in place of stored system messages.

        Messages that a hook added (``metadata.source`` is ``hook``) stay.
        """
        self.requests.prompt.factory = factory

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
        return await self._steering.compact(focus, first, last)

    async def preview(self, first: str | None = None, last: str | None = None) -> dict[str, Any]:
        """Return what `compact` would do now between the same marks. No handler is asked, and nothing changes.

        Returns:
            ``would_compact`` and, if so, the figures of ``context:post_compact`` and ``rounds``: dicts with ``mark``,
            ``to``, ``state`` and ``tokens`` of what would be shown otherwise than now.
        """
        return await self._steering.preview(first, last)

    async def compactions(self) -> list[dict[str, Any]]:
        """Return the last 100 accepted compactions, the newest last."""
        await self.session.ready()
        return self.compactor.log.rows

    async def usage(self) -> dict[str, Any]:
        """Return how full the window of the last request is, by kind, and what is left until the next compaction.

        Tokens are the provider's. Costs are in plain input tokens. Before the first request it describes what a request
        of the configured budget would show.
        """
        return await self.requests.usage()

    async def describe(self, width: int = 80) -> str:
        """Return the usage as a screen of text, in so many columns, such as a host prints for `/context`."""
        return text_of_usage(await self.usage(), checked_count("width", width))

    async def explain(self) -> dict[str, Any]:
        """Report in plain JSON what became of every round, by which rule, and why the threshold is what it is."""
        return await self.requests.explain()

    async def chapters(self) -> list[dict[str, Any]]:
        """Return the chapters of the last view, with ``mark``, ``to``, ``rounds``, ``tokens`` and ``text``."""
        return await self.requests.chapters()

    @property
    def pool(self) -> ContextPool[Any]:
        """Items of the session by id; assign another one to replace it."""
        return self.session.items.pool

    @pool.setter
    def pool(self, pool: ContextPool[Any]) -> None:
        self.session.items.pool = pool
        self.requests.host.offer("context.pool", pool)

    @property
    def queue(self) -> ContextQueue[Any]:
        """The newest items of the session; assign another one to replace it."""
        return self.session.items.queue

    @queue.setter
    def queue(self, queue: ContextQueue[Any]) -> None:
        self.session.items.queue = queue
        self.requests.host.offer("context.queue", queue)

    async def recall_room(self, wanted: int) -> int:
        """Take room for recalled text, which the caller then brings into the conversation as a tool result.

        Between two compactions recalls get `recall_share` of the room above the target, all together. The text counts
        a line towards the next compaction, and it is the first to go there.

        Args:
            wanted: tokens.

        Returns:
            The tokens that the text may have, at most `wanted`; 0 when the room is used up.
        """
        return await self.requests.recall_room(wanted)

    async def cache_health(self) -> dict[str, Any]:
        """Report in plain JSON what the providers read from their caches in this process, and why it was not more."""
        return self.requests.cache_health.as_json()

    @on_one_loop
    async def interrupt(self) -> dict[str, Any]:
        """Remove the unfinished current turn from the history. Earlier snapshots still show it."""
        await self.session.ready()
        taken = await self.history.interrupt()
        if taken:
            await self.session.save_edited()
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
        """Keep a message and its round verbatim in every view, or stop keeping it (`pinned` is false).

        Raises:
            ConfigError: `pinned` is neither true nor false.
            PinRefused: there is no such message, or pins would outgrow their share (`pin_share`) of the budget.
        """
        await self._steering.pin(mark, pinned)

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
        return await self._steering.undo(mark)

    @on_one_loop
    async def compact_summary(self, call_id: str, summary: str) -> None:
        """Register the short form of a tool result, to be shown in place of a clipped one. `clear` drops it.

        A result that a view has shown already keeps its form there until the next compaction.

        Args:
            call_id: of the call. The short form is for its newest result; if there is none yet, for its next one.
        """
        await self._steering.register_short_form(call_id, summary)

    @on_one_loop
    async def forget(self, marks: Sequence[str] = (), *, containing: str = "", trace: bool = True) -> Erased:
        """Erase the content of messages from history, archive, search index and chapters, e.g. a pasted secret.

        The messages stay, with the text ``(erased)``. All views are rebuilt from what is left, so nothing that derives
        from the content is sent again. A host that sends one of the messages again cannot restore it; see
        docs/stores.md.

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
        await self.session.ready()
        return await forget(self.session, self._search, seqs, forms, trace=trace)

    async def recall(self, mark: str) -> dict[str, Any] | None:
        """Return the original of a message by its mark, e.g. ``m12``; None if there is none.

        What edits and interrupts took out is read from the archive. What `clear` took out is not recalled.
        """
        await self.session.ready()
        entry = await self.history.find(seq_of(mark))
        return copy_message(entry.message) if entry else None

    async def search(self, query: str, limit: int = 10) -> list[str]:
        """Return the marks of messages that match a query, best first."""
        await self.session.ready()
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
            hard_fit: true after a provider refused a request. The view fits in any case.

        Raises:
            ValueError: a text is not in the history.
            ContextLengthError: the view cannot fit.
        """
        sent = await self.requests.retaining(retain_contents, token_budget, provider)
        if sent is None:
            from amplifier_core.llm_errors import ContextLengthError

            raise ContextLengthError("the texts to retain do not fit the budget of this request")
        return self.requests.outgoing(sent)

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
            count_view: counts a view as part of the whole request.
            fit_output: asks for a shorter answer when the input alone cannot be made to fit.

        Raises:
            ValueError: a text to retain is not in the history.
            ContextLengthError: the view cannot be made to fit what the provider takes.
            ContextOverflow: under `strict`, when what must be kept does not fit the budget.
            TypeError: a callback returned something of another form.
        """
        return await self.requests.measured(provider, retain_contents, count_view, fit_output)

    def foreground_usage(self) -> Callable[..., bool]:
        """Return a recorder for the usage of the loop's own requests, which side calls cannot be taken for.

        It is called as ``record(input_tokens=..., cache_write_tokens=0)`` before the answer is stored; None as
        `input_tokens` means that the request was refused. It returns false for figures that make no sense.
        """
        return self.requests.reports.own

    # -- what the kernel reports ------------------------------------------------------------------------------------

    def on_request(self) -> None:
        """A provider was sent the view handed out last. Its answer is what the loop adds next."""
        self.requests.reports.sent()

    def on_failed_request(self) -> None:
        """A provider sent no answer."""
        self.requests.reports.given_up()

    def on_response(self, response: Response) -> None:
        """A provider reported a response, which may be the answer to the view handed out last."""
        self.requests.reports.record(response)

    async def on_turn_complete(self) -> None:
        """Apply the policy for a cancelled turn (`on_interrupt`) at the end of a turn."""
        before = self._cancellation_state()
        await self.history.on_turn_complete()
        if self._cancellation_state() != before:
            await self.session.save_edited()

    def on_context_length_error(self) -> None:
        """The provider refused a request as too long: the next view is smaller."""
        self.requests.refused_as_too_long()

    def _cancellation_state(self) -> tuple[frozenset[int], int]:
        return self.history.interrupted, self.history.revision
