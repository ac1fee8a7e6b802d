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
from typing import Any, Generic, TypeVar

from amplifier_context_core.futures import resolve, start_thread

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class LoopThread:
    """A background event loop. Its thread is a daemon: it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[Any]] = set()  # event loops hold their tasks weakly

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the background loop, and return its result or raise its error.

        Coroutines of one calling thread start in the order of its calls.
        """
        here = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = here.create_future()
        try:
            with self._lock:  # keeps `stop` from ending the loop between the check and the submission
                if self._loop is None:
                    self._loop = _started(self._name)
                self._loop.call_soon_threadsafe(self._start_task, coroutine, here, waiter)
        except BaseException:
            coroutine.close()
            raise
        return await waiter

    def stop(self) -> None:
        """End the loop, and cancel what still runs there. Returns without waiting for that."""
        with self._lock:
            ending, self._loop = self._loop, None
            if ending is not None:
                ending.call_soon_threadsafe(ending.stop)

    def _start_task(
        self, coroutine: Coroutine[Any, Any, Any], caller: asyncio.AbstractEventLoop, waiter: asyncio.Future[Any]
    ) -> None:
        def answer(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()  # marks it as retrieved, also if no caller waits any more
            with contextlib.suppress(RuntimeError):  # the caller's loop is closed
                caller.call_soon_threadsafe(_resolve, waiter, task)

        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(answer)


def _resolve(waiter: asyncio.Future[Any], task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        waiter.cancel()
    elif (problem := task.exception()) is not None:
        resolve(waiter, problem=problem)
    else:
        resolve(waiter, task.result())


def _started(name: str) -> asyncio.AbstractEventLoop:
    # Not asyncio.new_event_loop: on Windows that is a proactor, which psycopg cannot use.
    loop = asyncio.SelectorEventLoop()
    try:
        start_thread(name, _run_thread, loop)
    except BaseException:
        loop.close()
        raise
    return loop


def _run_thread(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop from its start to its end in this thread, and clean up as asyncio.run does."""
    asyncio.set_event_loop(loop)
    try:
        while not _ran_until_stopped(loop):
            pass
        loop.run_until_complete(_cancel_all())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _ran_until_stopped(loop: asyncio.AbstractEventLoop) -> bool:
    """Run the loop. Return False if an exception ended it: a loop raises `SystemExit` of a task to its own caller.

    The caller of the task gets that exception too, and the other tasks must still be answered.
    """
    try:
        loop.run_forever()
    except BaseException:  # noqa: BLE001 - see above
        return False
    return True


async def _cancel_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class RefCounted(Generic[K, T]):
    """Objects that several users of one process share by key, e.g. the connection pool of a URL.

    A forked child shares none of its parent's: to end one would end that of the parent.
    """

    def __init__(self, make: Callable[[K], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._objects: dict[tuple[int, K], tuple[T, int]] = {}

    def acquire(self, key: K) -> T:
        """Return the object of this key, made for its first user."""
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
