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
from functools import partial
from typing import Any, Generic, TypeVar

from ...futures import resolve, start_thread

_Call = tuple[Coroutine[Any, Any, Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]
_Finished = tuple["asyncio.Task[Any]", "asyncio.Future[Any]"]

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class LoopThread:
    """A background event loop. Its thread is a daemon: it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._current: _RunningLoop | None = None

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the background loop, and return its result or raise its error.

        Coroutines of one calling thread start in the order of its calls.
        """
        here = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = here.create_future()
        try:
            with self._lock:  # keeps `stop` from ending the loop between the check and the submission
                if self._current is None or self._current.pid != os.getpid():  # a forked child lacks the thread
                    self._current = _RunningLoop(self._name)
                self._current.submit(coroutine, here, waiter)
        except BaseException:
            coroutine.close()
            raise
        return await waiter

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T] | None:
        """Start a coroutine on the background loop without waiting for it. Drop it if the loop has ended."""
        current = self._current  # without the lock: the garbage collector may call this in the thread that holds it
        if current is not None and current.pid == os.getpid():
            with contextlib.suppress(RuntimeError):  # the loop has ended since
                return asyncio.run_coroutine_threadsafe(coroutine, current.loop)
        coroutine.close()
        return None

    def stop(self) -> None:
        """End the loop, and cancel what still runs there. Returns without waiting for that."""
        with self._lock:
            ending, self._current = self._current, None
            if ending is not None and ending.pid == os.getpid():
                ending.loop.call_soon_threadsafe(ending.loop.stop)


class _RunningLoop:
    """One run of a loop thread: the loop, its thread, and the calls and answers in transit.

    To wake another thread's loop costs a system call and a change of threads, more than most coroutines here. So calls
    that are submitted at about the same time share one wake-up, and so do answers to the same loop.
    """

    def __init__(self, name: str) -> None:
        self.pid = os.getpid()
        self.loop = _new_loop()
        self._lock = threading.Lock()
        self._inbox: list[_Call] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._done: dict[asyncio.AbstractEventLoop, list[_Finished]] = {}
        try:
            start_thread(name, _run_thread, self.loop)
        except BaseException:
            self.loop.close()
            raise

    def submit(
        self, coroutine: Coroutine[Any, Any, Any], caller: asyncio.AbstractEventLoop, waiter: asyncio.Future[Any]
    ) -> None:
        with self._lock:
            self._inbox.append((coroutine, caller, waiter))
            if len(self._inbox) == 1:
                self.loop.call_soon_threadsafe(self._start_tasks)

    def _start_tasks(self) -> None:
        with self._lock:
            calls, self._inbox = self._inbox, []
        for coroutine, caller, waiter in calls:
            task = self.loop.create_task(coroutine)
            self._tasks.add(task)  # event loops hold their tasks weakly
            task.add_done_callback(partial(self._on_done, caller, waiter))

    def _on_done(self, caller: asyncio.AbstractEventLoop, waiter: asyncio.Future[Any], task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved, also if no caller waits any more
        answers = self._done.setdefault(caller, [])
        answers.append((task, waiter))
        if not self._tasks:
            self._deliver(caller)
        elif len(answers) == 1:
            self.loop.call_soon(self._deliver, caller)

    def _deliver(self, caller: asyncio.AbstractEventLoop) -> None:
        answers = self._done.pop(caller, None)
        if answers:
            with contextlib.suppress(RuntimeError):  # the caller's loop is closed
                caller.call_soon_threadsafe(_resolve_waiters, answers)


def _resolve_waiters(answers: list[_Finished]) -> None:
    for task, waiter in answers:
        if task.cancelled():
            waiter.cancel()
        elif (problem := task.exception()) is not None:
            resolve(waiter, problem=problem)
        else:
            resolve(waiter, task.result())


def _new_loop() -> asyncio.AbstractEventLoop:
    # Not asyncio.new_event_loop: on Windows that is a proactor, which psycopg cannot use.
    return asyncio.SelectorEventLoop()


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
    """Objects that several users of one process share by key, e.g. the connection pool of a URL."""

    def __init__(self, make: Callable[[K], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._objects: dict[K, tuple[T, int]] = {}
        self._pid = os.getpid()
        self._inherited: list[object] = []

    def acquire(self, key: K) -> T:
        """Return the object of this key, made for its first user."""
        with self._lock:
            if self._pid != os.getpid():  # forked: these belong to the parent, and ending them would end its own
                self._inherited.append(self._objects)
                self._objects, self._pid = {}, os.getpid()
            shared, users = self._objects.get(key) or (self._make(key), 0)
            self._objects[key] = (shared, users + 1)
            return shared

    def release(self, key: K, shared: T) -> bool:
        """Count one user fewer. Return True if that was the last: the object is not handed out again and may end."""
        with self._lock:
            found, users = self._objects.get(key, (None, 0))
            if found is not shared:
                return False
            if users > 1:
                self._objects[key] = (shared, users - 1)
                return False
            del self._objects[key]
            return True
