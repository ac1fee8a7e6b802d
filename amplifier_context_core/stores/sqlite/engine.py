"""Run a store's tasks on its database: connections, grouped transactions, and session locks.

The first thread executes all short tasks in order. A long task (a whole history, a search, a check) starts there too,
so that it sees what came before it and nothing after. A second thread finishes it on a connection of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from traceback import clear_frames
from typing import Any

from ...errors import StoreError
from ..protocol import Durability, OnRepair, Repair
from .carry_over import carry_over
from .errors import (
    REPAIR,
    DriverError,
    closes_connection,
    damage_error,
    damaged_messages,
    is_index_damage,
    is_unwritable,
    store_error,
)
from .locks import SessionLocks
from .queries import drop_index
from .repair import repair_database
from .schema import (
    check_not_replaced,
    disconnect,
    is_truncated,
    keep_log,
    make_file,
    open_database,
    open_to_read,
    sidecar,
)
from .secure_erase import erase, is_erase_pending
from .snapshots import Snapshots
from .worker import WRITING, Continuation, SqliteWorker, Task, TaskKind, Work, deliver

log = logging.getLogger(__name__)

Identity = tuple[int, int]  # device and inode of a file
_FAULTS = (sqlite3.Error, OSError)
# Connections of the parent process; closing them after a fork would disturb the parent.
_abandoned: list[sqlite3.Connection | None] = []


class SqliteEngine:
    """Runs the tasks of one store object.

    Attributes:
        path: The database file.
        locks: The sessions that this store object has locked.
    """

    def __init__(self, path: Path, durability: Durability, busy: float) -> None:
        self.path = path
        self.locks = SessionLocks(path)
        self._durability: Durability = durability
        self._busy = busy
        self._db: sqlite3.Connection | None = None
        self._identity: Identity | None = None  # of the file that was opened last
        self._log_identity: Identity | None = None
        self._snapshots = Snapshots(path, busy)
        self._is_synchronous = True
        self._listeners: dict[str, OnRepair | None] = {}
        self._damaged: dict[str, set[int]] = {}
        self._pending_repairs: dict[str, list[Repair]] = {}
        self._delayed: list[tuple[float, Task]] = []
        self._erase_is_resumed = False
        self._pid = os.getpid()
        self._worker = SqliteWorker("sqlite store", self._handle, self._tick)
        self._background = SqliteWorker("sqlite store, long", self._handle_background, lambda: None)

    async def run(self, kind: TaskKind, work: Work, session_id: str = "") -> Any:
        """Run a function as a task, in order. If the caller is cancelled, the task is executed all the same."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(Task(work, kind, session_id, future, original=(work, kind)))
        return await future

    def submit(self, task: Task) -> None:
        """Queue a task."""
        if self._pid != os.getpid():
            if not self._worker.is_idle:
                _abandoned.append(self._db)
                raise StoreError("this store was used before the process forked; make a new one in the child")
            self._pid = os.getpid()
        self._worker.submit(task)

    async def close(self) -> None:
        """Release all sessions and close the connection, after all earlier tasks; a later call opens it again."""
        if not self._worker.is_idle:
            await self.run("no_connection", self._close)

    def abandon(self) -> None:
        """Close without waiting: the store object is gone."""
        if not self._worker.is_idle and self._pid == os.getpid():
            self._worker.submit(Task(self._close, "no_connection"))

    # -- for tasks -----------------------------------------------------------------------------------------------------

    def lock(self, task: Task, session_id: str, *, again: bool = False, to_delete: bool = False) -> bool:
        """Lock a session for a task; if the task fails, release it again. See `SessionLocks.acquire`."""
        self._lose_replaced()
        is_new = self.locks.acquire(session_id, again=again, to_delete=to_delete)
        task.releases_on_error = session_id if is_new else task.releases_on_error
        return is_new

    def begin_session(self, session_id: str, listener: OnRepair | None) -> None:
        """Set the listener for repairs of a session that was opened, and forget its damage."""
        if listener is not None or session_id not in self._listeners:
            self._listeners[session_id] = listener
        self._damaged.pop(session_id, None)

    def end_session(self, session_id: str) -> None:
        """Release a session."""
        self._listeners.pop(session_id, None)
        self._damaged.pop(session_id, None)
        self.locks.release(session_id)

    def note_damage(self, task: Task, session_id: str, keys: Sequence[int]) -> None:
        """Report damaged messages that were left out. The session is not changed until it is opened again."""
        known = self._damaged.setdefault(session_id, set())
        new = len(known.union(keys)) - len(known)
        known.update(keys)
        if new:
            what = f"{new:,} damaged message{' was' if new == 1 else 's were'} left out. {REPAIR}"
            self.report(task, Repair(session_id, what, new))

    def check_undamaged(self, session_id: str) -> None:
        """Raise `StoreError` if a session has damaged messages."""
        if count := len(self._damaged.get(session_id, ())):
            raise damaged_messages(session_id, count, self.path)

    def repair(self, task: Task, listener: OnRepair | None) -> None:
        """Copy what is readable of the database into a new one, and report what was lost."""
        self._disconnect()
        task.repairs += [(listener, repair) for repair in repair_database(self.path)]
        self._damaged.clear()
        self._identity = None

    def report(self, task: Task, repair: Repair) -> None:
        """Report a repair together with the result of a task."""
        task.repairs.append((self._listeners.get(repair.session_id), repair))

    def snapshot(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return another connection, which sees the database as it is now, whatever is written later."""
        return self._snapshots.open(keeps=self._db is not None)  # else a change of the file is not noticed

    # -- in the first thread -------------------------------------------------------------------------------------------

    def _handle(self, tasks: Sequence[Task]) -> None:
        try:
            if tasks[0].kind in WRITING:
                self._write(tasks)
            else:
                self._run_alone(tasks[0])
        except BaseException as problem:  # noqa: BLE001 - becomes the result of the task; the thread goes on
            for task in tasks:
                task.fail(problem)
        self._finish(tasks)

    def _finish(self, tasks: Sequence[Task]) -> None:
        done: list[Task] = []
        for task in tasks:
            task.connection = None
            if ended := task.releases_on_error if task.error is not None else task.releases_on_success:
                self.end_session(ended)
            if isinstance(task.error, _FAULTS):
                if task.fallback is not None and is_unwritable(task.error):
                    task.result, task.error = task.fallback(task), None
                else:  # the only place: no error of the driver passes this line
                    task.error = self._translate_error(task.error)
            for repair in self._pending_repairs.pop(task.session_id, ()):
                self.report(task, repair)
            continuation = task.result
            if task.error is not None or not isinstance(continuation, Continuation):
                done.append(task)
                continue
            task.work, task.kind, task.result, task.fallback = (
                continuation.work,
                continuation.kind,
                None,
                continuation.fallback,
            )
            if continuation.in_background:
                self._background.submit(task)
            elif continuation.delay:
                self._delayed.append((time.monotonic() + continuation.delay, task))
            else:
                self._worker.submit(task)
        deliver(done)

    def _write(self, tasks: Sequence[Task], *, is_retry: bool = False) -> None:
        """Execute tasks in one transaction. A failing task does not affect the others."""
        began = False
        try:
            db = self._database()
            self._set_synchronous(db, any(task.kind == "write" for task in tasks))
            db.execute("BEGIN IMMEDIATE")
            began = True
            for task in tasks:
                self._run_in_group(db, task, alone=len(tasks) == 1)
            if db.in_transaction:
                db.execute("COMMIT")
        except _FAULTS as problem:
            self._roll_back(problem)
            for task in tasks:
                task.reset()
            if began and len(tasks) > 1:
                for task in tasks:
                    self._write([task])
            elif not is_retry and self._is_worth_retrying(problem, tasks[0]):
                self._write(tasks, is_retry=True)
            else:
                for task in tasks:
                    task.fail(problem)
        except BaseException as problem:  # noqa: BLE001 - becomes the result of the task
            self._roll_back(problem)
            for task in tasks:
                task.fail(StoreError(str(problem)) if type(problem) is StoreError else problem)

    def _set_synchronous(self, db: sqlite3.Connection, wanted: bool) -> None:
        """Make the next commits wait for the disk, or not: a search index need not survive a power failure."""
        if wanted != self._is_synchronous and self._durability == "fsync":
            db.execute(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self._is_synchronous = wanted

    def _run_in_group(self, db: sqlite3.Connection, task: Task, *, alone: bool) -> None:
        task.connection = db
        if not alone:
            db.execute("SAVEPOINT part")
        try:
            task.result = task.work(task)
        except _FAULTS:
            raise  # a fault of the file or the disk: the state of the transaction is unknown
        except Exception as problem:  # noqa: BLE001 - becomes the result of the task
            task.fail(problem)
            db.execute("ROLLBACK" if alone else "ROLLBACK TO part")
        if not alone:
            db.execute("RELEASE part")

    def _run_alone(self, task: Task, *, is_retry: bool = False) -> None:
        """Execute a task that reads from one snapshot, or one outside any transaction."""
        try:
            if task.kind == "no_connection":
                task.result = task.work(task)
                return
            with self._connection(creates=task.kind != "read") as db:
                task.connection = db
                if task.kind == "read":
                    db.execute("BEGIN")
                task.result = task.work(task)
                if db.in_transaction:
                    db.execute("COMMIT")
        except _FAULTS as problem:
            self._roll_back(problem)
            task.reset()
            if task.kind != "no_connection" and not is_retry and self._is_worth_retrying(problem, task):
                self._run_alone(task, is_retry=True)
            else:
                task.fail(problem)
        except Exception as problem:  # noqa: BLE001 - becomes the result of the task
            self._roll_back(problem)
            task.fail(problem)

    def _roll_back(self, problem: BaseException) -> None:
        """Roll back what is not committed. Close the connection after errors that make it unusable."""
        clear_frames(problem.__traceback__)  # a cursor in a frame would keep the file of a closed connection open
        db = self._db
        if db is None:
            return
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        if closes_connection(problem) or db.in_transaction or (isinstance(problem, _FAULTS) and self._is_replaced()):
            self._disconnect()

    def _translate_error(self, problem: DriverError) -> StoreError:
        error = store_error(problem, self.path)
        error.__cause__ = problem
        return error

    @contextmanager
    def _connection(self, *, creates: bool) -> Generator[sqlite3.Connection]:
        """Yield the connection; for a task that must not create a database, possibly a read-only one of its own."""
        read_only: sqlite3.Connection | None = None
        if not creates and self._db is None:
            try:
                if self.path.exists():
                    self._database()
            except _FAULTS as problem:
                if not is_unwritable(problem):
                    raise
            if self._db is None:
                read_only = open_to_read(self.path, self._busy)
        try:
            yield read_only or self._database()
        finally:
            if read_only is not None:
                disconnect(read_only, self.path)

    def _is_replaced(self) -> bool:
        """True if the file at the path is not the one that was opened last."""
        return self._identity is not None and _identity_of(self.path) != self._identity

    def _lose_replaced(self) -> None:
        """Give up the sessions of a file that is gone: the one at its path may hold something else."""
        if self._db is None and self.locks.held and self._is_replaced():
            self.locks.lose_all(f"removed or replaced {self.path}")
            self._identity = None

    def _is_log_left(self) -> bool:
        return self._log_identity is not None and _identity_of(sidecar(self.path, "-wal")) == self._log_identity

    def _database(self) -> sqlite3.Connection:
        if self._db is None:
            self._lose_replaced()
            check_not_replaced(self.path)
            make_file(self.path)
            db = open_database(self.path, self._durability, self._busy, carry_over)
            self._db, self._is_synchronous = db, True
            self._identity, self._log_identity = _identity_of(self.path), _identity_of(sidecar(self.path, "-wal"))
            if is_truncated(db, self.path):
                self._disconnect()
                raise damage_error("the file is shorter than it should be")
            if not self._erase_is_resumed:
                self._erase_is_resumed = True
                if is_erase_pending(db):
                    self._worker.submit(Task(partial(erase, self.path), "write"))
        return self._db

    def _disconnect(self) -> None:
        self._snapshots.close()  # first: the last connection to a database removes its log, if it may write
        db, self._db = self._db, None
        if db is None:
            return
        with suppress(*_FAULTS):
            disconnect(db, self.path)
        with suppress(*_FAULTS):
            if self._is_replaced() and self.path.exists() and self._is_log_left():
                kept = keep_log(self.path)  # SQLite would merge the log of the former file into the other one
                log.warning("another program replaced %s while it was in use; its log is kept as %s", self.path, kept)

    def _is_worth_retrying(self, problem: DriverError, task: Task) -> bool:
        """True if a task that failed is worth another attempt. A damaged search index is dropped first.

        The next search fills it again.
        """
        if is_index_damage(problem) and self._drop_search_index():
            repair = Repair(task.session_id, "the search index was damaged; the next search fills it again")
            self._pending_repairs.setdefault(task.session_id, []).append(repair)
            return True
        return False

    def _drop_search_index(self) -> bool:
        """Drop the search index. Return False if it is too damaged even for that."""
        db = self._database()
        try:
            db.execute("BEGIN IMMEDIATE")
            drop_index(db)
            db.execute("COMMIT")
        except sqlite3.Error as problem:
            self._roll_back(problem)
            if is_unwritable(problem):
                raise
            return False
        return True

    def _close(self, task: Task) -> None:
        try:
            self._disconnect()
        finally:
            self.locks.release_all()
            self._listeners.clear()
            self._damaged.clear()
            self._identity = None
            self._erase_is_resumed = False
            self._worker.stop()
            self._background.stop()

    def _tick(self) -> float | None:
        """Submit delayed tasks that are due. Return the seconds until the next tick."""
        if not self._delayed:
            return None
        now = time.monotonic()
        for when, task in self._delayed:
            if when <= now:
                self._worker.submit(task)
        self._delayed = [(when, task) for when, task in self._delayed if when > now]
        return max(0.001, min((when - now for when, _ in self._delayed), default=0.001))

    # -- in the second thread ------------------------------------------------------------------------------------------

    def _handle_background(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            try:
                task.result = task.work(task)
            except _FAULTS as problem:
                clear_frames(problem.__traceback__)
                if is_index_damage(problem) and not task.retried and task.original is not None:
                    task.retried = True
                    task.result = Continuation(
                        lambda task, problem=problem: self._restart(task, problem), "no_connection"
                    )
                else:
                    task.fail(problem)
            except BaseException as problem:  # noqa: BLE001 - becomes the result of the task; the thread goes on
                task.fail(problem)
        self._finish(tasks)

    def _restart(self, task: Task, problem: DriverError) -> Continuation:
        """Drop in the first thread the search index that a task found damaged in the second, and restart the task."""
        self._is_worth_retrying(problem, task)
        assert task.original is not None  # noqa: S101 - the caller checks it
        return Continuation(*task.original)


def _identity_of(path: Path) -> Identity | None:
    """Return the identity of a file; None if it does not exist."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
