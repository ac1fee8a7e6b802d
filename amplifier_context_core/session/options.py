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
