"""Messages on their way into the history: their order is decided under a lock, and no caller waits while it holds it.

A message is queued first. Then a task writes all that are queued, in one append of the store (group commit). Each event
loop on which callers wait has such a task of its own, so a loop that ends takes no message of another loop with it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakSet

from ..errors import StoreError
from ..futures import Outcome, wake
from ..messages.parsing import Message, MessageInfo
from ..messages.usage import Response
from ..transcript.entry import Entry

_LINGER_TURNS = 3  # turns of the loop from an acknowledgement to the next message of its caller


@dataclass(slots=True, eq=False)
class PendingAppend:
    """A message in the queue.

    Attributes:
        message: a checked copy.
        info: what the message states about itself.
        tokens: its cost in a request.
        loop: of the caller.
        requested: when a response was asked for, for an assistant's message.
        reported: what the provider reported of that response.
        entry: the drafted entry.
        outcome: the new entry; None for an echo.
    """

    message: Message
    info: MessageInfo
    tokens: int
    loop: asyncio.AbstractEventLoop
    requested: str | None
    reported: Response | None
    entry: Entry | None = None
    outcome: Outcome[Entry | None] = field(default_factory=Outcome["Entry | None"])

    def settle(self, problem: Exception | None) -> list[asyncio.Future[None]]:
        """Settle the outcome unless it is. Return what is to be woken."""
        return [] if self.outcome.is_settled else self.outcome.settle(self.entry, problem)


class PendingAppends:
    """The queue. An append leaves it once it is acknowledged, so it outlives a writer of another loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: list[PendingAppend] = []
        self._writing: WeakSet[asyncio.AbstractEventLoop] = WeakSet()  # whose writer will see what is queued now

    def add(self, append: PendingAppend) -> bool:
        """Queue an append. True if a writer must be started on the running loop."""
        with self._lock:
            self._queue.append(append)
        return self.needs_writer()

    def needs_writer(self) -> bool:
        """True if appends are queued and the running loop has no writer; one must then be started there."""
        here = asyncio.get_running_loop()
        with self._lock:
            needed = bool(self._queue) and here not in self._writing
            if needed:
                self._writing.add(here)
            return needed

    def writer_ended(self) -> bool:
        """Note that the running loop's writer was cancelled, perhaps before its first step: the loop ends.

        True if a caller of this loop waits nevertheless, so that a writer must be started.
        """
        here = asyncio.get_running_loop()
        with self._lock:
            self._writing.discard(here)
            is_awaited = any(append.loop is here and append.outcome.is_awaited for append in self._queue)
        return is_awaited and self.needs_writer()

    def give_up(self, *, drafted: bool) -> None:
        """Give up the appends whose callers were cancelled as their loop ends: they may add the messages again.

        Args:
            drafted: also those with an entry. If false, the writer of another loop may be storing it.
        """
        here = asyncio.get_running_loop()
        with self._lock:
            ours = [one for one in self._queue if one.loop is here and (drafted or one.entry is None)]
        problem = StoreError(
            "the event loop ended before the message was stored; resume the session to see what it holds"
        )
        self.acknowledge([append for append in ours if not append.outcome.is_awaited], problem)

    @property
    def drafted(self) -> list[PendingAppend]:
        """Those with a drafted entry. Unless a writer is at work, one was lost with its loop: the store may hold it."""
        return [append for append in self._queue if append.entry is not None]

    def next_batch(self) -> list[PendingAppend]:
        """Return all that are queued. If there are none, the writer of the running loop must end."""
        with self._lock:
            if not self._queue:
                self._writing.discard(asyncio.get_running_loop())
            return self._queue.copy()

    async def linger(self) -> None:
        """Let callers that were just acknowledged queue their next messages beside those that wait already."""
        for _ in range(_LINGER_TURNS if self._queue else 0):
            await asyncio.sleep(0)

    def acknowledge(self, batch: Sequence[PendingAppend], problem: Exception | None = None) -> None:
        """Give callers their entries, or the reason why their messages are not part of the history."""
        waiters = [one for append in batch for one in append.settle(problem)]
        with self._lock:
            self._queue = [append for append in self._queue if not append.outcome.is_settled]
        wake(waiters)
