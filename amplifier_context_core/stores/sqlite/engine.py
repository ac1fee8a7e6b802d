"""Run a store's tasks on its database, in one thread: the connection, grouped transactions, and session locks."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import clear_frames
from typing import Any, TypeVar

from ...errors import StoreError
from ..protocol import Durability, Repair
from .carry_over import carry_over
from .errors import closes_connection, damage_error, is_unwritable, store_error
from .locks import SessionLocks
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
from .secure_erase import erase_now, is_erase_pending
from .worker import SqliteWorker, Task, deliver

log = logging.getLogger(__name__)

T = TypeVar("T")
Identity = tuple[int, int]  # device and inode of a file
_FAULTS = (sqlite3.Error, OSError)
# Connections of the parent process; closing them after a fork would disturb the parent.
_abandoned: list[sqlite3.Connection | None] = []


class SqliteEngine:
    """Runs the tasks of one store object. If a caller is cancelled, its task is executed all the same.

    Attributes:
        path: The database file.
        locks: The sessions that this store object has locked. Only tasks use it.
    """

    def __init__(self, path: Path, durability: Durability, busy: float) -> None:
        self.path = path
        self.locks = SessionLocks(path)
        self._durability: Durability = durability
        self._busy = busy
        self._db: sqlite3.Connection | None = None
        self._identity: Identity | None = None  # of the file that was opened last
        self._log_identity: Identity | None = None
        self._erase_is_resumed = False
        self._pid = os.getpid()
        self._worker = SqliteWorker("sqlite store", self._handle)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function that reads from one snapshot. Where there is no database, it is an empty one in memory."""
        return await self._run(Task(work, "read"))

    async def write(self, work: Callable[[sqlite3.Connection], T], session_id: str = "", *, deletes: bool = False) -> T:
        """Run a function in a transaction, perhaps together with others, and lock a session before.

        Args:
            work: The function.
            session_id: The session; empty for none.
            deletes: It deletes the session, which is released afterwards.
        """
        return await self._run(Task(work, "write", session_id, deletes))

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function outside any transaction."""
        return await self._run(Task(work, "plain"))

    async def close(self) -> None:
        """Release all sessions and close the connection, after all earlier tasks; a later call opens it again."""
        if not self._worker.is_idle:
            await self.run(self._close)

    def abandon(self) -> None:
        """Close without waiting: the store object is gone."""
        if not self._worker.is_idle and self._pid == os.getpid():
            self._worker.submit(Task(self._close, "plain"))

    async def _run(self, task: Task) -> Any:
        if self._pid != os.getpid():
            if not self._worker.is_idle:
                _abandoned.append(self._db)
                raise StoreError("this store was used before the process forked; make a new one in the child")
            self._pid = os.getpid()
        task.future = asyncio.get_running_loop().create_future()
        self._worker.submit(task)
        return await task.future

    # -- for tasks -----------------------------------------------------------------------------------------------------

    def lock(self, session_id: str, *, again: bool = False, to_delete: bool = False) -> bool:
        """Lock a session. See `SessionLocks.acquire`."""
        self._lose_replaced()
        return self.locks.acquire(session_id, again=again, to_delete=to_delete)

    def database(self) -> sqlite3.Connection:
        """Return the connection; open it if need be."""
        if self._db is None:
            self._lose_replaced()
            check_not_replaced(self.path)
            make_file(self.path)
            db = self._db = open_database(self.path, self._durability, self._busy, carry_over)
            self._identity, self._log_identity = _identity_of(self.path), _identity_of(sidecar(self.path, "-wal"))
            if is_truncated(db, self.path):
                self._disconnect()
                raise damage_error("the file is shorter than it should be")
            if not self._erase_is_resumed:
                self._erase_is_resumed = True
                if is_erase_pending(db):
                    self._worker.submit(Task(self._resume_erasing, "plain"))
        return self._db

    def repair(self) -> list[Repair]:
        """Copy what is readable of the database into a new one, and return what was lost."""
        self._disconnect()
        repairs = repair_database(self.path)
        self._identity = None
        return repairs

    def _resume_erasing(self) -> None:
        erase_now(self.database, self.path)

    # -- running tasks -------------------------------------------------------------------------------------------------

    def _handle(self, tasks: Sequence[Task]) -> None:
        try:
            if tasks[0].kind == "write":
                self._write(tasks)
            else:
                self._run_alone(tasks[0])
        except BaseException as problem:  # noqa: BLE001 - becomes the result of the task; the thread goes on
            self._roll_back(problem)
            for task in tasks:
                task.fail(problem)
        for task in tasks:
            if (task.has_locked and task.error is not None) or (task.deletes and task.error is None):
                self.locks.release(task.session_id)
            if isinstance(task.error, _FAULTS):  # the only place: no error of the driver passes this line
                error = store_error(task.error, self.path)
                error.__cause__ = task.error
                task.error = error
        deliver(tasks)

    def _write(self, tasks: Sequence[Task]) -> None:
        """Execute tasks in one transaction. A failing task does not affect the others."""
        began = False
        try:
            db = self.database()
            db.execute("BEGIN IMMEDIATE")
            began = True
            for task in tasks:
                self._run_in_group(db, task, alone=len(tasks) == 1)
            if db.in_transaction:
                db.execute("COMMIT")
        except _FAULTS as problem:
            self._roll_back(problem)
            for task in tasks:
                task.fail(problem)
            if began and len(tasks) > 1:
                for task in tasks:
                    task.error = None
                    self._write([task])

    def _run_in_group(self, db: sqlite3.Connection, task: Task, *, alone: bool) -> None:
        if not alone:
            db.execute("SAVEPOINT part")
        try:
            if task.session_id:
                task.has_locked |= self.lock(task.session_id, to_delete=task.deletes)
            task.result = task.work(db)
        except _FAULTS:
            raise  # a fault of the file or the disk: the state of the transaction is unknown
        except Exception as problem:  # noqa: BLE001 - becomes the result of the task
            task.fail(problem)
            db.execute("ROLLBACK" if alone else "ROLLBACK TO part")
        if not alone:
            db.execute("RELEASE part")

    def _run_alone(self, task: Task) -> None:
        if task.kind == "plain":
            task.result = task.work()
            return
        with self._connection_to_read() as db:
            db.execute("BEGIN")
            task.result = task.work(db)
            db.execute("COMMIT")

    @contextmanager
    def _connection_to_read(self) -> Generator[sqlite3.Connection]:
        """Yield the connection; where nothing can be written, or there is no database, one for this task."""
        self._lose_replaced()
        try:
            if self._db is not None or self.path.exists():
                self.database()
        except _FAULTS as problem:
            if not is_unwritable(problem):
                raise
        if self._db is not None:
            yield self._db
            return
        db = open_to_read(self.path, self._busy)
        try:
            yield db
        finally:
            disconnect(db, self.path)

    def _roll_back(self, problem: BaseException) -> None:
        """Roll back what is not committed. Close the connection after errors that make it unusable."""
        clear_frames(problem.__traceback__)  # a cursor in a frame would keep the file of a closed connection open
        db = self._db
        if db is None:
            return
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        is_fault = isinstance(problem, _FAULTS)
        if db.in_transaction or (is_fault and (closes_connection(problem) or self._is_replaced())):
            self._disconnect()

    # -- the file ------------------------------------------------------------------------------------------------------

    def _is_replaced(self) -> bool:
        """True if the file at the path is not the one that was opened last. SQLite does not check that."""
        return self._identity is not None and _identity_of(self.path) != self._identity

    def _lose_replaced(self) -> None:
        """Give up the sessions of a file that is gone: the one at its path may hold something else."""
        if self._db is None and self.locks.held and self._is_replaced():
            self.locks.lose_all(f"removed or replaced {self.path}")
            self._identity = None

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is None:
            return
        with suppress(*_FAULTS):
            disconnect(db, self.path)
        with suppress(*_FAULTS):
            if self._is_replaced() and self.path.exists() and self._is_log_left():
                kept = keep_log(self.path)  # SQLite would merge the log of the former file into the other one
                log.warning("another program replaced %s while it was in use; its log is kept as %s", self.path, kept)

    def _is_log_left(self) -> bool:
        return self._log_identity is not None and _identity_of(sidecar(self.path, "-wal")) == self._log_identity

    def _close(self) -> None:
        try:
            self._disconnect()
        finally:
            self.locks.release_all()
            self._identity, self._erase_is_resumed = None, False
            self._worker.stop()


def _identity_of(path: Path) -> Identity | None:
    """Return the identity of a file; None if it does not exist."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
