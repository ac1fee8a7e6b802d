"""What a session can be made with, beside its config."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypedDict

from ..compaction.strategies import Strategy
from ..events import Hooks
from ..items import ContextPool, ContextQueue
from ..messages.parsing import Message
from ..messages.tokens import TokenCounter
from ..plugins import Plugins
from ..stores import Store
from ..view.checkpoint_maker import Carry
from .companion import SessionCompanion


class SessionOptions(TypedDict, total=False):
    """Keyword arguments of a `ContextManager`; all may be left out.

    Attributes:
        session_id: by which the store knows the session; ``session`` when not given.
        hooks: the kernel's hook registry, for events.
        store: where history is kept; in memory when not given.
        counter: text to tokens; by default what `Config.token_counter` names.
        ladder: strategies in order; by default what `Config.ladder` names.
        plugins: plug-ins to use; by default those of installed packages.
        clock: gives the time as ISO 8601 text, UTC.
        add_timestamp: puts the time on a message that has none.
        on_new_session: awaited once with the manager, at the first access to a session without a history.
        pool: items of the session by id; an empty one when not given.
        queue: newest items of the session; an empty one when not given.
        carry: puts a provider's own compaction beside the chapters of a new checkpoint; nothing does when not given.
        prepare: reads what strategies need, before they run in a worker thread.
        companion: what another package adds to the session; nothing when not given.
    """

    session_id: str
    hooks: Hooks | None
    store: Store | None
    counter: TokenCounter | None
    ladder: Sequence[Strategy] | None
    plugins: Plugins | None
    clock: Callable[[], str]
    add_timestamp: Callable[[Message, str], Message]
    on_new_session: Callable[[Any], Awaitable[None]] | None
    pool: ContextPool[Any] | None
    queue: ContextQueue[Any] | None
    carry: Carry | None
    prepare: Callable[[], Awaitable[None]] | None
    companion: SessionCompanion | None
