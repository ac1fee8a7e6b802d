"""A mutex for tasks that may run on different event loops in different threads.

A lock of asyncio belongs to one event loop, and a lock of threading blocks the loop of the task that waits. A
`CrossLoopLock` is acquired at once when it is free. Otherwise the task waits without blocking its loop. Waiters are
served first come, first served.

A loop may be closed while one of its tasks holds the lock. The lock is then free for the next task. The garbage
collector ends the task of the closed loop later, at any moment and in any thread. So each acquisition is an object of
its own, a `Hold`, and only the hold that has the lock can release it.

A loop may stand still when one of its waiters is granted the lock. The grant is then withdrawn, and the waiter queues
again when its loop runs.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from .errors import ContextError

_CHECK_INTERVAL = 0.25  # seconds; how often a waiter checks whether the loop of the holder was closed or stands still
_P = ParamSpec("_P")
_T = TypeVar("_T")


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
        holder = self._holder
        return holder is not None and not holder.is_lost

    def hold(self) -> Hold:
        return Hold(self)

    def _take(self, hold: Hold) -> bool:
        with self._guard:
            hold.loop = asyncio.get_running_loop()
            if self.is_held:
                return False
            self._holder = hold
            hold.has_begun = True
            return True

    async def _wait(self, hold: Hold) -> None:
        while not hold.has_begun:
            with self._guard:
                if self._take(hold):
                    return
                waiter: Future[None] = Future()
                self._waiters.append((waiter, hold))
            try:
                await self._granted(waiter)
            except BaseException:
                # Cancelled while waiting. The lock may have been granted all the same.
                waiter.cancel()
                self._release(hold)
                raise
            with self._guard:
                hold.has_begun = self._holder is hold  # false if the grant was withdrawn

    async def _granted(self, waiter: Future[None]) -> None:
        """Wait for the grant. Meanwhile, withdraw it from a holder that is lost or that does not begin."""
        waiting = asyncio.wrap_future(waiter)
        seen: Hold | None = None
        while not (await asyncio.wait((waiting,), timeout=_CHECK_INTERVAL))[0]:
            with self._guard:
                holder = self._holder
                if holder is not None and (holder.is_lost or (holder is seen and not holder.has_begun)):
                    self._release(holder)
                seen = holder

    def _release(self, hold: Hold) -> None:
        """Grant the lock to the next waiter. A no-op if this hold does not have the lock."""
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
    """One acquisition of a lock by one task."""

    __slots__ = ("_lock", "has_begun", "loop")

    def __init__(self, lock: CrossLoopLock) -> None:
        self._lock = lock
        self.loop: asyncio.AbstractEventLoop | None = None  # of the task
        self.has_begun = False  # the task knows that it has the lock, or had it

    @property
    def is_lost(self) -> bool:
        """True if its loop was closed. Another task may hold the lock by now."""
        return self.loop is not None and self.loop.is_closed()

    async def __aenter__(self) -> None:
        await self._lock._wait(self)  # pyright: ignore[reportPrivateUsage]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock._release(self)  # pyright: ignore[reportPrivateUsage]


class OneLoop:
    """``with one_loop.at_work():`` refuses work while another event loop that runs is at work."""

    def __init__(self) -> None:
        self._guard = threading.RLock()  # reentrant, as that of a lock above
        self._at_work: list[asyncio.AbstractEventLoop] = []  # the running loop of each work in progress

    @contextmanager
    def at_work(self) -> Generator[None]:
        """Note work of the running loop. It may begin inside other work of this loop, and beside it. Raises
        `ContextError`: another loop is at work.
        """
        here = asyncio.get_running_loop()
        with self._guard:
            self._at_work = [loop for loop in self._at_work if not loop.is_closed()]
            if any(loop is not here and loop.is_running() for loop in self._at_work):
                raise ContextError(
                    "another event loop is in the middle of a request or an edit of this session; wait for it, or make "
                    "the call on that loop (asyncio.run_coroutine_threadsafe)"
                )
            self._at_work.append(here)
        try:
            yield
        finally:
            with self._guard:
                if here in self._at_work:
                    self._at_work.remove(here)


def on_one_loop(
    method: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]:
    """Let a method of a manager raise `ContextError` while another live event loop makes a request or an edit."""

    @wraps(method)
    async def guarded(manager: Any, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with manager.session.one_loop.at_work():
            return await method(manager, *args, **kwargs)

    return guarded
