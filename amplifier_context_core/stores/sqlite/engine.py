"""What runs a store's calls on its database: connections, transactions in groups, claims, and mending.

One thread does all that is short, in the order it was asked for. What takes long (a whole history, a search, a check)
is begun there too, so that it sees what came before it and nothing after, and is carried out by a second thread on a
connection of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from traceback import clear_frames
from typing import Any

from ...errors import StoreError
from ..protocol import Durability, OnRepair, Repair
from .errors import Fault, damage, is_damage, is_index_damage, is_moved, is_unwritable, moved, store_error, unsettles
from .file_identity import FileIdentity, place_of
from .leases import TTL, Leases
from .recovery import finish, is_cut, pop_repairs, put_log_aside, salvage
from .row_recovery import REWRITTEN, WHOLE
from .schema import beside, disconnect, is_file, make_file, open_database, open_to_read
from .search import drop
from .secure_erase import erase, is_erasing
from .worker import WRITING, Continuation, SqliteWorker, Task, TaskKind, Work, answer

log = logging.getLogger(__name__)

_FAULTS = (sqlite3.Error, OSError)
_abandoned: list[sqlite3.Connection] = []  # of a process this one was forked from: closing them would disturb it


class SqliteEngine:
    """Runs the jobs of one store object.

    Attributes:
        path: the database file.
        leases: what this store object has claimed.
    """

    def __init__(self, path: Path, durability: Durability, busy: float) -> None:
        self.path = path
        self.leases = Leases()
        self._durability: Durability = durability
        self._busy = busy
        self._db: sqlite3.Connection | None = None
        self._file: FileIdentity | None = None
        self._log_path = str(beside(path, "-wal"))  # a text is looked for faster than a path, and it is often
        self._file_path = str(path)
        self._log: FileIdentity | None = None
        self._syncing = True
        self._told: dict[str, OnRepair | None] = {}
        self._untold: dict[str, list[Repair]] = {}
        self._later: list[tuple[float, Task]] = []
        self._renewal = 0.0
        self._resumed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._worker = SqliteWorker("sqlite store", self._handle, self._tick)
        self._long = SqliteWorker("sqlite store, long", self._handle_long, lambda: None)

    async def run(self, kind: TaskKind, work: Work, session_id: str = "") -> Any:
        """Have work done, in its turn. Who is cancelled while waiting leaves it to be done all the same."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.put(Task(work, kind, session_id, future, begin=(work, kind)))
        return await future

    def put(self, job: Task) -> None:
        """Have a job done, in its turn."""
        if self._pid != os.getpid():
            self._leave_to_parent()
        self._worker.put(job)

    async def close(self) -> None:
        """Release all claims and close the connection, after all that was asked for; a later call opens anew."""
        if not self._worker.idle:
            await self.run("apart", self._close)

    def abandon(self) -> None:
        """The store object is gone: close without anybody waiting for it."""
        if not self._worker.idle and self._pid == os.getpid():
            self._worker.put(Task(self._close, "apart"))

    # -- for jobs ------------------------------------------------------------------------------------------------------

    def listen(self, session_id: str, told: OnRepair | None) -> None:
        """Who is told of repairs of a session."""
        if told is not None or session_id not in self._told:
            self._told[session_id] = told

    def unlisten(self, session_id: str) -> None:
        """Nobody is told any more."""
        self._told.pop(session_id, None)

    def tell(self, job: Task, repair: Repair) -> None:
        """Say with a job's answer that something was mended."""
        job.repairs.append((self._told.get(repair.session_id), repair))

    def snapshot(self) -> sqlite3.Connection:
        """One more connection, which sees the database as it is now, whatever is written later."""
        db = open_to_read(self.path, self._busy)
        try:
            db.execute("BEGIN")
            db.execute("SELECT 1 FROM sessions LIMIT 1").fetchone()
        except BaseException:
            disconnect(db, self.path)
            raise
        return db

    # -- in the first thread -------------------------------------------------------------------------------------------

    def _handle(self, jobs: Sequence[Task]) -> None:
        try:
            if jobs[0].kind in WRITING:
                self._write(jobs)
            else:
                self._single(jobs[0])
        except BaseException as problem:  # noqa: BLE001 - the thread lives on; whoever asked is told
            for job in jobs:
                job.fail(problem)
        self._finish(jobs)

    def _finish(self, jobs: Sequence[Task]) -> None:
        done: list[Task] = []
        for job in jobs:
            job.connection = None
            if isinstance(job.error, _FAULTS):
                if job.otherwise is not None and is_unwritable(job.error):
                    job.answer, job.error = job.otherwise(job), None
                else:  # here and nowhere else: no error of the driver gets past this line
                    job.error = self._said(job.error)
            if self._untold and job.session_id in self._untold:
                for repair in self._untold.pop(job.session_id):
                    self.tell(job, repair)
            then = job.answer
            if job.error is not None or not isinstance(then, Continuation):
                done.append(job)
                continue
            job.work, job.kind, job.answer, job.otherwise = then.work, then.kind, None, then.otherwise
            if then.elsewhere:
                self._long.put(job)
            elif then.after:
                self._later.append((time.monotonic() + then.after, job))
            else:
                self._worker.put(job)
        answer(done)

    def _write(self, jobs: Sequence[Task], *, mended: bool = False) -> None:
        """Do jobs in one transaction. One that fails takes none of the others along."""
        began = False
        try:
            if self._db is None:  # otherwise it is looked at before the commit: once is enough, and each look costs
                self._look()
            if self.leases.lost:
                jobs = [job for job in jobs if job.kind in ("claim", "leave") or not self._is_apart(job)]
            if not jobs:
                return
            kinds = {job.kind for job in jobs}
            opened = nullcontext(self._db) if self._db else self._connection(makes=kinds != {"leave"})
            with opened as db:
                self._let_sync(db, "write" in kinds)
                db.execute("BEGIN IMMEDIATE")
                began = True
                for job in jobs:
                    self._part(db, job, alone=len(jobs) == 1)
                if self._look():  # others may have been waited for
                    raise moved("the file is not at its path any more")
                if db.in_transaction:
                    db.execute("COMMIT")
                if self._look():  # what is acknowledged stands at the path
                    raise moved("the file is not at its path any more")
            self.leases.settle(True)
        except _FAULTS as problem:
            self._undo(problem)
            for job in jobs:
                job.begin_anew()
            if began and len(jobs) > 1:
                for job in jobs:
                    self._write([job])
            elif not mended and self._mend(problem, jobs[0].session_id):
                self._write(jobs, mended=True)
            else:
                for job in jobs:
                    job.fail(problem)
        except BaseException as problem:  # noqa: BLE001 - told to whoever asked
            self._undo(problem)
            for job in jobs:
                job.fail(StoreError(str(problem)) if type(problem) is StoreError else problem)

    def _let_sync(self, db: sqlite3.Connection, wanted: bool) -> None:
        """Have the next commits wait for the disk, or not: who holds a claim need not outlive the machine's power."""
        if wanted != self._syncing and self._durability == "fsync":
            db.execute(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self._syncing = wanted

    def _part(self, db: sqlite3.Connection, job: Task, *, alone: bool) -> None:
        staged = self.leases.staged()
        job.connection = db
        if not alone:
            db.execute("SAVEPOINT part")
        try:
            job.answer = job.work(job)
        except _FAULTS:
            raise  # the file or the disk: who knows what became of the transaction
        except Exception as problem:  # noqa: BLE001 - told to whoever asked
            job.fail(problem)
            self.leases.take_back(staged)
            db.execute("ROLLBACK" if alone else "ROLLBACK TO part")
        if not alone:
            db.execute("RELEASE part")

    def _single(self, job: Task, *, mended: bool = False) -> None:
        """Do a job that reads, at one moment of the database, or one that wants no transaction."""
        try:
            if job.kind == "apart":
                job.answer = job.work(job)
                return
            self._look()
            if self._is_apart(job):
                return
            with self._connection(makes=job.kind != "read") as db:
                job.connection = db
                if job.kind == "read":
                    db.execute("BEGIN")
                job.answer = job.work(job)
                if db.in_transaction:
                    db.execute("COMMIT")
        except _FAULTS as problem:
            self._undo(problem)
            job.begin_anew()
            if job.kind != "apart" and not mended and self._mend(problem, job.session_id):
                self._single(job, mended=True)
            else:
                job.fail(problem)
        except Exception as problem:  # noqa: BLE001 - told to whoever asked
            self._undo(problem)
            job.fail(problem)

    def _undo(self, problem: BaseException) -> None:
        """Take back what is not committed; after some faults a new connection is needed."""
        self.leases.settle(False)
        clear_frames(problem.__traceback__)  # a cursor in one of them would keep a closed connection's file open
        db = self._db
        if db is None:
            return
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        if unsettles(problem) or db.in_transaction:
            self._disconnect()

    def _said(self, problem: Fault) -> StoreError:
        said = store_error(problem, self.path)
        said.__cause__ = problem
        return said

    @contextmanager
    def _connection(self, *, makes: bool) -> Generator[sqlite3.Connection]:
        """The connection; one of its own, which only reads, for a job that makes no database where there is none."""
        own: sqlite3.Connection | None = None
        if not makes and self._db is None:
            finish(self.path)
            try:
                if self.path.exists():
                    self._database()
            except _FAULTS as problem:
                if not is_unwritable(problem):
                    raise
            if self._db is None:
                own = open_to_read(self.path, self._busy)
        try:
            yield own or self._database()
        finally:
            if own is not None:
                disconnect(own, self.path)

    def _is_apart(self, job: Task) -> bool:
        """Is a job about a session whose database went away? Then it has failed."""
        if not self.leases.is_apart(job.session_id):
            return False
        job.fail(self.leases.lost[job.session_id].with_traceback(None))
        return True

    def _look(self) -> bool:
        """Was the file removed or replaced? What is written to it then is lost: the connection and claims are gone."""
        if self._db is None:
            if self.leases.held:
                finish(self.path)
                if not self.path.exists():
                    self.leases.lose_all(f"removed {self.path}")
            return False
        happened = self._happened()
        if not happened:
            return False
        log.warning("another program %s while it was in use", happened)
        if place_of(self._file_path) is not None:
            former = self._log.place if self._log is not None else None
            self._put_log_aside(lambda: former is not None and place_of(self._log_path) == former)
        self._disconnect()
        self.leases.lose_all(happened)
        return True

    def _happened(self) -> str:
        """What became of the files that the connection has open; empty when they are where they were."""
        if self._file is not None and (happened := self._file.happened()):
            return f"{happened} {self._file_path}"
        if self._log is not None and (happened := self._log.happened()):
            return f"{happened} {self._log_path}"
        return ""

    def _put_log_aside(self, is_orphan: Callable[[], bool]) -> None:
        kept = put_log_aside(self.path, is_orphan)
        if kept is not None:
            log.warning("the log of the database that was %s is kept as %s", self.path, kept)

    def _database(self) -> sqlite3.Connection:
        while self._db is None:
            self._disconnect()  # an attempt that failed has left its watch
            finish(self.path)
            self._put_log_aside(lambda: is_file(beside(self.path, "-wal")) and not self.path.exists())
            make_file(self.path)
            self._file = FileIdentity(self._file_path)
            self._db, self._syncing = open_database(self.path, self._durability, self._busy), True
            self._log = FileIdentity(self._log_path)
            if self._file.happened():  # put aside by another process meanwhile
                self._disconnect()
            elif is_cut(self._db, self.path):
                self._disconnect()
                raise damage("the file is shorter than it should be")
            elif not self._resumed:
                self._resumed = True
                if is_erasing(self._db):
                    self._worker.put(Task(partial(erase, self.path), "write"))
        return self._db

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                disconnect(db, self.path)
        for watch in (self._file, self._log):
            if watch is not None:
                watch.close()

    def _mend(self, problem: Fault, session_id: str) -> bool:
        """After damage: have a database that is whole again. False if it was no damage.

        Raises:
            StoreError: not now, or not at all; it says why.
        """
        if is_moved(problem):
            return True
        if is_index_damage(problem) and self._drop_search():
            repair = Repair(session_id, "the search index was damaged; the next search fills it again")
            self._untold.setdefault(session_id, []).append(repair)
            return True
        if not is_damage(problem) and not is_index_damage(problem):
            return False
        self._disconnect()
        try:
            kept = salvage(self.path, self._file.place if self._file is not None else None)
        except _FAULTS as another:
            said = f"{self._said(another)}; it is damaged, and what can be read of it is saved then"
            raise StoreError(said) from another
        log.warning(
            "the database %s was damaged and has been rewritten; the damaged one is kept as %s", self.path, kept
        )
        db = self._database()
        db.execute("BEGIN IMMEDIATE")
        self.leases.claim_anew(db)
        for name in {*self._told, session_id} - ({WHOLE} - self._told.keys()):  # or `repair` would not report it
            repairs = pop_repairs(db, name)
            if name == session_id and not repairs and kept is not None:
                repairs = [Repair(name, f"{REWRITTEN}; nothing of this session was lost", 0, str(kept))]
            if repairs:
                self._untold.setdefault(name, []).extend(repairs)
        db.execute("COMMIT")
        self.leases.settle(True)
        return True

    def _drop_search(self) -> bool:
        """Have no search index. False if it is too damaged even for that."""
        db = self._database()
        try:
            db.execute("BEGIN IMMEDIATE")
            drop(db)
            db.execute("COMMIT")
        except sqlite3.Error as problem:
            self._undo(problem)
            if is_unwritable(problem):
                raise
            return False
        return True

    def _close(self, job: Task) -> None:
        try:
            self._look()
            if self.leases.held:
                db = self._database()
                db.execute("BEGIN IMMEDIATE")
                for session_id in self.leases.held:
                    self.leases.release(db, session_id)
                db.execute("COMMIT")
                self.leases.settle(True)
            self.leases.lost.clear()
        finally:
            self._disconnect()
            self.leases.settle(False)
            self.leases.retire()
            self._renewal = 0.0
            self._told.clear()
            self._resumed = False
            self._worker.end()
            self._long.end()

    def _tick(self) -> float | None:
        """Now and then: put what waited, and renew the claims. Says when it wants to be called again."""
        if not self._later and not self.leases.held:
            return None
        now = time.monotonic()
        waits: list[float] = []
        if self._later:
            for when, job in self._later:
                if when <= now:
                    self._worker.put(job)
            self._later = [(when, job) for when, job in self._later if when > now]
            waits += [when - now for when, _ in self._later]
        if self.leases.held and self._db is not None:
            if self._renewal <= now:
                if self._renewal:
                    self._renew(self._db)
                self._renewal = now + TTL / 3
            waits.append(self._renewal - now)
        return max(0.001, min(waits)) if waits else None

    def _renew(self, db: sqlite3.Connection) -> None:
        try:
            self._let_sync(db, wanted=False)
            db.execute("BEGIN IMMEDIATE")
            self.leases.renew(db)
            db.execute("COMMIT")
        except sqlite3.Error as problem:
            log.debug("claims were not renewed: %s", type(problem).__name__)
            self._undo(problem)

    def _leave_to_parent(self) -> None:
        """This process was forked: threads, connection and claims are the parent's."""
        if self._db is not None:
            _abandoned.append(self._db)
        self._db, self._file, self._log, self._later = None, None, None, []
        self.leases = Leases()
        self._begin()

    # -- in the second thread ------------------------------------------------------------------------------------------

    def _handle_long(self, jobs: Sequence[Task]) -> None:
        for job in jobs:
            try:
                job.answer = job.work(job)
            except _FAULTS as problem:
                clear_frames(problem.__traceback__)
                if (is_damage(problem) or is_index_damage(problem)) and not job.tried and job.begin is not None:
                    job.tried = True
                    job.answer = Continuation(lambda job, problem=problem: self._mended(job, problem), "apart")
                else:
                    job.fail(problem)
            except BaseException as problem:  # noqa: BLE001 - the thread lives on; whoever asked is told
                job.fail(problem)
        self._finish(jobs)

    def _mended(self, job: Task, problem: Fault) -> Continuation:
        """What a job met in the second thread is mended in the first, and the job begins anew."""
        self._mend(problem, job.session_id)
        assert job.begin is not None  # noqa: S101 - seen by who calls
        return Continuation(*job.begin)
