"""Run a store's tasks on its database, in one thread: the connection, grouped transactions, and session locks."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from traceback import clear_frames
from typing import Any, TypeVar

from ...errors import OutcomeUnknown, StoreError
from ..protocol import Durability, Repair
from .carry_over import carry_over
from .errors import code_of, is_unwritable, store_error
from .journal import JournalMode
from .locks import SessionLocks
from .repair import repair_database
from .schema import (
    keep_log,
    open_database,
    open_to_read,
    sidecar,
)
from .secure_erase import erase_now, is_erase_pending
from .verify import verify
from .worker import SqliteWorker, Task

log = logging.getLogger(__name__)

T = TypeVar("T")
Identity = tuple[int, int]  # device and inode of a file
_FAULTS = (sqlite3.Error, OSError)
# Connections of the parent process; closing them after a fork would disturb the parent.
_abandoned: list[sqlite3.Connection | None] = []


class Companion:
    """What belongs to a database of one session beside its file. This one is for a database of many: nothing.

    All methods are called in the thread of the tasks.
    """

    holds_one = False  # the database holds one session

    def fill(self, db: sqlite3.Connection) -> None:
        """Write the first rows of a new database, in the transaction that creates it."""

    def on_connect(self) -> None:
        """The engine opened its database."""

    def open_in_memory(self) -> sqlite3.Connection | None:
        """Return what the database would hold if it was created now, for readers; it stays open."""

    def begin(self, *, is_new: bool) -> None:
        """The session is locked, before an opening or a transaction; `is_new` if it was not locked before."""

    def before_commit(self, db: sqlite3.Connection) -> None:
        """Record what will be written after the commit, in the same transaction."""

    def after_commit(self, db: sqlite3.Connection) -> None:
        """Write it. Never raises."""

    def on_change(self, keep: int | None, added: Sequence[bytes]) -> None:
        """The transaction leaves the first `keep` messages as they are (None: all), and adds these after them."""

    def on_erase(self, *, messages: bool) -> None:
        """The transaction erases messages, or else only what may be among quarantined bytes."""

    def finish_erasing(self) -> None:
        """Raise `NotErased` if erased messages may be left beside the database."""

    def on_release(self) -> None:
        """The session is about to be unlocked."""

    def problems(self) -> list[str]:
        """Return what is wrong beside the database, one line each."""
        return []


class SqliteEngine:
    """Runs the tasks of one store object. If a caller is cancelled, its task is executed all the same."""

    def __init__(
        self,
        path: Path,
        durability: Durability,
        busy: float,
        *,
        journal: JournalMode | None = None,
        worker: SqliteWorker | None = None,
        locks: SessionLocks | None = None,
        companion: Companion | None = None,
    ) -> None:
        """Open nothing yet. `busy` is in seconds; a `worker` that several engines share is stopped by its owner."""
        self.path = path
        self.locks = locks or SessionLocks(sidecar(path, ".locks"))
        self.companion = companion or Companion()
        self.reports: list[Repair] = []  # of the companion; the store takes them out after each call
        self._durability: Durability = durability
        self._busy = busy
        self._journal: JournalMode | None = journal
        self._db: sqlite3.Connection | None = None
        self._identity: Identity | None = None  # of the file that was opened last
        self._log_identity: Identity | None = None
        self._owns_worker = worker is None
        self._worker = worker or SqliteWorker("sqlite store")

    async def run(self, work: Callable[[], T]) -> T:
        return await self._run(Task(partial(self._alone, work)))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function that reads from one snapshot. Where there is no database, it is an empty one in memory."""

        def read() -> T:
            with self.reading() as db:
                return work(db)

        return await self.run(read)

    async def write(self, work: Callable[[sqlite3.Connection], T], session_id: str = "", *, deletes: bool = False) -> T:
        """Run a function in a transaction, perhaps together with others. Lock a session before, and release it if the
        function `deletes` it.
        """
        return await self._run(Task(work, self._commit, session_id, deletes))

    async def close(self) -> None:
        """Release all sessions and close the connection, after all earlier tasks; a later call opens it again."""
        if self._worker.thread is not None:
            await self.run(self._close)

    def abandon(self) -> None:
        """Close without waiting: the store object is gone."""
        if self._worker.thread is not None:
            with suppress(StoreError):  # of the parent process
                self._worker.submit(Task(partial(self._alone, self._close)))

    async def _run(self, task: Task) -> Any:
        try:
            return await self._worker.run(task)
        finally:
            if self._worker.is_of_parent:
                _abandoned.append(self._db)

    # -- for tasks -----------------------------------------------------------------------------------------------------

    def lock(self, session_id: str, *, to_delete: bool = False) -> bool:
        self._check_not_replaced()
        return self.locks.acquire(session_id, to_delete=to_delete)

    def open(self, session_id: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Lock a session, and read from it. An error leaves the lock as it was."""
        is_new = self.lock(session_id)
        try:
            self.companion.begin(is_new=is_new)
        except BaseException:
            if is_new:
                self.locks.release(session_id)
            raise
        try:
            with self.reading() as db:  # locked first: no other writer changes what is read then
                return work(db)
        except BaseException:
            if is_new:
                self.release(session_id)
            raise

    def release(self, session_id: str) -> None:
        """Release a session; a no-op if it is not locked."""
        try:
            self.companion.on_release()
        finally:
            self.locks.release(session_id)

    def verify(self, session_id: str | None) -> list[str]:
        return verify(self.path, session_id, self._busy)

    def database(self) -> sqlite3.Connection:
        if self._db is None:
            self._check_not_replaced()
            fill = self.companion.fill if self.companion.holds_one else None
            db = self._db = open_database(self.path, self._durability, self._busy, carry_over, fill, self._journal)
            self._identity, self._log_identity = _identity_of(self.path), _identity_of(sidecar(self.path, "-wal"))
            if is_erase_pending(db):
                self._worker.submit(Task(partial(self._alone, partial(erase_now, self.database, self.path))))
            self.companion.on_connect()
        return self._db

    def repair(self) -> list[Repair]:
        self.disconnect()
        repairs = repair_database(self.path)
        self.expect_replaced()
        return repairs

    def expect_replaced(self) -> None:
        """Take whatever file is at the path when it is opened next."""
        self._identity = None

    @property
    def is_connected(self) -> bool:
        return self._db is not None

    @property
    def is_busy(self) -> bool:
        return self._db is not None and self._db.in_transaction

    @property
    def is_replaced(self) -> bool:
        """True if the file at the path is not the one that was opened last. SQLite does not check that."""
        return self._identity is not None and _identity_of(self.path) != self._identity

    # -- running tasks -------------------------------------------------------------------------------------------------

    def _alone(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except BaseException as problem:
            self._roll_back(problem)
            if isinstance(problem, _FAULTS):
                raise store_error(problem, self.path) from problem
            raise

    def _commit(self, tasks: Sequence[Task]) -> None:
        locked = [task for task in tasks if self._has_lock(task)]
        if locked:
            self._write(locked)
        deleted = {task.session_id: task.deletes for task in tasks if task.error is None}  # by the last change made
        for task in tasks:
            if deleted.get(task.session_id, task.has_locked):
                try:
                    self.release(task.session_id)
                except (StoreError, *_FAULTS) as problem:
                    task.error = task.error or problem
            if isinstance(task.error, _FAULTS):
                error = store_error(task.error, self.path)
                error.__cause__ = task.error
                task.error = error

    def _has_lock(self, task: Task) -> bool:
        """Lock the session of a task, if it has one. Return False if that failed, which is its result."""
        try:
            if task.session_id:
                task.has_locked = self.lock(task.session_id, to_delete=task.deletes)
        except (StoreError, OSError) as problem:
            task.fail(problem)
            return False
        return True

    def _write(self, tasks: Sequence[Task]) -> None:
        """Execute tasks in one transaction; if one fails, each in its own: it does not affect the others."""
        locks, is_open = any(task.session_id for task in tasks), False
        try:
            if locks:
                self.companion.begin(is_new=any(task.has_locked for task in tasks))
            db = self.database()
            db.execute("BEGIN IMMEDIATE")
            is_open = True
            for task in tasks:
                task.result = task.work(db)
            if locks:
                self.companion.before_commit(db)
            _commit(db, self.path)
            is_open = False
            if locks:
                self.companion.after_commit(db)
        except BaseException as problem:  # noqa: BLE001 - becomes the result of the tasks; the thread goes on
            self._roll_back(problem)
            if is_open and len(tasks) > 1 and not isinstance(problem, OutcomeUnknown):
                for task in tasks:
                    self._write([task])
            else:
                for task in tasks:
                    task.fail(problem)

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Yield a connection that sees one snapshot; where nothing can be written, or there is no database, one for
        this task.
        """
        self._check_not_replaced()
        try:
            if self._db is not None or self.path.exists():
                self.database()
        except _FAULTS as problem:
            if not is_unwritable(problem):
                raise
        db, passing = self._db, None
        if db is None and not self.path.exists():
            db = self.companion.open_in_memory()
        if db is None:
            db = passing = open_to_read(self.path, self._busy)
        try:
            db.execute("BEGIN")
            yield db
        finally:
            db.rollback()
            if passing is not None:
                passing.close()

    def _roll_back(self, problem: BaseException) -> None:
        """Roll back what is not committed. After an error of the driver the next task opens a new connection."""
        clear_frames(problem.__traceback__)  # a cursor in a frame would keep the file of a closed connection open
        db = self._db
        if db is None:
            return
        with suppress(*_FAULTS):
            if db.in_transaction:
                db.execute("ROLLBACK")
        with suppress(*_FAULTS):
            if db.in_transaction or isinstance(problem, (sqlite3.Error, OutcomeUnknown)):
                self.disconnect()

    # -- the file ------------------------------------------------------------------------------------------------------

    def _check_not_replaced(self) -> None:
        """Raise `StoreError` while sessions of a file are locked that is gone: the one at its path may hold something
        else.
        """
        if self.companion.holds_one and self._db is not None and not self.is_busy and self.is_replaced:
            self.disconnect()  # a database of many sessions is compared after an error only
        if self._db is not None or not self.is_replaced:
            return
        if self.locks.held:
            raise StoreError(
                f"another program removed or replaced {self.path}; restore it if it is needed, then release its "
                "sessions and open them again to continue with its present content"
            )
        self._identity = None

    def disconnect(self) -> None:
        db, self._db = self._db, None
        if db is None:
            return
        with suppress(*_FAULTS):
            db.close()
        with suppress(*_FAULTS):
            is_log_left = (
                self._log_identity is not None and _identity_of(sidecar(self.path, "-wal")) == self._log_identity
            )
            if is_log_left and self.is_replaced and self.path.exists():
                kept = keep_log(self.path)  # SQLite would merge the log of the former file into the other one
                log.warning("another program replaced %s while it was in use; its log is kept as %s", self.path, kept)

    def _close(self) -> None:
        try:
            self.disconnect()
        finally:
            self.locks.release_all()
            self._identity = None
            if self._owns_worker:
                self._worker.stop()


def _commit(db: sqlite3.Connection, path: Path) -> None:
    """Raises `OutcomeUnknown`: the log was not synced; the next opening may find the transaction in it, or not. After
    `sqlite3.Error` nothing was committed.
    """
    try:
        db.execute("COMMIT")
    except sqlite3.OperationalError as problem:
        if code_of(problem) != sqlite3.SQLITE_IOERR:
            raise
        raise OutcomeUnknown(
            f"{store_error(problem, path)}; the next call finds out whether it was written"
        ) from problem


def _identity_of(path: Path) -> Identity | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
