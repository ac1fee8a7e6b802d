"""A thread that executes tasks in order, and completes the futures of the event loops that wait for them.

An event loop may close while it waits: it misses the result, and its task is executed all the same. Writing tasks are
grouped: those that queue up while one group is being committed form the next group (group commit).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...futures import resolve, start_thread
from ..protocol import OnRepair, Repair, report_repair

log = logging.getLogger(__name__)

MAX_GROUP = 256
_TICK_RETRY_DELAY = 1.0  # seconds until a failed tick is tried again
_MAX_LINGER = 0.001  # seconds; the longest wait for the callers of the previous group

TaskKind = Literal["read", "write", "write_unsynced", "no_transaction", "no_connection"]
WRITING: frozenset[TaskKind] = frozenset({"write", "write_unsynced"})
Work = Callable[["Task"], Any]


@dataclass(slots=True, eq=False)
class Task:
    """One call of a store, until its result is delivered.

    Attributes:
        work: The function to run. It returns the result, or a `Continuation`.
        kind: `read` sees one snapshot of the database. `write` is part of a transaction. `write_unsynced` is part of a
            transaction that is committed without fsync. `no_transaction` is outside any. `no_connection` does not use
            SQLite.
        session_id: The session, for the listener for repairs.
        original: The function and kind that it began with, for a restart.
        future: Receives the result; None if no caller waits.
        result, error: How it ended.
        repairs: Damage found on the way, each with its listener.
        retried: It was restarted after damage before.
        fallback: Returns the result if nothing can be written: on a full disk or a read-only file system.
        connection: See `db`.
        releases_on_success, releases_on_error: Sessions to release at its end.
    """

    work: Work
    kind: TaskKind
    session_id: str = ""
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None
    repairs: list[tuple[OnRepair | None, Repair]] = field(default_factory=list[tuple[OnRepair | None, Repair]])
    retried: bool = False
    original: tuple[Work, TaskKind] | None = None
    fallback: Work | None = None
    connection: sqlite3.Connection | None = None
    releases_on_success: str = ""
    releases_on_error: str = ""

    @property
    def db(self) -> sqlite3.Connection:
        """The connection, in a transaction that fits the kind."""
        if self.connection is None:
            raise RuntimeError(f"a job of kind {self.kind!r} has no connection")
        return self.connection

    def reset(self) -> None:
        """Clear the result before another attempt."""
        self.result = self.error = None
        self.repairs.clear()

    def fail(self, problem: BaseException) -> None:
        """Set an error as the result."""
        self.result, self.error = None, problem


@dataclass(slots=True)
class Continuation:
    """What an unfinished task returns: its next step, which runs after other tasks.

    Attributes:
        work: The function to run.
        kind: See `Task`.
        in_background: Run it in the second thread.
        delay: Seconds to wait before.
        fallback: See `Task`.
    """

    work: Work
    kind: TaskKind
    in_background: bool = False
    delay: float = 0.0
    fallback: Work | None = None


class SqliteWorker:
    """The thread. It starts with the first task and ends on `stop`, which also runs when its owner is freed."""

    def __init__(self, name: str, handle: Callable[[Sequence[Task]], None], tick: Callable[[], float | None]) -> None:
        """
        Args:
            name: Name of the thread.
            handle: Executes one task, or a group of writing tasks; never raises.
            tick: Called periodically; returns the seconds until it must be called again.
        """
        self._name, self._handle, self._tick = name, handle, tick
        self._queue: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._next_task: Task | Literal[False] | None = False  # taken from the queue, but not part of the group
        self._last_group_size, self._last_group_seconds = 1, 0.0

    def submit(self, task: Task) -> None:
        """Queue a task."""
        with self._lock:
            self._thread = self._thread or start_thread(self._name, self._run)
            self._queue.put(task)

    def stop(self) -> None:
        """Let the thread end after the queued tasks."""
        with self._lock:
            if self._thread is not None:
                self._queue.put(None)

    @property
    def is_idle(self) -> bool:
        """True if the thread does not run."""
        return self._thread is None

    def _run(self) -> None:
        wait: float | None = None
        while True:
            try:
                task = self._take(wait)
            except queue.Empty:
                wait = self._run_tick()
                continue
            if task is None:
                with self._lock:
                    if self._queue.empty():
                        self._thread = None
                        return
                continue
            group = self._collect_group(task) if task.kind in WRITING else [task]
            began = time.perf_counter()
            try:
                self._handle(group)
            except BaseException as problem:  # noqa: BLE001 - the thread goes on, and every task gets a result
                for one in group:
                    one.fail(problem)
                deliver(group)
            self._last_group_size, self._last_group_seconds = len(group), time.perf_counter() - began
            del group, task
            wait = self._run_tick()

    def _run_tick(self) -> float | None:
        try:
            return self._tick()
        except BaseException as problem:  # noqa: BLE001 - no task waits for it, and the thread must go on
            log.warning("%s: what is due now and then failed (%s)", self._name, type(problem).__name__)
            return _TICK_RETRY_DELAY

    def _take(self, wait: float | None) -> Task | None:
        if self._next_task is not False:
            task, self._next_task = self._next_task, False
            return task
        return self._queue.get(timeout=wait)

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
            if task is None or task.kind not in WRITING:
                self._next_task = task
                break
            group.append(task)
        return group


def deliver(tasks: Iterable[Task]) -> None:
    """Complete the futures of tasks; wake each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Task]] = {}
    for task in tasks:
        if task.future is None:
            _report_repairs(task, no_listener=True)
        else:
            by_loop.setdefault(task.future.get_loop(), []).append(task)
    for loop, done in by_loop.items():
        try:
            loop.call_soon_threadsafe(_complete_futures, done)
        except RuntimeError:  # the loop is closed: no caller waits on it
            for task in done:
                _report_repairs(task, no_listener=True)


def _report_repairs(task: Task, *, no_listener: bool = False) -> None:
    for listener, repair in task.repairs:
        report_repair(repair, None if no_listener else listener)


def _complete_futures(tasks: list[Task]) -> None:
    for task in tasks:
        _report_repairs(task)
        if task.future is not None:
            resolve(task.future, task.result, task.error)
