"""An event loop in a thread of its own, for clients that belong to one loop.

Network clients (connection pools, locks, tasks) are bound to the event loop that they were made on. Callers come from
any loop, and loops are created and closed. A `LoopThread` gives such clients a loop that stays:
`await loop_thread.run(coroutine)` runs the coroutine there and returns its result. The loop starts with the first call
and ends with `stop`; a later call starts it again. A coroutine that runs there is not cancelled when its caller is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from amplifier_context_core.futures import resolve, start_thread

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class LoopThread:
    """A background event loop. Its thread is a daemon: it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.pid = os.getpid()  # of the process that made it
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[Future[Any]] = set()  # event loops hold their tasks weakly

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the background loop, and return its result or raise its error.

        Coroutines of one calling thread start in the order of its calls.
        """
        here = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = here.create_future()

        def answer(done: Future[T]) -> None:
            self._running.discard(done)
            with contextlib.suppress(RuntimeError):  # the caller's loop is closed
                here.call_soon_threadsafe(_answer, waiter, done)

        try:
            with self._lock:  # keeps `stop` from ending the loop between the check and the submission
                if self._loop is None:
                    self._loop = _started(self._name)
                running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException:
            coroutine.close()
            raise
        self._running.add(running)
        running.add_done_callback(answer)
        return await waiter

    def stop(self) -> None:
        """End the loop, and cancel what still runs there. Returns without waiting for that."""
        with self._lock:
            ending, self._loop = self._loop, None
            if ending is not None:
                ending.call_soon_threadsafe(ending.stop)


def _answer(waiter: asyncio.Future[Any], done: Future[Any]) -> None:
    if done.cancelled():
        waiter.cancel()
    else:
        problem = done.exception()
        resolve(waiter, None if problem else done.result(), problem)


def _started(name: str) -> asyncio.AbstractEventLoop:
    # Not the default loop: on Windows that is a proactor, which psycopg cannot use.
    runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
    loop = runner.get_loop()
    try:
        start_thread(name, _run_thread, runner)
    except BaseException:
        loop.close()
        raise
    return loop


def _run_thread(runner: asyncio.Runner) -> None:
    """Run the loop of a runner until it is stopped.

    A loop raises `SystemExit` of a task to its own caller. The caller of the task gets it too, and the other tasks must
    still be answered: the loop goes on.
    """
    with runner:  # at the end it cancels what still runs
        is_stopped = False
        while not is_stopped:
            with contextlib.suppress(BaseException):
                runner.get_loop().run_forever()
                is_stopped = True


class RefCounted(Generic[K, T]):
    """Objects that several users of one process share by key, e.g. the connection pool of a URL.

    A forked child shares none of its parent's: to end one would end that of the parent.
    """

    def __init__(self, make: Callable[[K], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._objects: dict[tuple[int, K], tuple[T, int]] = {}

    def acquire(self, key: K) -> T:
        with self._lock:
            shared, users = self._objects.get((os.getpid(), key)) or (self._make(key), 0)
            self._objects[os.getpid(), key] = (shared, users + 1)
            return shared

    def release(self, key: K) -> bool:
        """Count one user fewer. Return True if that was the last: the object is not handed out again and may end."""
        with self._lock:
            shared, users = self._objects.pop((os.getpid(), key))
            if users > 1:
                self._objects[os.getpid(), key] = (shared, users - 1)
            return users == 1
