"""The operations of a JSONL store: on open sessions, and read-only on sessions that this store has not opened.

Plain synchronous calls in one thread. `OSError` leaves here as `StoreError`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from typing import TypeVar

from ...errors import ConfigError, StoreError
from ...transcript.entry import Entry
from ..protocol import Durability, Extent, OnRepair, Repair, SessionInfo, report_repair
from ..session_lock import lock_holder
from ..validation import check_index, check_session_id, no_session, session_exists
from .appender import Appender
from .file_ops import exists, store_error, yield_gil
from .index import IndexDamaged
from .paths import Part, SessionFiles, SessionPaths
from .read_only_session import FileStates, ReadOnlySession, open_read_only
from .session import OpenSession
from .verify import problems_of
from .worker import PendingAppend

_Result = TypeVar("_Result")
log = logging.getLogger(__name__)

_MAX_READ_ATTEMPTS = 5  # reads of a session that another process is changing
_SYNC_WORKERS, _SYNC_WORKERS_SLOW_DISK = 2, 16  # sessions synced in parallel, on a fast and on a slow disk
_SLOW_SYNC = 0.001  # seconds of a sync, from which a disk counts as slow
# files whose modification times count as the session's
_CHANGING_PARTS: tuple[Part, ...] = (
    "main",
    "archive",
    "checkpoint",
)


class JsonlEngine:
    """The sessions of one store."""

    def __init__(self, paths: SessionPaths, durability: Durability, *, archive: bool) -> None:
        self._paths = paths
        self._durability: Durability = durability
        self._archive = archive
        self._open_sessions: dict[str, OpenSession] = {}
        self._listeners: dict[str, OnRepair] = {}
        self._changed_at: dict[
            str, int
        ] = {}  # ns since 1970; clocks of file systems are too coarse to order our own changes
        self._notifications: list[Callable[[], None]] = []
        self._inconsistent: dict[str, FileStates] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._disk_is_slow = False  # as measured when sessions were last synced together

    # -- one session ------------------------------------------------------------------------------------------------

    def open(self, session_id: str, on_repair: OnRepair | None) -> Extent:
        """Open a session for writing and return its extent."""
        with self._translated_errors(session_id):
            if on_repair is not None:
                self._listeners[check_session_id(session_id)] = on_repair
            try:
                return self._writer(session_id).extent()
            finally:
                if session_id not in self._open_sessions:
                    self._listeners.pop(session_id, None)

    def release(self, session_id: str) -> None:
        """Flush a session and release its lock."""
        with self._translated_errors(session_id):
            session = self._open_sessions.get(check_session_id(session_id))
            if session is not None:
                session.release()
                self._drop(session_id)

    def extent(self, session_id: str) -> Extent:
        """Return the extent of a session."""
        with self._translated_errors(session_id), self._reader(session_id) as reader:
            return reader.extent()

    def append_all(self, appends: Sequence[PendingAppend]) -> list[BaseException | None]:
        """Append to sessions, combining the appends of each session. Return the error of each append, or None."""
        by_session: dict[str, list[int]] = {}
        for number, (session_id, _) in enumerate(appends):
            by_session.setdefault(session_id, []).append(number)
        by_session_batches = {
            one: [entries for number in numbers for entries in appends[number][1]]
            for one, numbers in by_session.items()
        }
        problems = self._append(by_session_batches)
        results: list[BaseException | None] = [None] * len(appends)
        for session_id, numbers in by_session.items():
            problem = problems[session_id]
            one_by_one = problem is not None and len(numbers) > 1  # one of them may be invalid and the others not
            for number in numbers:
                if one_by_one:
                    results[number] = self._append({session_id: appends[number][1]})[session_id]
                else:
                    results[number] = problem
        return results

    def _append(self, batches_by_session: Mapping[str, Sequence[Sequence[Entry]]]) -> dict[str, BaseException | None]:
        """Append to each session once. All are written before the first sync, because their syncs share the file
        system's work.
        """
        appenders: dict[str, Appender] = {}
        problems = {
            session_id: self._attempt(session_id, partial(self._write, session_id, batches, appenders))
            for session_id, batches in batches_by_session.items()
        }
        synced = self._sync(list(appenders.values()))
        for (session_id, appender), problem in zip(appenders.items(), synced, strict=True):
            problems[session_id] = self._attempt(session_id, partial(appender.commit_or_rollback, problem))
        return problems

    def _sync(self, appenders: Sequence[Appender]) -> list[OSError | None]:
        """Sync what was written to these sessions.

        The first sync commits what the file system holds of all of them, and little is left for the others. On a fast
        disk two threads finish before more threads have started. On a slow disk many threads wait at the same time. The
        last measurement decides which disk it is.
        """
        if len(appenders) < 2 or self._durability != "fsync":
            return [appender.sync() for appender in appenders]
        for appender in appenders:
            appender.start_writeback()
        workers = min(len(appenders), _SYNC_WORKERS_SLOW_DISK if self._disk_is_slow else _SYNC_WORKERS)
        others = [self._in_pool(partial(_sync_all, appenders[worker::workers])) for worker in range(1, workers)]
        ours = _sync_all(appenders[::workers])
        results = [ours, *(other() for other in others)]
        # the slower ones may have waited for others
        self._disk_is_slow = min(seconds for synced in results for _, seconds in synced) > _SLOW_SYNC
        return [results[number % workers][number // workers][0] for number in range(len(appenders))]

    def _in_pool(self, work: Callable[[], _Result]) -> Callable[[], _Result]:
        """Run a function in another thread and return a function that waits for it. If no thread can be started, the
        returned function runs the work itself.
        """
        self._pool = self._pool or ThreadPoolExecutor(_SYNC_WORKERS_SLOW_DISK - 1, "jsonl-sync")
        try:
            return self._pool.submit(work).result
        except RuntimeError:
            return work

    def _attempt(self, session_id: str, work: Callable[[], None]) -> BaseException | None:
        try:
            work()
        except Exception as problem:  # noqa: BLE001 - returned to the caller
            return _translate_error(session_id, problem)
        return None

    def _write(self, session_id: str, batches: Sequence[Sequence[Entry]], appenders: dict[str, Appender]) -> None:
        appenders[session_id] = self._changing_writer(session_id).write(batches)

    def read(self, session_id: str, start: int, stop: int | None) -> list[Entry]:
        """Return entries by their indexes."""
        return self._read_consistently(session_id, lambda reader: reader.read(start, stop))

    def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """Return entries by their seqs."""
        return self._read_consistently(session_id, lambda reader: reader.find(seqs))

    def _read_consistently(
        self, session_id: str, query: Callable[[OpenSession | ReadOnlySession], list[Entry]]
    ) -> list[Entry]:
        """Return the result of a query; repeat it if the session's writer changed the files meanwhile."""
        found: list[Entry] = []
        with self._translated_errors(session_id):
            for _ in range(_MAX_READ_ATTEMPTS):
                with self._reader(session_id) as reader:
                    found = query(reader)
                    if not (isinstance(reader, ReadOnlySession) and reader.is_outdated):
                        break
        return found

    def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        """Replace the history from an index on."""
        with self._translated_errors(session_id):
            if not self._exists(session_id):
                check_index(session_id, keep, 0)
                if not entries:
                    return
            self._changing_writer(session_id).replace(keep, entries)

    def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Replace entries by new ones with the same seqs."""
        with self._translated_errors(session_id):
            if self._exists(session_id):
                self._changing_writer(session_id).rewrite(entries)

    def archived(self, session_id: str) -> list[Entry]:
        """Return the entries that edits removed."""
        with self._translated_errors(session_id), self._reader(session_id) as reader:
            return reader.archived() if reader.exists else []

    def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        """Save a checkpoint."""
        with self._translated_errors(session_id):
            if not self._exists(session_id):
                check_index(session_id, covered, 0)
            self._changing_writer(session_id).save_checkpoint(covered, data)

    def load_checkpoint(self, session_id: str) -> bytes | None:
        """Return the current checkpoint."""
        with self._translated_errors(session_id), self._reader(session_id) as reader:
            checkpoint = reader.load_checkpoint() if reader.exists else None
            return None if checkpoint is None else checkpoint.data

    def fork(self, session_id: str, new_id: str, length: int | None) -> None:
        """Create a session that begins as another."""
        with self._translated_errors(session_id), self._reader(session_id) as reader:
            if not reader.exists:
                raise no_session(session_id)
            files = self._paths.files_of_fork(new_id)
            if session_id == new_id or exists(files.main):
                raise session_exists(new_id)
            count = reader.extent().length if length is None else length
            check_index(session_id, count, reader.extent().length)
            with self._translated_errors(new_id):
                was_open = new_id in self._open_sessions
                child = self._writer(new_id, files)
                try:
                    if child.exists:
                        raise session_exists(new_id)
                    self._begin_fork(child, reader, count)
                    if child.has_unapplied:
                        with suppress(OSError):
                            child.delete()
                        raise StoreError(
                            f"session {new_id!r} could not be created; make sure that there is room for it"
                        )
                except BaseException:
                    if not was_open:
                        child.abandon()
                        self._drop(new_id)
                    raise
            self._changed_at[new_id] = time.time_ns()

    def _begin_fork(self, child: OpenSession, reader: OpenSession | ReadOnlySession, count: int) -> None:
        checkpoint, last_seq = reader.load_checkpoint(), reader.extent().last_seq
        reader.with_intact_history(lambda history: child.begin_as_fork(history, count, last_seq, checkpoint))

    def delete(self, session_id: str) -> None:
        """Erase a session."""
        with self._translated_errors(session_id):
            files = self._paths.files_of(session_id)
            session = self._open_sessions.get(session_id)
            if session is None and (exists(files.main) or (files.own_folder and os.path.isdir(files.folder))):
                report = partial(self._report, session_id)
                session = OpenSession(files, self._durability, archive=self._archive, report=report, to_delete=True)
            if session is not None:
                session.delete()
            self._drop(session_id)
            self._changed_at.pop(session_id, None)

    def verify(self, session_id: str) -> list[str]:
        """Return the problems of a session, one a line."""
        with self._translated_errors(session_id):
            if session_id in self._open_sessions:
                self._open_sessions[session_id].history()
            with open_read_only(self._paths.files_of(session_id), self._inconsistent) as session:
                return problems_of(session)

    # -- all sessions -----------------------------------------------------------------------------------------------

    def sessions(self) -> list[SessionInfo]:
        """Return all sessions, the last changed first."""
        found: list[tuple[int, SessionInfo]] = []
        for session_id, session in self._open_sessions.items():
            problem = self._attempt(session_id, session.flush_buffer)
            if problem is not None:
                log.warning("%s", problem)
        try:
            listed = self._paths.all_sessions()
        except OSError as problem:
            raise StoreError(f"the sessions in {self._paths.root} cannot be listed: {problem.strerror}") from problem
        for files in listed:
            yield_gil()
            try:
                found.append(self._info(files))
            except (OSError, StoreError, ConfigError) as problem:  # a folder of another program may have any name
                log.warning("session %r cannot be listed: %s", files.session_id, problem)
        return [info for _, info in sorted(found, key=lambda one: one[0], reverse=True)]

    def _info(self, files: SessionFiles) -> tuple[int, SessionInfo]:
        session_id = files.session_id
        with self._reader(session_id) as reader:
            length = reader.extent().length
        times = [self._changed_at.get(session_id, 0)]
        paths = [files.path(part) for part in _CHANGING_PARTS]
        times.extend(os.lstat(path).st_mtime_ns for path in paths if exists(path))
        updated = datetime.fromtimestamp(max(times) / 1e9, UTC).isoformat(timespec="milliseconds")
        size = os.lstat(files.main).st_size
        return max(times), SessionInfo(session_id, length, updated, size, lock_holder(files.path("lock")))

    def close(self) -> None:
        """Release all sessions, then raise the first error. It leaves what a dead process would: no lock."""
        problems: list[StoreError] = []
        for session_id in list(self._open_sessions):
            try:
                self.release(session_id)
            except StoreError as problem:
                problems.append(problem)
        self.abandon()
        if problems:
            raise problems[0]

    def abandon(self) -> None:
        """Release all locks and ignore every error."""
        for session_id in list(self._open_sessions):
            self._open_sessions[session_id].abandon()
            self._drop(session_id)
        self._shut_down_pool()

    def _shut_down_pool(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    def take_notifications(self) -> list[Callable[[], None]]:
        """Return the notifications of repairs that no listener has received yet, and clear them."""
        notifications, self._notifications = self._notifications, []
        return notifications

    # -- open sessions ----------------------------------------------------------------------------------------------

    def _writer(self, session_id: str, files: SessionFiles | None = None) -> OpenSession:
        session = self._open_sessions.get(session_id)
        if session is None:
            files = files or self._paths.files_of(session_id)
            report = partial(self._report, session_id)
            session = OpenSession(files, self._durability, archive=self._archive, report=report)
            self._open_sessions[session_id] = session
        return session

    def _changing_writer(self, session_id: str) -> OpenSession:
        session = self._writer(session_id)
        self._changed_at[session_id] = time.time_ns()
        return session

    @contextmanager
    def _reader(self, session_id: str) -> Generator[OpenSession | ReadOnlySession]:
        session = self._open_sessions.get(session_id)
        if session is not None:
            yield session
        else:
            with open_read_only(self._paths.files_of(session_id), self._inconsistent) as session:
                yield session

    def _exists(self, session_id: str) -> bool:
        session = self._open_sessions.get(session_id)
        return session.exists if session else exists(self._paths.files_of(session_id).main)

    def _drop(self, session_id: str) -> None:
        self._open_sessions.pop(session_id, None)
        self._listeners.pop(session_id, None)

    def _report(self, session_id: str, repair: Repair) -> None:
        listener = self._listeners.get(session_id)
        if listener is None:
            report_repair(repair, None)
        else:
            self._notifications.append(partial(report_repair, repair, listener))

    @contextmanager
    def _translated_errors(self, session_id: str) -> Generator[None]:
        """Translate errors of the operating system and of the index into `StoreError`."""
        try:
            yield
        except (OSError, IndexDamaged) as problem:
            raise _translate_error(session_id, problem) from problem


def _sync_all(appenders: Sequence[Appender]) -> list[tuple[OSError | None, float]]:
    """Sync one after another. Return for each the error and the seconds it took."""
    results: list[tuple[OSError | None, float]] = []
    for appender in appenders:
        began = perf_counter()
        results.append((appender.sync(), perf_counter() - began))
    return results


def _translate_error(session_id: str, problem: Exception) -> Exception:
    """Return the `StoreError` for an error of the operating system or of the index; any other error unchanged."""
    if isinstance(problem, OSError):
        error = store_error(session_id, problem)
    elif isinstance(problem, IndexDamaged):
        error = StoreError(f"session {session_id!r}: its index changes while it is read; try again")
    else:
        return problem
    error.__cause__ = problem
    return error
