"""A thread that executes tasks in order, and completes the futures of the event loops that wait for them.

An event loop may close while it waits: it misses the result, and its task is executed all the same. Writing tasks are
grouped: those that queue up while one group is being committed form the next group (group commit).
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...errors import StoreError
from ...futures import resolve, start_thread

MAX_GROUP = 256
IDLE_SECONDS = 1.0
_MAX_LINGER = 0.001  # seconds; the longest wait for the callers of the previous group


@dataclass(slots=True, eq=False)
class Task:
    work: Callable[..., Any]  # a writing task gives it the connection
    # Executes writing tasks in one transaction, and sets their results; None: `work` runs alone.
    commit: Callable[[Sequence[Task]], None] | None = None
    session_id: str = ""  # that a writing task locks
    deletes: bool = False  # the session, which is then released
    future: asyncio.Future[Any] | None = None  # None if no caller waits
    result: Any = None
    error: BaseException | None = None
    has_locked: bool = False  # the session was not locked before

    def fail(self, problem: BaseException) -> None:
        self.result, self.error = None, problem


class SqliteWorker:
    """The thread. It starts with the first task and ends on `stop`, which also runs when its owner is freed."""

    def __init__(self, name: str, on_idle: Callable[[], bool] = lambda: False) -> None:
        self._name = name
        self._on_idle = on_idle  # called after `IDLE_SECONDS` without a task; never raises; True: call it again
        self._is_idle_work_due = False
        self._pid = os.getpid()
        self._queue: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._next: list[Task | None] = []  # taken from the queue, but not part of the group
        self._last_group_size, self._last_group_seconds = 1, 0.0
        self.thread: threading.Thread | None = None  # while it runs

    async def run(self, task: Task) -> Any:
        task.future = asyncio.get_running_loop().create_future()
        self.submit(task)
        return await task.future

    @property
    def is_of_parent(self) -> bool:
        return self.thread is not None and self._pid != os.getpid()

    def submit(self, task: Task) -> None:
        """Queue a task. Raise `StoreError` if the thread was started by the parent process."""
        if self.is_of_parent:
            raise StoreError("this store was used before the process forked; make a new one in the child")
        self._pid = os.getpid()
        with self._lock:
            self.thread = self.thread or start_thread(self._name, self._run)
            self._queue.put(task)

    def stop(self) -> None:
        with self._lock:
            if self.thread is not None:
                self._queue.put(None)

    def _run(self) -> None:
        while True:
            try:
                patience = IDLE_SECONDS if self._is_idle_work_due else None
                task = self._next.pop() if self._next else self._queue.get(timeout=patience)
            except queue.Empty:
                self._is_idle_work_due = self._on_idle()
                continue
            if task is None:
                with self._lock:
                    if self._queue.empty():
                        self.thread = None
                        return
                continue
            group = self._group_of(task)
            began = time.perf_counter()
            _execute(group)
            _deliver(group)
            self._is_idle_work_due = True
            self._last_group_size, self._last_group_seconds = len(group), time.perf_counter() - began
            del group, task

    def _group_of(self, first: Task) -> list[Task]:
        """Return a task and, if it writes, those queued after it that may share its transaction.

        Linger briefly for the callers of the previous group: a task that comes too late pays for a whole group. A
        single writer never lingers.
        """
        group = [first]
        deadline = time.perf_counter() + min(self._last_group_seconds / 4, _MAX_LINGER)
        while first.commit is not None and len(group) < MAX_GROUP:
            remaining = deadline - time.perf_counter() if len(group) < self._last_group_size else 0
            try:
                task = self._queue.get(timeout=remaining) if remaining > 0 else self._queue.get_nowait()
            except queue.Empty:
                break
            if task is None or task.commit != first.commit:
                self._next.append(task)
                break
            group.append(task)
        return group


def _execute(group: Sequence[Task]) -> None:
    first = group[0]
    try:
        if first.commit is not None:
            first.commit(group)
        else:
            first.result = first.work()
    except BaseException as problem:  # noqa: BLE001 - the thread goes on, and every task gets a result
        for task in group:
            task.fail(problem)


def _deliver(group: Iterable[Task]) -> None:
    """Complete the futures of tasks; wake each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Task]] = {}
    for task in group:
        if task.future is not None:
            by_loop.setdefault(task.future.get_loop(), []).append(task)
    for loop, done in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: no caller waits on it
            loop.call_soon_threadsafe(_complete, done)


def _complete(tasks: list[Task]) -> None:
    for task in tasks:
        if task.future is not None:
            resolve(task.future, task.result, task.error)
