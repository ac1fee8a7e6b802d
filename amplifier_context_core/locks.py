"""A mutex for tasks that may run on different event loops in different threads.

A lock of asyncio belongs to one event loop, and a lock of threading blocks the loop of the task that waits. A
`CrossLoopLock` is acquired at once when it is free. Otherwise the task waits without blocking its loop. Waiters are
served first come, first served.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from types import TracebackType

_CHECK_INTERVAL = 1.0  # seconds; how often a waiter checks whether the loop of the holder was closed


class CrossLoopLock:
    """``async with lock:`` runs one task at a time."""

    __slots__ = ("__weakref__", "_guard", "_holder", "_is_held", "_waiters")

    def __init__(self) -> None:
        # Reentrant: the garbage collector may end a task of a closed loop at any moment, and with it release the lock.
        self._guard = threading.RLock()
        self._is_held = False
        self._holder: asyncio.AbstractEventLoop | None = None
        self._waiters: deque[tuple[Future[None], asyncio.AbstractEventLoop]] = deque()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def acquire(self) -> None:
        """Wait until the lock is free, and take it. The caller must `release` it."""
        loop = asyncio.get_running_loop()
        with self._guard:
            if self._take(loop):
                return
            waiter: Future[None] = Future()
            self._waiters.append((waiter, loop))
        try:
            waiting = asyncio.wrap_future(waiter)
            while not (await asyncio.wait((waiting,), timeout=_CHECK_INTERVAL))[0]:
                with self._guard:
                    if self._is_held and self._holder is not None and self._holder.is_closed():
                        self.release()
        except BaseException:
            # Cancelled while waiting. If the lock was granted all the same, it must be released for the next waiter.
            if not waiter.cancel() and not waiter.cancelled():
                self.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def try_acquire(self) -> bool:
        """Take the lock for a task of the running loop if it is free. If True, the caller must `release` it."""
        with self._guard:
            return self._take(asyncio.get_running_loop())

    def transfer(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Make a task of another loop the holder. Pass None if the lock must survive the closing of its loop."""
        with self._guard:
            self._holder = loop

    def _take(self, loop: asyncio.AbstractEventLoop) -> bool:
        if self._is_held and (self._holder is None or not self._holder.is_closed()):
            return False
        self._is_held = True
        self._holder = loop
        return True

    def release(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Grant the lock to the next waiter.

        Args:
            loop: of the holder, if it may have been closed. Then another task may hold the lock by now, and this call
                does nothing.
        """
        with self._guard:
            if loop is not None and self._holder is not loop:
                return
            while self._waiters:
                waiter, loop = self._waiters.popleft()
                if loop.is_closed():
                    continue  # its task will never run again, and would never release the lock
                if waiter.set_running_or_notify_cancel():
                    self._holder = loop
                    waiter.set_result(None)
                    return
            self._is_held = False
