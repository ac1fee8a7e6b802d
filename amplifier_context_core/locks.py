"""A mutex for tasks that may run on different event loops in different threads.

A lock of asyncio belongs to one event loop, and a lock of threading blocks the loop of the task that waits. A
`CrossLoopLock` is acquired at once when it is free. Otherwise the task waits without blocking its loop. Waiters are
served first come, first served.

A loop may be closed while one of its tasks holds the lock. The lock is then free for the next task. The garbage
collector ends the task of the closed loop later, at any moment and in any thread. So each acquisition is an object of
its own, a `Hold`, and only the hold that has the lock can release it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from types import TracebackType

_CHECK_INTERVAL = 1.0  # seconds; how often a waiter checks whether the loop of the holder was closed


class CrossLoopLock:
    """``async with lock.hold():`` runs one task at a time."""

    __slots__ = ("__weakref__", "_guard", "_holder", "_waiters")

    def __init__(self) -> None:
        # Reentrant: the garbage collector may end a task of a closed loop at any moment, and with it release the lock.
        self._guard = threading.RLock()
        self._holder: Hold | None = None
        self._waiters: deque[tuple[Future[None], Hold]] = deque()

    @property
    def is_held(self) -> bool:
        """True if a task holds the lock whose loop was not closed."""
        holder = self._holder
        return holder is not None and not holder.is_lost

    def hold(self) -> Hold:
        """Return a hold that has not acquired the lock yet; `async with` acquires and releases it."""
        return Hold(self)

    async def acquire(self) -> Hold:
        """Wait until the lock is free, and take it. The caller must `release` the hold."""
        hold = Hold(self)
        await hold.__aenter__()
        return hold

    def try_acquire(self) -> Hold | None:
        """Take the lock for a task of the running loop if it is free. The caller must `release` the hold."""
        hold = Hold(self)
        return hold if self._take(hold) else None

    def _take(self, hold: Hold) -> bool:
        with self._guard:
            hold.loop = asyncio.get_running_loop()
            if self.is_held:
                return False
            self._holder = hold
            return True

    async def _wait(self, hold: Hold) -> None:
        with self._guard:
            if self._take(hold):
                return
            waiter: Future[None] = Future()
            self._waiters.append((waiter, hold))
        try:
            waiting = asyncio.wrap_future(waiter)
            while not (await asyncio.wait((waiting,), timeout=_CHECK_INTERVAL))[0]:
                with self._guard:
                    if self._holder is not None and self._holder.is_lost:
                        self._release(self._holder)
        except BaseException:
            # Cancelled while waiting. If the lock was granted all the same, it must be released for the next waiter.
            waiter.cancel()
            self._release(hold)
            raise

    def _release(self, hold: Hold) -> None:
        with self._guard:
            if self._holder is not hold:
                return
            self._holder = None
            while self._waiters:
                waiter, following = self._waiters.popleft()
                if following.is_lost:
                    continue  # its task will never run again, and would never release the lock
                if waiter.set_running_or_notify_cancel():
                    self._holder = following
                    waiter.set_result(None)
                    return


class Hold:
    """One acquisition of a lock by one task.

    Attributes:
        loop: of the task. Set it to None if the hold must survive the closing of its loop.
    """

    __slots__ = ("_lock", "loop")

    def __init__(self, lock: CrossLoopLock) -> None:
        self._lock = lock
        self.loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_lost(self) -> bool:
        """True if its loop was closed. Another task may hold the lock by now."""
        return self.loop is not None and self.loop.is_closed()

    async def __aenter__(self) -> None:
        await self._lock._wait(self)  # pyright: ignore[reportPrivateUsage]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Grant the lock to the next waiter. A no-op if this hold does not have the lock."""
        self._lock._release(self)  # pyright: ignore[reportPrivateUsage]
