"""Run a store's tasks on its database: connections, grouped transactions, and leases.

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
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from traceback import clear_frames
from typing import Any

from ...errors import StoreError
from ..protocol import Durability, OnRepair, Repair
from .errors import (
    REPAIR,
    DriverError,
    closes_connection,
    damage_error,
    damaged_messages,
    is_index_damage,
    is_moved,
    is_unwritable,
    moved_error,
    store_error,
)
from .file_identity import DatabaseFiles
from .leases import TTL, Leases
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
from .search import drop_index
from .secure_erase import erase, is_erase_pending
from .snapshots import Snapshots
from .worker import WRITING, Continuation, SqliteWorker, Task, TaskKind, Work, deliver

log = logging.getLogger(__name__)

_FAULTS = (sqlite3.Error, OSError)
# Connections of the parent process; closing them after a fork would disturb the parent.
_abandoned: list[sqlite3.Connection | Snapshots] = []


class SqliteEngine:
    """Runs the tasks of one store object.

    Attributes:
        path: The database file.
        leases: The leases of this store object.
    """

    def __init__(self, path: Path, durability: Durability, busy: float) -> None:
        self.path = path
        self.leases = Leases()
        self._durability: Durability = durability
        self._busy = busy
        self._db: sqlite3.Connection | None = None
        self._files = self._make_files()
        self._snapshots = Snapshots(path, busy)
        self._is_synchronous = True
        self._listeners: dict[str, OnRepair | None] = {}
        self._damaged: dict[str, set[int]] = {}
        self._pending_repairs: dict[str, list[Repair]] = {}
        self._delayed: list[tuple[float, Task]] = []
        self._next_renewal = 0.0
        self._erase_is_resumed = False
        self._make_workers()

    def _make_workers(self) -> None:
        self._pid = os.getpid()
        self._worker = SqliteWorker("sqlite store", self._handle, self._tick)
        self._background = SqliteWorker("sqlite store, long", self._handle_background, lambda: None)

    def _make_files(self) -> DatabaseFiles:
        return DatabaseFiles(self.path, sidecar(self.path, "-wal"))

    async def run(self, kind: TaskKind, work: Work, session_id: str = "") -> Any:
        """Run a function as a task, in order. If the caller is cancelled, the task is executed all the same."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(Task(work, kind, session_id, future, original=(work, kind)))
        return await future

    def submit(self, task: Task) -> None:
        """Queue a task."""
        if self._pid != os.getpid():
            self._reset_after_fork()
        self._worker.submit(task)

    async def close(self) -> None:
        """Release all leases and close the connection, after all earlier tasks; a later call opens it again."""
        if not self._worker.is_idle:
            await self.run("no_connection", self._close)

    def abandon(self) -> None:
        """Close without waiting: the store object is gone."""
        if not self._worker.is_idle and self._pid == os.getpid():
            self._worker.submit(Task(self._close, "no_connection"))

    # -- for tasks -----------------------------------------------------------------------------------------------------

    def set_listener(self, session_id: str, listener: OnRepair | None) -> None:
        """Set the listener for repairs of a session."""
        if listener is not None or session_id not in self._listeners:
            self._listeners[session_id] = listener

    def forget_session(self, session_id: str) -> None:
        """Forget the listener for repairs of a session, and its damage."""
        self._listeners.pop(session_id, None)
        self._damaged.pop(session_id, None)

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
        self.leases.held.clear()  # the new file has none; no other process could use the database

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
            if self._db is None:  # with a connection, the check before the commit is enough, and each check costs time
                self._check_file_identity()
            if self.leases.lost:
                tasks = [
                    task for task in tasks if task.kind in ("acquire", "release") or not self._fail_if_orphaned(task)
                ]
            if not tasks:
                return
            kinds = {task.kind for task in tasks}
            opened = nullcontext(self._db) if self._db else self._connection(creates=kinds != {"release"})
            with opened as db:
                self._set_synchronous(db, "write" in kinds)
                db.execute("BEGIN IMMEDIATE")
                began = True
                for task in tasks:
                    self._run_in_group(db, task, alone=len(tasks) == 1)
                if self._check_file_identity():  # this transaction may have waited for other processes
                    raise moved_error("the file is not at its path any more")
                if db.in_transaction:
                    db.execute("COMMIT")
                if self._check_file_identity():  # acknowledged data must be in the file at the path
                    raise moved_error("the file is not at its path any more")
            self.leases.finish_transaction(True)
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
        """Make the next commits wait for the disk, or not: a lease need not survive a power failure."""
        if wanted != self._is_synchronous and self._durability == "fsync":
            db.execute(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self._is_synchronous = wanted

    def _run_in_group(self, db: sqlite3.Connection, task: Task, *, alone: bool) -> None:
        staged = self.leases.staged_changes()
        task.connection = db
        if not alone:
            db.execute("SAVEPOINT part")
        try:
            task.result = task.work(task)
        except _FAULTS:
            raise  # a fault of the file or the disk: the state of the transaction is unknown
        except Exception as problem:  # noqa: BLE001 - becomes the result of the task
            task.fail(problem)
            self.leases.restore_staged(staged)
            db.execute("ROLLBACK" if alone else "ROLLBACK TO part")
        if not alone:
            db.execute("RELEASE part")

    def _run_alone(self, task: Task, *, is_retry: bool = False) -> None:
        """Execute a task that reads from one snapshot, or one outside any transaction."""
        try:
            if task.kind == "no_connection":
                task.result = task.work(task)
                return
            self._check_file_identity()
            if self._fail_if_orphaned(task):
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
        self.leases.finish_transaction(False)
        clear_frames(problem.__traceback__)  # a cursor in a frame would keep the file of a closed connection open
        db = self._db
        if db is None:
            return
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        if closes_connection(problem) or db.in_transaction:
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

    def _fail_if_orphaned(self, task: Task) -> bool:
        """Fail a task if the database of its session's lease is gone. Return True if it failed."""
        if not self.leases.is_orphaned(task.session_id):
            return False
        task.fail(self.leases.lost[task.session_id].with_traceback(None))
        return True

    def _check_file_identity(self) -> bool:
        """True if the file was removed or replaced. The connection is closed then, and all leases are orphaned."""
        if self._db is None:
            if self.leases.held:
                check_not_replaced(self.path)
                if not self.path.exists():
                    self.leases.orphan_all(f"removed {self.path}")
            return False
        change = self._files.change()
        if not change:
            return False
        log.warning("another program %s while it was in use", change)
        if self._files.is_database_there() and self._files.is_log_there():
            log.warning("the log of the former database %s is kept as %s", self.path, keep_log(self.path))
        self._disconnect()
        self.leases.orphan_all(change)
        return True

    def _database(self) -> sqlite3.Connection:
        while self._db is None:
            self._disconnect()  # a failed attempt has left its file identities
            check_not_replaced(self.path)
            make_file(self.path)
            self._files.note_database()
            self._db, self._is_synchronous = open_database(self.path, self._durability, self._busy), True
            self._files.note_log()
            if self._files.change():  # another process replaced the file meanwhile
                self._disconnect()
            elif is_truncated(self._db, self.path):
                self._disconnect()
                raise damage_error("the file is shorter than it should be")
            elif not self._erase_is_resumed:
                self._erase_is_resumed = True
                if is_erase_pending(self._db):
                    self._worker.submit(Task(partial(erase, self.path), "write"))
        return self._db

    def _disconnect(self) -> None:
        self._snapshots.close()  # first: the last connection to a database removes its log, if it may write
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                disconnect(db, self.path)
        self._files.close()

    def _is_worth_retrying(self, problem: DriverError, task: Task) -> bool:
        """True if a task that failed is worth another attempt. A damaged search index is dropped first.

        The next search fills it again.
        """
        if is_index_damage(problem) and self._drop_search_index():
            repair = Repair(task.session_id, "the search index was damaged; the next search fills it again")
            self._pending_repairs.setdefault(task.session_id, []).append(repair)
            return True
        return is_moved(problem)

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
            self._check_file_identity()
            if self.leases.held:
                db = self._database()
                db.execute("BEGIN IMMEDIATE")
                for session_id in self.leases.held:
                    self.leases.release(db, session_id)
                db.execute("COMMIT")
                self.leases.finish_transaction(True)
            self.leases.lost.clear()
        finally:
            self._disconnect()
            self.leases.finish_transaction(False)
            self.leases.retire()
            self._next_renewal = 0.0
            self._listeners.clear()
            self._damaged.clear()
            self._erase_is_resumed = False
            self._worker.stop()
            self._background.stop()

    def _tick(self) -> float | None:
        """Submit delayed tasks that are due, and renew the leases. Return the seconds until the next tick."""
        if not self._delayed and not self.leases.held:
            return None
        now = time.monotonic()
        waits: list[float] = []
        if self._delayed:
            for when, task in self._delayed:
                if when <= now:
                    self._worker.submit(task)
            self._delayed = [(when, task) for when, task in self._delayed if when > now]
            waits += [when - now for when, _ in self._delayed]
        if self.leases.held and self._db is not None:
            if self._next_renewal <= now:
                if self._next_renewal:
                    self._renew(self._db)
                self._next_renewal = now + TTL / 3
            waits.append(self._next_renewal - now)
        return max(0.001, min(waits)) if waits else None

    def _renew(self, db: sqlite3.Connection) -> None:
        try:
            self._set_synchronous(db, wanted=False)
            db.execute("BEGIN IMMEDIATE")
            self.leases.renew(db)
            db.execute("COMMIT")
        except sqlite3.Error as problem:
            log.debug("leases were not renewed: %s", type(problem).__name__)
            self._roll_back(problem)

    def _reset_after_fork(self) -> None:
        """Start over in a forked process: threads, connection and leases belong to the parent."""
        if self._db is not None:
            _abandoned.extend((self._db, self._snapshots))
        self._db, self._files, self._delayed = None, self._make_files(), []
        self._snapshots = Snapshots(self.path, self._busy)
        self.leases = Leases()
        self._make_workers()

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
