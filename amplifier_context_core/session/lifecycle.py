"""The life of a session: its parts, opened and resumed on first use, saved as it goes, and closed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Self

from ..compaction.ladder import build_ladder
from ..compaction.strategies import Strategy
from ..config import Config
from ..economics.budget import Budget, budget_for, model_of, name_of, prices_of
from ..economics.meter import Key, Meter
from ..errors import StoreError
from ..events import Hooks
from ..futures import LoopTurns
from ..history.history import History
from ..items import ContextPool, ContextQueue
from ..locks import CrossLoopLock, OneLoop
from ..messages.parsing import SYSTEM_ROLES, Message, copy_message
from ..messages.timestamps import utc_now, with_timestamp
from ..messages.tokens import TokenCounter, guarded, load_counter, start_loading
from ..outgoing.prefix import RequestPrefix, tools_of
from ..plugins import Observers, Plugins, installed_plugins
from ..rendering.system_prompt import SystemPrompt
from ..stores import MemoryStore, Store
from ..view.cache_health import CacheHealth
from ..view.checkpoint_maker import Carry
from ..view.compactor import Compactor
from ..view.resume import collect_state, restore_state, resume, save_state
from ..view.session_state import SavedItems
from ..view.session_warnings import SessionWarnings
from ..view.usage_reports import UsageReports
from ..view.view_request import ViewRequest
from .extensions import named_counter
from .host import Host
from .host_checkpoint import HostCheckpoint
from .items import SessionItems
from .search import SessionSearch

log = logging.getLogger(__name__)


_MAX_WAIT = 64  # requests between two attempts to save what the store refuses: its state may be large


class SessionLifecycle:
    """The parts of one session: a history (what happened), views of it (what the model is sent), a meter (their cost).

    Args:
        hooks: the kernel's hook registry, for events; may be None.
        store: where history is kept; in memory when not given.
        counter: text to tokens; by default what `config.token_counter` names.
        ladder: strategies in order; by default what `config.ladder` names.
        plugins: plug-ins to use; by default those of installed packages.
        clock: gives the time as ISO 8601 text, UTC.
        add_timestamp: puts the time on a message that has none.
        on_new_session: awaited once, at the first access to a session without a history.
        pool: items of the session by id; an empty one when not given.
        queue: newest items of the session; an empty one when not given.
        carry: puts a provider's own compaction beside the chapters of a new checkpoint; nothing does when not given.
        prepare: reads what strategies need, before they run in a worker thread.

    Attributes:
        host: what runs the session; one that offers nothing until the session is mounted.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        session_id: str = "session",
        hooks: Hooks | None = None,
        store: Store | None = None,
        counter: TokenCounter | None = None,
        ladder: Sequence[Strategy] | None = None,
        plugins: Plugins | None = None,
        clock: Callable[[], str] = utc_now,
        add_timestamp: Callable[[Message, str], Message] = with_timestamp,
        on_new_session: Callable[[Self], Awaitable[None]] | None = None,
        pool: ContextPool[Any] | None = None,
        queue: ContextQueue[Any] | None = None,
        carry: Carry | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.config = config or Config.model_validate({})
        self.session_id = session_id
        self.store = store or MemoryStore()
        self.items = SessionItems(self.config, pool, queue)
        self.meter = Meter(learn=self.config.token_meter != "estimate")
        plugins = plugins or installed_plugins()
        self.warnings = SessionWarnings(session_id, hooks)
        observers = Observers(plugins, self.warnings.fault)
        named = counter or named_counter(self.config, plugins)
        self._counter = named and guarded(named, self.warnings.fault)
        self._observers = observers
        self.history = History(
            session_id,
            self.store,
            self.token_counter,
            observers,
            on_interrupt=self.config.on_interrupt,
            on_conflict=self.config.on_conflict,
            notify=self.warnings.note,
            clock=clock,
            add_timestamp=add_timestamp,
        )
        self.host = Host()
        self._search = SessionSearch(self.config, plugins, self.store, self.history, self.load, self.warnings.fault)
        steps = list(ladder) if ladder is not None else build_ladder(self.config, plugins)
        self.compactor = Compactor(
            self.history, self.config, steps, self.meter, observers, hooks, self.warnings, carry, prepare
        )
        self.host_checkpoint = HostCheckpoint(self.history, self.compactor)
        self._resumed = False
        self._is_new = False  # the store had no history of it when it was opened
        self.one_loop = OneLoop()  # makes requests and edits
        self._resuming = CrossLoopLock()
        self._saving = CrossLoopLock()
        self._saved_changes = 0
        self._refusals = 0  # saves that the store refused, since the last that it took
        self._requests_since_refusal = 0
        self._on_new_session = on_new_session
        self._clock = clock
        self._prompt = SystemPrompt()
        self._usage_reports = UsageReports()
        self._cache_health = CacheHealth()
        self._capped_logged = False
        self._extra: dict[str, Any] = {}
        self._extra_revision = 0
        self._recall_taken = 0  # tokens granted to recalls since the last request

    async def load(self) -> None:
        """Bring the whole history of a resumed session into memory."""
        await self.ready()
        await self.history.load()

    async def _messages(self) -> list[dict[str, Any]]:
        """Return the whole history as it was stored, in copies."""
        await self.load()
        history = self.history.snapshot()
        messages: list[dict[str, Any]] = []
        turns = LoopTurns()
        for entry in history:
            await turns.give()
            messages.append(copy_message(entry.message))
        return messages

    async def ready(self) -> None:
        """Open the store and resume what it holds, once; every method does this first.

        Raises:
            SessionInUse: another writer has the session.
            StoreError: the store cannot be opened or read; the next call tries again.
        """
        if self._resumed:
            return
        async with self._resuming.hold():
            if not self._resumed:
                await self._resume()
                self._resumed = True

    async def close(self) -> None:
        """Save what a resumed session continues from, and close the store."""
        try:
            if self._resumed:
                await self.history.finish()
                await self._save()
        finally:
            self.items.withdraw()
            self._resumed = False  # the next call resumes again: another writer may have had the session meanwhile
            await self.store.close()

    @property
    def counter(self) -> TokenCounter | None:
        """The token counter; None while it is not loaded."""
        return self._counter

    async def token_counter(self) -> TokenCounter:
        """Return the token counter; load it first if need be."""
        if self._counter is None:
            self._counter = await load_counter(self.config.token_counter)
        return self._counter

    def start_loading_counter(self) -> None:
        """Load the vocabulary in a thread, if this needs no download, so that the first count does not wait for it."""
        if self._counter is None:
            start_loading(self.config.token_counter)

    async def _resume(self) -> None:
        async with self.compactor.lock.hold():  # a request on its way would fill the cache with views of before
            self._is_new = await self._continue()
        if self._is_new and self._on_new_session:
            await self._on_new_session(self)

    async def on_session_resumed(self) -> None:
        """Warn if a host resumes a session of which nothing is known: a wrong id or store looks like a lost history."""
        await self.ready()
        if self._is_new and all(entry.role in SYSTEM_ROLES for entry in self.history.snapshot()):
            self.warnings.note(
                "resume",
                "its host resumes it, but no history of this id was found: it begins empty; check id and store",
            )

    async def _continue(self) -> bool:
        """Continue from what the store has; return True if it has no history."""
        self.compactor.drop_state()  # another program may have erased what it quotes
        resumed = await resume(self.store, self.history, self.compactor.cache, self.token_counter)
        for problem in resumed.problems:
            self.warnings.note("repair", problem)
        if resumed.state:
            restore_state(resumed.state, self.history, self.compactor, self.meter, self.warnings)
            self._restore_extra(resumed.state.extra)
        self._saved_changes = self.compactor.changes
        self.compactor.short_forms.shown(
            self.history.last_seq
        )  # as far as is known: an earlier process may have sent it
        self.items.restore((resumed.state.items or SavedItems()) if resumed.state else None)
        return resumed.is_new

    async def _save_edited(self) -> None:
        """Save after messages may have been taken out of the history."""
        await self.compactor.show_newest_human()  # now, not with the next request, which may be taken back
        await self._save()

    async def _save(self, *, changes_only: bool = False) -> None:
        """Save what a resumed session continues from; nothing while it is closed: another writer may have it.

        Args:
            changes_only: save only if a view was changed since, or to try again what the store refused: with
                the next request, then after twice as many each time.
        """
        if changes_only and not self._is_save_due():
            return
        counter = await self.token_counter()
        async with self._saving.hold():  # or an older state could be written over a newer one
            if not self._resumed:
                return
            changes = self.compactor.changes
            if self.history.last_seq and (self._is_save_due() or not changes_only):
                state = collect_state(
                    self.history, self.compactor, self.meter, self.warnings, counter, self._extra_state()
                )
                state = replace(state, items=self.items.saved())
                self._note_saved(await save_state(self.store, self.history.session_id, state))
            self._saved_changes = changes

    def _note_saved(self, problem: StoreError | None) -> None:
        """Note whether the store took the state, or why not. The first refusal of several is logged."""
        if problem is None:
            self._refusals = 0
            return
        self._refusals += 1
        self._requests_since_refusal = 0
        level = logging.WARNING if self._refusals == 1 else logging.DEBUG
        text = "session %s: its checkpoint was not saved, and is saved with the next: %s"
        log.log(level, text, self.history.session_id, problem)

    def _is_save_due(self) -> bool:
        if self.compactor.changes != self._saved_changes:
            return True
        return bool(self._refusals) and self._requests_since_refusal >= min(2 ** (self._refusals - 1), _MAX_WAIT)

    def _extra_state(self) -> dict[str, Any]:
        """Return what modules keep in the session state, each by its own name: JSON.

        By default what was there when the session was resumed, until the history is changed other than at its end: it
        may be about what was edited or erased.
        """
        return self._extra if self.history.revision == self._extra_revision else {}

    def _restore_extra(self, extra: dict[str, Any]) -> None:
        """Continue from what `_extra_state` returned when the session was saved; it may be of another version."""
        self._extra, self._extra_revision = extra, self.history.revision

    def _budget(self, token_budget: int | None = None, provider: object = None) -> Budget:
        budget = budget_for(self.config, token_budget, provider)
        if (prices := prices_of(provider)) is not None:
            self.meter.note_prices((name_of(provider), model_of(provider) or ""), prices)
        if budget.capped_from and not self._capped_logged:
            self._capped_logged = True
            log.info("max_tokens %d caps the larger budget of %d tokens", budget.tokens, budget.capped_from)
        return budget

    async def _view_request(
        self, budget: int, key: Key, counter: TokenCounter, required: frozenset[int] = frozenset()
    ) -> ViewRequest:
        """Return a request for a view."""
        limits = self.compactor.limits(budget, key)
        system = await self._prompt.messages(self.history.snapshot(), counter)
        prefix = RequestPrefix.of(key, tools_of(self.host.tools()), system)
        return ViewRequest(limits, prefix, tuple(system), counter, required)
