"""A thread that does what event loops must not wait in, one job after another, and tells each loop when it is done.

Loops come and go, and are told in the way that asks nothing of them: a loop that was closed meanwhile misses its
answer, the job is done all the same. Jobs that write may come in groups: those that queue up while one group is being
made durable are the next group.
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
_TICK_RETRY_DELAY = 1.0  # seconds until a tick that failed is tried again
_MAX_LINGER = 0.001  # seconds for those who wrote in the last group as well

TaskKind = Literal["read", "write", "write_unsynced", "acquire", "release", "no_transaction", "no_connection"]
WRITING: frozenset[TaskKind] = frozenset({"write", "write_unsynced", "acquire", "release"})
Work = Callable[["Task"], Any]


@dataclass(slots=True, eq=False)
class Task:
    """One call of a store, until it is answered.

    Attributes:
        work: what to do; what it returns is the answer, or a `Then`.
        kind: `read` sees one moment of the database, `write` is part of a transaction, `note` of one that need not be
            on disk yet, `alone` is in none, `apart` does not use the connection at all. `claim` and `leave` are notes
            that take a session, or let it go, as it is in the database that is there now.
        session_id: whose session it is about, for those who are told of repairs.
        begin: how it began, when it must begin again.
        future: where the answer goes; None when nobody asked.
        answer, error: how it ended.
        repairs: what was found damaged on the way, and who is told.
        tried: it met a damaged database before.
        otherwise: gives the answer where nothing can be written: a full disk, a file system for reading only.
        connection: see `db`.
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

    @property
    def db(self) -> sqlite3.Connection:
        """The connection to work with, in a transaction that fits the kind."""
        if self.connection is None:
            raise RuntimeError(f"a job of kind {self.kind!r} has no connection")
        return self.connection

    def reset(self) -> None:
        """It will be tried again: how it ended is forgotten."""
        self.result = self.error = None
        self.repairs.clear()

    def fail(self, problem: BaseException) -> None:
        """It ended like this."""
        self.result, self.error = None, problem


@dataclass(slots=True)
class Continuation:
    """What a job returns that is not done: how it goes on, after others had their turn.

    Attributes:
        elsewhere: in the thread for what takes long.
        after: seconds to wait before.
        otherwise: see `Job`.
    """

    work: Work
    kind: TaskKind
    in_background: bool = False
    delay: float = 0.0
    fallback: Work | None = None


class SqliteWorker:
    """The thread. It starts with the first job and ends when it is told to, or nobody holds what it works for."""

    def __init__(self, name: str, handle: Callable[[Sequence[Task]], None], tick: Callable[[], float | None]) -> None:
        """
        Args:
            name: of the thread.
            handle: does one job, or a group of jobs that write; never raises.
            tick: called now and then; says in how many seconds it wants to be called again.
        """
        self._name, self._handle, self._tick = name, handle, tick
        self._queue: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._next_task: Task | Literal[False] | None = False  # taken from the queue, but no part of the group
        self._last_group_size, self._last_group_seconds = 1, 0.0

    def submit(self, task: Task) -> None:
        """Have a job done, after those that were put before."""
        with self._lock:
            self._thread = self._thread or start_thread(self._name, self._run)
            self._queue.put(task)

    def stop(self) -> None:
        """Let the thread end when it has done what was put before."""
        with self._lock:
            if self._thread is not None:
                self._queue.put(None)

    @property
    def is_idle(self) -> bool:
        """Is nothing to be done, as far as one can see?"""
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
            except BaseException as problem:  # noqa: BLE001 - the thread goes on, and every caller is answered
                for one in group:
                    one.fail(problem)
                deliver(group)
            self._last_group_size, self._last_group_seconds = len(group), time.perf_counter() - began
            del group, task
            wait = self._run_tick()

    def _run_tick(self) -> float | None:
        try:
            return self._tick()
        except BaseException as problem:  # noqa: BLE001 - no job asked for it, and the thread must go on
            log.warning("%s: what is due now and then failed (%s)", self._name, type(problem).__name__)
            return _TICK_RETRY_DELAY

    def _take(self, wait: float | None) -> Task | None:
        if self._next_task is not False:
            task, self._next_task = self._next_task, False
            return task
        return self._queue.get(timeout=wait)

    def _collect_group(self, first: Task) -> list[Task]:
        """A job that writes and those that queue behind it.

        Who wrote together the last time is waited for, a moment: one that comes too late pays for the whole group once
        more. A single writer never waits.
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
    """Tell the loops that asked how their jobs ended; each loop is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Task]] = {}
    for task in tasks:
        if task.future is None:
            _report_repairs(task, no_listener=True)
        else:
            by_loop.setdefault(task.future.get_loop(), []).append(task)
    for loop, done in by_loop.items():
        try:
            loop.call_soon_threadsafe(_complete_futures, done)
        except RuntimeError:  # it is closed: nobody waits there
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
