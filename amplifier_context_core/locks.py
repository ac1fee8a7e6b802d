"""A mutex for tasks that may run on different event loops in different threads.

asyncio's locks belong to one loop, threading's block a loop while they wait. A `Gate` is taken at once when it is
free, and waited for without blocking otherwise, whatever loop the waiter runs on. First come, first served.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from types import TracebackType

_LOOK = 1.0  # seconds between two looks of who waits, whether the loop of who is in was closed


class Gate:
    """``async with gate:`` lets one task in at a time."""

    __slots__ = ("__weakref__", "_guard", "_holder", "_taken", "_waiters")

    def __init__(self) -> None:
        # Reentrant: the garbage collector may end a task of a closed loop at any moment, and with it its turn.
        self._guard = threading.RLock()
        self._taken = False
        self._holder: asyncio.AbstractEventLoop | None = None
        self._waiters: deque[tuple[Future[None], asyncio.AbstractEventLoop]] = deque()

    async def __aenter__(self) -> None:
        await self.enter()

    async def enter(self) -> None:
        """Wait for a turn; whoever got it so must `leave`."""
        loop = asyncio.get_running_loop()
        with self._guard:
            if self._take(loop):
                return
            turn: Future[None] = Future()
            self._waiters.append((turn, loop))
        try:
            waiting = asyncio.wrap_future(turn)
            while not (await asyncio.wait((waiting,), timeout=_LOOK))[0]:
                with self._guard:
                    if self._taken and self._holder is not None and self._holder.is_closed():
                        self.leave()
        except BaseException:
            # Cancelled while waiting. If the turn came all the same, it must be passed on, or all wait for ever.
            if not turn.cancel() and not turn.cancelled():
                self.leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def enter_at_once(self) -> bool:
        """Take it if it is free, for a task of the running loop; whoever took it so must `leave`."""
        with self._guard:
            return self._take(asyncio.get_running_loop())

    def hand_over(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Who is in gives his turn to a task of another loop; None for one that is not closed in the middle."""
        with self._guard:
            self._holder = loop

    def _take(self, loop: asyncio.AbstractEventLoop) -> bool:
        if self._taken and (self._holder is None or not self._holder.is_closed()):
            return False
        self._taken = True
        self._holder = loop
        return True

    def leave(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Let the next one in.

        Args:
            loop: of the task that leaves, where it may have been closed: then somebody else may be in by now.
        """
        with self._guard:
            if loop is not None and self._holder is not loop:
                return
            while self._waiters:
                turn, loop = self._waiters.popleft()
                if loop.is_closed():
                    continue  # its task is gone without a word; the turn would be lost on it
                if turn.set_running_or_notify_cancel():
                    self._holder = loop
                    turn.set_result(None)
                    return
            self._taken = False
