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
    """One call of a store, until its result is delivered.

    Attributes:
        work: The function to run. A reading or a writing task gives it the connection.
        kind: `read` sees one snapshot of the database. `write` is part of a transaction. `plain` is outside any.
        session_id: The session that a writing task locks; empty for none.
        deletes: The writing task deletes the session, which is released afterwards.
        handle: Executes tasks of one kind; never raises. Tasks of a group that have the same one get there together.
        future: Receives the result; None if no caller waits.
        result, error: How it ended.
        has_locked: The session was not locked before.
    """

    work: Callable[..., Any]
    kind: str
    session_id: str = ""
    deletes: bool = False
    handle: Callable[[Sequence[Task]], None] = lambda tasks: None
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None
    has_locked: bool = False

    def fail(self, problem: BaseException) -> None:
        """Set an error as the result."""
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
        self._thread: threading.Thread | None = None
        self._next: list[Task | None] = []  # taken from the queue, but not part of the group
        self._last_group_size, self._last_group_seconds = 1, 0.0

    def submit(self, task: Task) -> None:
        """Queue a task.

        Raises:
            StoreError: The thread was started by the parent process.
        """
        if self._pid != os.getpid():
            if self._thread is not None:
                raise StoreError("this store was used before the process forked; make a new one in the child")
            self._pid = os.getpid()
        with self._lock:
            self._thread = self._thread or start_thread(self._name, self._run)
            self._queue.put(task)

    def stop(self) -> None:
        """Let the thread end after the queued tasks."""
        with self._lock:
            if self._thread is not None:
                self._queue.put(None)

    @property
    def thread(self) -> threading.Thread | None:
        """The thread, if it runs."""
        return self._thread

    @property
    def is_idle(self) -> bool:
        """True if the thread does not run."""
        return self._thread is None

    def _run(self) -> None:
        while True:
            try:
                task = self._next.pop() if self._next else self._queue.get(timeout=self._patience)
            except queue.Empty:
                self._is_idle_work_due = self._on_idle()
                continue
            if task is None:
                with self._lock:
                    if self._queue.empty():
                        self._thread = None
                        return
                continue
            group = self._collect_group(task) if task.kind == "write" else [task]
            began = time.perf_counter()
            _execute(group)
            self._is_idle_work_due = True
            self._last_group_size, self._last_group_seconds = len(group), time.perf_counter() - began
            del group, task

    @property
    def _patience(self) -> float | None:
        return IDLE_SECONDS if self._is_idle_work_due else None

    def _collect_group(self, first: Task) -> list[Task]:
        """Return a writing task and those queued after it.

        Linger briefly for the callers of the previous group: a task that comes too late pays for a whole group. A
        single writer never lingers.
        """
        group = [first]
        deadline = time.perf_counter() + min(self._last_group_seconds / 4, _MAX_LINGER)
        while len(group) < MAX_GROUP:
            remaining = deadline - time.perf_counter() if len(group) < self._last_group_size else 0
            try:
                task = self._queue.get(timeout=remaining) if remaining > 0 else self._queue.get_nowait()
            except queue.Empty:
                break
            if task is None or task.kind != "write":
                self._next.append(task)
                break
            group.append(task)
        return group


def _execute(group: Sequence[Task]) -> None:
    by_handler: dict[Callable[[Sequence[Task]], None], list[Task]] = {}
    for task in group:
        by_handler.setdefault(task.handle, []).append(task)
    for handle, tasks in by_handler.items():
        try:
            handle(tasks)
        except BaseException as problem:  # noqa: BLE001 - the thread goes on, and every task gets a result
            for one in tasks:
                one.fail(problem)
            deliver(tasks)


def deliver(tasks: Iterable[Task]) -> None:
    """Complete the futures of tasks; wake each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Task]] = {}
    for task in tasks:
        if task.future is not None:
            by_loop.setdefault(task.future.get_loop(), []).append(task)
    for loop, done in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: no caller waits on it
            loop.call_soon_threadsafe(_complete, done)


def _complete(tasks: list[Task]) -> None:
    for task in tasks:
        if task.future is not None:
            resolve(task.future, task.result, task.error)
