"""An event loop of our own, in a thread of its own, for clients that belong to one loop.

Network clients (connection pools, locks, tasks) are bound to the event loop they were made on, but callers come from
any loop, and loops come and go. An `Owner` gives such clients a loop that stays: `await owner.run(coroutine)` carries
the coroutine there and brings back what it returned. It starts with the first call and ends with `stop`; a later call
starts it again. What runs there is not cancelled when its caller is.

To go there and back wakes two threads, which takes as long as a server nearby needs for a message. So where a client
allows it (`Line.append_here`), a message on its own goes from its caller's loop.
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
_Answer = tuple["asyncio.Task[Any]", "asyncio.Future[Any]"]

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Owner:
    """A background event loop. Its thread is a daemon: it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._current: _Background | None = None

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the background loop and give back what it gave, or raise what it raised.

        Coroutines start in the order in which one thread hands them over.
        """
        here = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = here.create_future()
        try:
            with self._lock:  # `stop` cannot end the loop between here and there
                if self._current is None or self._current.pid != os.getpid():  # a forked child has no thread to it
                    self._current = _Background(self._name)
                self._current.hand_over(coroutine, here, waiter)
        except BaseException:
            coroutine.close()
            raise
        return await waiter

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T] | None:
        """Run a coroutine on the background loop, with nobody waiting for it. Not run if the loop has ended."""
        current = self._current  # without the lock: who holds it may be who calls, by way of the garbage collector
        if current is not None and current.pid == os.getpid():
            with contextlib.suppress(RuntimeError):  # it has ended in this very moment
                return asyncio.run_coroutine_threadsafe(coroutine, current.loop)
        coroutine.close()
        return None

    def stop(self) -> None:
        """End the loop; what still runs there is cancelled. Waits for nothing."""
        with self._lock:
            ending, self._current = self._current, None
            if ending is not None and ending.pid == os.getpid():
                ending.loop.call_soon_threadsafe(ending.loop.stop)


class _Background:
    """One run of an owner: a loop, its thread, and what is on its way there and back.

    To wake another thread's loop costs a system call and a change of threads, more than most coroutines here. So what
    is handed over, or given back to one loop, at about the same time goes with one such call.
    """

    def __init__(self, name: str) -> None:
        self.pid = os.getpid()
        self.loop = _new_loop()
        self._lock = threading.Lock()
        self._inbox: list[_Call] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._done: dict[asyncio.AbstractEventLoop, list[_Answer]] = {}
        try:
            start_thread(name, _turn, self.loop)
        except BaseException:
            self.loop.close()
            raise

    def hand_over(
        self, coroutine: Coroutine[Any, Any, Any], caller: asyncio.AbstractEventLoop, waiter: asyncio.Future[Any]
    ) -> None:
        with self._lock:
            self._inbox.append((coroutine, caller, waiter))
            if len(self._inbox) == 1:
                self.loop.call_soon_threadsafe(self._take_in)

    def _take_in(self) -> None:
        with self._lock:
            calls, self._inbox = self._inbox, []
        for coroutine, caller, waiter in calls:
            task = self.loop.create_task(coroutine)
            self._tasks.add(task)  # a loop holds its tasks weakly
            task.add_done_callback(partial(self._finished, caller, waiter))

    def _finished(
        self, caller: asyncio.AbstractEventLoop, waiter: asyncio.Future[Any], task: asyncio.Task[Any]
    ) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, even when nobody waits any more
        answers = self._done.setdefault(caller, [])
        answers.append((task, waiter))
        if not self._tasks:
            self._give_back(caller)
        elif len(answers) == 1:
            self.loop.call_soon(self._give_back, caller)

    def _give_back(self, caller: asyncio.AbstractEventLoop) -> None:
        answers = self._done.pop(caller, None)
        if answers:
            with contextlib.suppress(RuntimeError):  # the caller's loop is closed
                caller.call_soon_threadsafe(_tell, answers)


def _tell(answers: list[_Answer]) -> None:
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


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    """The thread: the loop from its start to its end, with what asyncio.run would do at the end."""
    asyncio.set_event_loop(loop)
    try:
        while not _ran_until_stopped(loop):
            pass
        loop.run_until_complete(_end())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _ran_until_stopped(loop: asyncio.AbstractEventLoop) -> bool:
    """Run the loop. False if an exception ended it: a loop lets `SystemExit` of a task through to its own caller.

    The caller of the task gets that exception too, and the other tasks must still be answered.
    """
    try:
        loop.run_forever()
    except BaseException:  # noqa: BLE001 - see above
        return False
    return True


async def _end() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class Shared(Generic[K, T]):
    """Things that several users of one process share by key, e.g. the connection pool of an address."""

    def __init__(self, make: Callable[[K], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._things: dict[K, tuple[T, int]] = {}
        self._pid = os.getpid()
        self._inherited: list[object] = []

    def take(self, key: K) -> T:
        """The thing of this key, made for its first user."""
        with self._lock:
            if self._pid != os.getpid():  # forked: these belong to the parent, and ending them would end its own
                self._inherited.append(self._things)
                self._things, self._pid = {}, os.getpid()
            thing, users = self._things.get(key) or (self._make(key), 0)
            self._things[key] = (thing, users + 1)
            return thing

    def give_back(self, key: K, thing: T) -> bool:
        """One user fewer. True if that was the last one: nobody will be given this thing again, and it may end."""
        with self._lock:
            found, users = self._things.get(key, (None, 0))
            if found is not thing:
                return False
            if users > 1:
                self._things[key] = (thing, users - 1)
                return False
            del self._things[key]
            return True
