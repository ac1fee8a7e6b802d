"""One session: its parts, opened and resumed on first use, saved as it goes, and closed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypedDict, TypeVar

from ..compaction.ladder import build_ladder
from ..compaction.strategies import Strategy
from ..config import Config
from ..economics.meter import Meter
from ..errors import StoreError
from ..events import Hooks
from ..futures import LoopTurns
from ..history.history import History
from ..items import ContextPool, ContextQueue
from ..locks import CrossLoopLock, OneLoop
from ..messages.parsing import SYSTEM_ROLES, Message, copy_message
from ..messages.timestamps import with_timestamp
from ..messages.tokens import TokenCounter
from ..plugins import Observers, Plugins
from ..stores import MemoryStore, Store
from ..view.checkpoint_maker import Carry
from ..view.compactor import Compactor
from ..view.resume import collect_state, restore_state, resume, save_state
from ..view.session_state import SavedItems, SessionState
from ..view.session_warnings import SessionWarnings
from .companion import SessionCompanion
from .counter import SessionCounter
from .items import SessionItems

log = logging.getLogger(__name__)

T = TypeVar("T")
_MAX_WAIT = 64  # requests; upper limit of the back-off between attempts to save the session state


class SessionOptions(TypedDict, total=False):
    """Keyword arguments of a `ContextManager`; all may be left out."""

    session_id: str  # by which the store knows the session; ``session`` when not given
    hooks: Hooks | None
    store: Store | None  # in memory when not given
    counter: TokenCounter | None  # by default what `Config.token_counter` names
    ladder: Sequence[Strategy] | None  # by default what `Config.ladder` names
    plugins: Plugins | None  # by default those of installed packages
    clock: Callable[[], str]  # ISO 8601, UTC
    add_timestamp: Callable[[Message, str], Message]  # puts the time on a message that has none
    # Awaited once with the manager, at the first access to a session without a history.
    on_new_session: Callable[[Any], Awaitable[None]] | None
    pool: ContextPool[Any] | None
    queue: ContextQueue[Any] | None
    # Puts a provider's own compaction beside the chapters of a new checkpoint; nothing does when not given.
    carry: Carry | None
    prepare: Callable[[], Awaitable[None]] | None  # reads what strategies need, before they run in a worker thread
    companion: SessionCompanion | None  # what another package adds to the session; nothing when not given


class Session:
    """One session: a history (what happened), views of it (what the model is sent), a meter (what they cost)."""

    def __init__(
        self,
        config: Config,
        plugins: Plugins,
        clock: Callable[[], str],
        on_new_session: Callable[[], Awaitable[None]] | None,
        options: SessionOptions,
    ) -> None:
        id, hooks = options.get("session_id", "session"), options.get("hooks")
        self.config = config
        self.store: Store = options.get("store") or MemoryStore()
        self.warnings = SessionWarnings(id, hooks)
        self.counter = SessionCounter(config, plugins, self.warnings.fault, options.get("counter"))
        self.history = History(
            id,
            self.store,
            self.counter,
            Observers(plugins, self.warnings.fault),
            on_interrupt=config.on_interrupt,
            on_conflict=config.on_conflict,
            notify=self.warnings.note,
            clock=clock,
            add_timestamp=options.get("add_timestamp", with_timestamp),
        )
        self.items = SessionItems(config, options.get("pool"), options.get("queue"))
        self.meter = Meter(learn=config.token_meter != "estimate")
        ladder = options.get("ladder")
        steps = list(ladder) if ladder is not None else build_ladder(config, plugins)
        carry, prepare = options.get("carry"), options.get("prepare")
        self.compactor = Compactor(self.history, config, steps, self.meter, hooks, self.warnings, carry, prepare)
        self.companion = options.get("companion") or SessionCompanion()
        self.one_loop = OneLoop()  # makes requests and edits
        self.opening = Opening(on_new_session)
        self.saves = Saves()

    async def ready(self) -> None:
        """See `ContextManager.ready`."""
        await self.opening.ready(self._resume)

    async def load(self) -> None:
        await self.ready()
        await self.history.load()

    async def messages(self) -> list[dict[str, Any]]:
        """Return copies."""
        await self.load()
        history = self.history.snapshot()
        messages: list[dict[str, Any]] = []
        turns = LoopTurns()
        for entry in history:
            await turns.give()
            messages.append(copy_message(entry.message))
        return messages

    async def close(self) -> None:
        """Save what a resumed session continues from, then close the store."""
        try:
            if self.opening.is_open:
                await self.history.finish()
                await self.save()
        finally:
            self.items.withdraw()
            self.opening.is_open = False  # the next call resumes again: another writer may have had the session
            await self.store.close()

    async def warn_if_unknown(self) -> None:
        """Warn if a host resumes a session of which nothing is known: a wrong id or store looks like a lost history."""
        await self.ready()
        if self.opening.is_new and all(entry.role in SYSTEM_ROLES for entry in self.history.snapshot()):
            self.warnings.note(
                "resume",
                "its host resumes it, but no history of this id was found: it begins empty; check id and store",
            )

    async def _resume(self) -> bool:
        """Return True if the store has no history of the session."""
        self.companion.reopened()
        async with self.compactor.lock.hold():  # a request on its way would fill the cache with views of before
            self.compactor.drop_state()  # another program may have erased what it quotes
            resumed = await resume(self.store, self.history, self.compactor.cache, self.counter)
            for problem in resumed.problems:
                self.warnings.note("repair", problem)
            if resumed.state:
                restore_state(resumed.state, self.history, self.compactor)
                self.companion.restore(resumed.state.extra, self.history.revision)
                if resumed.is_cut:  # the newest human message may be among the entries that the checkpoints cover
                    await self.compactor.cache.show_newest_human()
            self.saves.changes = self.compactor.cache.changes
            last_seq = self.history.last_seq  # as far as is known: an earlier process may have sent it
            self.compactor.directions.short_forms.shown(last_seq)
            self.items.restore((resumed.state.items or SavedItems()) if resumed.state else None)
        return resumed.is_new

    # -- saving -----------------------------------------------------------------------------------------------------

    async def save(self, *, changes_only: bool = False) -> None:
        """Save what a resumed session continues from; nothing while it is closed: another writer may have it.
        `changes_only`: save only if a view was changed since, or to try again what the store refused.
        """
        if changes_only and not self.saves.are_due(self.compactor.cache.changes):
            return
        await self.counter()  # it may take long to load, and `state` needs it
        async with self.saves.lock.hold():
            if not self.opening.is_open:
                return
            changes = self.compactor.cache.changes
            if self.history.last_seq and (self.saves.are_due(changes) or not changes_only):
                state = replace(await self.state(), items=self.items.saved())
                self.saves.note(self.history.session_id, await save_state(self.store, self.history.session_id, state))
                self.saves.changes = changes

    async def state(self) -> SessionState:
        extra = self.companion.state(self.history.revision)
        return collect_state(self.history, self.compactor, await self.counter(), extra)

    async def save_edited(self) -> None:
        """Messages may have been taken out of the history."""
        async with self.compactor.lock.hold():
            await self.compactor.cache.show_newest_human()  # now, not with the next request, which may be taken back
        await self.save()

    async def then_save(self, work: Awaitable[T]) -> T:
        """Await work that may compact, then save, even where the view does not fit or a handler was cancelled."""
        try:
            done = await work
        except GeneratorExit:  # the event loop was closed: nothing can be awaited any more
            raise
        except BaseException:
            await self.save(changes_only=True)
            raise
        await self.save(changes_only=True)
        return done


class Opening:
    """The session is resumed once, and once more after each close, which sets `is_open` back."""

    def __init__(self, on_new_session: Callable[[], Awaitable[None]] | None) -> None:
        self.is_open = False  # the store is open, and what it holds was resumed
        self.is_new = False  # the store had no history of the session when it was opened
        self._on_new_session = on_new_session
        self._lock = CrossLoopLock()

    async def ready(self, resume: Callable[[], Awaitable[bool]]) -> None:
        """`resume` returns True for a new session. It is not kept: a cycle with the session would free that late."""
        if self.is_open:
            return
        async with self._lock.hold():
            if not self.is_open:
                self.is_new = await resume()
                if self.is_new and self._on_new_session:
                    await self._on_new_session()
                self.is_open = True


class Saves:
    """What the store has of the session state, and what it refused."""

    def __init__(self) -> None:
        # Held while the state is collected and saved, so that an older one never replaces a newer one.
        self.lock = CrossLoopLock()
        self.changes = 0  # of the views, up to the last save
        self._refusals = 0  # since the last save that the store took
        self._requests = 0  # since the last refusal

    def request_begins(self) -> None:
        """What the store refused to save is saved again after some requests."""
        self._requests += 1

    def are_due(self, changes: int) -> bool:
        """True if views changed since, or to try again: with the next request, then after twice as many each time."""
        is_next_due = bool(self._refusals) and self._requests >= min(2 ** (self._refusals - 1), _MAX_WAIT)
        return changes != self.changes or is_next_due

    def note(self, session_id: str, problem: StoreError | None) -> None:
        """The first refusal of several is logged."""
        if problem is None:
            self._refusals = 0
            return
        self._refusals += 1
        self._requests = 0
        level = logging.WARNING if self._refusals == 1 else logging.DEBUG
        text = "session %s: its checkpoint was not saved, and is saved with the next: %s"
        log.log(level, text, session_id, problem)
