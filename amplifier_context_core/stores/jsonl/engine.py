"""What the worker's thread does: the sessions that are open, and looks at those that are not.

Plain calls, in one thread. What the operating system says of a file leaves here as `StoreError`.
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
from ...transcript.transcript import Entry
from ..protocol import Durability, Extent, OnRepair, Repair, SessionInfo, report_repair
from ..validation import check_index, check_session_id, no_session, session_exists
from .appender import Appender
from .file_ops import breathe, exists, store_error
from .index import IndexDamaged
from .lock import holder_of
from .paths import Part, SessionFiles, SessionPaths
from .read_only_session import ReadOnlySession, looking
from .session import OpenSession
from .verify import problems_of
from .worker import PendingAppend

_Answer = TypeVar("_Answer")
log = logging.getLogger(__name__)

_LOOKS = 5  # at a session that is being changed
_LANES, _LANES_OF_SLOW = 2, 16  # sessions synced at the same time, on a quick disk and on a slow one
_SLOW = 0.001  # seconds a sync takes on a disk that is slow
_CHANGING: tuple[Part, ...] = ("main", "archive", "checkpoint")  # files whose times tell when a session was changed


class JsonlEngine:
    """The sessions of one store."""

    def __init__(self, places: SessionPaths, durability: Durability, *, archive: bool) -> None:
        self._places = places
        self._durability: Durability = durability
        self._archive = archive
        self._open: dict[str, OpenSession] = {}
        self._listeners: dict[str, OnRepair] = {}
        self._changed: dict[str, int] = {}  # when, in ns: file systems' clocks are too coarse to order what we did
        self._to_tell: list[Callable[[], None]] = []
        self._pool: ThreadPoolExecutor | None = None
        self._is_slow = False  # the disk, when sessions were last synced together

    # -- one session ------------------------------------------------------------------------------------------------

    def open(self, session_id: str, on_repair: OnRepair | None) -> Extent:
        """Claim a session."""
        with self._words(session_id):
            if on_repair is not None:
                self._listeners[check_session_id(session_id)] = on_repair
            try:
                return self._claimed(session_id).extent()
            finally:
                if session_id not in self._open:
                    self._listeners.pop(session_id, None)

    def release(self, session_id: str) -> None:
        """Give a claim back."""
        with self._words(session_id):
            session = self._open.get(check_session_id(session_id))
            if session is not None:
                session.release()
                self._forget(session_id)

    def extent(self, session_id: str) -> Extent:
        """How long a session is."""
        with self._words(session_id), self._seen(session_id) as seen:
            return seen.extent()

    def append_all(self, appends: Sequence[PendingAppend]) -> list[BaseException | None]:
        """Append to sessions, those of one session together; what became of each append."""
        by_session: dict[str, list[int]] = {}
        for number, (session_id, _) in enumerate(appends):
            by_session.setdefault(session_id, []).append(number)
        together = {
            one: [entries for number in numbers for entries in appends[number][1]]
            for one, numbers in by_session.items()
        }
        problems = self._append(together)
        came: list[BaseException | None] = [None] * len(appends)
        for session_id, numbers in by_session.items():
            problem = problems[session_id]
            apart = problem is not None and len(numbers) > 1  # perhaps one cannot be written, and the others can
            for number in numbers:
                if apart:
                    came[number] = self._append({session_id: appends[number][1]})[session_id]
                else:
                    came[number] = problem
        return came

    def _append(self, together: Mapping[str, Sequence[Sequence[Entry]]]) -> dict[str, BaseException | None]:
        """Append to each session once. All are written before the first one is synced: their syncs share what the file
        system has to write."""
        tails: dict[str, Appender] = {}
        problems = {
            session_id: self._try(session_id, partial(self._write, session_id, batches, tails))
            for session_id, batches in together.items()
        }
        synced = self._sync(list(tails.values()))
        for (session_id, tail), problem in zip(tails.items(), synced, strict=True):
            problems[session_id] = self._try(session_id, partial(tail.settle, problem))
        return problems

    def _sync(self, tails: Sequence[Appender]) -> list[OSError | None]:
        """Have on disk what was written to these.

        The first sync commits what the file system has of all of them, and little is left for the others. On a quick
        disk two threads are through with them before more threads have begun; on a slow one they wait all at the same
        time. Which it is, the last time told.
        """
        if len(tails) < 2 or self._durability != "fsync":
            return [tail.sync() for tail in tails]
        for tail in tails:
            tail.begin_sync()
        lanes = min(len(tails), _LANES_OF_SLOW if self._is_slow else _LANES)
        others = [self._elsewhere(partial(_sync_all, tails[lane::lanes])) for lane in range(1, lanes)]
        ours = _sync_all(tails[::lanes])
        came = [ours, *(other() for other in others)]
        self._is_slow = min(seconds for lane in came for _, seconds in lane) > _SLOW  # others may have been waited for
        return [came[place % lanes][place // lanes][0] for place in range(len(tails))]

    def _elsewhere(self, work: Callable[[], _Answer]) -> Callable[[], _Answer]:
        """Have something done by another thread; gives what waits for it, or, if there is no thread to be had, does it
        when it is called."""
        self._pool = self._pool or ThreadPoolExecutor(_LANES_OF_SLOW - 1, "jsonl-sync")
        try:
            return self._pool.submit(work).result
        except RuntimeError:
            return work

    def _try(self, session_id: str, work: Callable[[], None]) -> BaseException | None:
        try:
            work()
        except Exception as problem:  # noqa: BLE001 - handed to the caller
            return _in_words(session_id, problem)
        return None

    def _write(self, session_id: str, batches: Sequence[Sequence[Entry]], tails: dict[str, Appender]) -> None:
        tails[session_id] = self._changing(session_id).write(batches)

    def read(self, session_id: str, start: int, stop: int | None) -> list[Entry]:
        """Entries by their places."""
        return self._whole(session_id, lambda seen: seen.read(start, stop))

    def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """Entries by their seqs."""
        return self._whole(session_id, lambda seen: seen.find(seqs))

    def _whole(self, session_id: str, ask: Callable[[OpenSession | ReadOnlySession], list[Entry]]) -> list[Entry]:
        """What is asked for; asked again where it was changed meanwhile by whoever has claimed it."""
        found: list[Entry] = []
        with self._words(session_id):
            for _ in range(_LOOKS):
                with self._seen(session_id) as seen:
                    found = ask(seen)
                    if not (isinstance(seen, ReadOnlySession) and seen.is_outdated):
                        break
        return found

    def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        """Go on differently from a place on."""
        with self._words(session_id):
            if not self._is_there(session_id):
                check_index(session_id, keep, 0)
                if not entries:
                    return
            self._changing(session_id).replace(keep, entries)

    def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Put entries in place of others."""
        with self._words(session_id):
            if self._is_there(session_id):
                self._changing(session_id).rewrite(entries)

    def archived(self, session_id: str) -> list[Entry]:
        """What once belonged to a history."""
        with self._words(session_id), self._seen(session_id) as seen:
            return seen.archived() if seen.is_there else []

    def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        """Keep a checkpoint."""
        with self._words(session_id):
            if not self._is_there(session_id):
                check_index(session_id, covered, 0)
            self._changing(session_id).save_checkpoint(covered, data)

    def load_checkpoint(self, session_id: str) -> bytes | None:
        """The checkpoint that stands."""
        with self._words(session_id), self._seen(session_id) as seen:
            saved = seen.load_checkpoint() if seen.is_there else None
            return None if saved is None else saved.data

    def fork(self, session_id: str, new_id: str, length: int | None) -> None:
        """Make a session that begins as another."""
        with self._words(session_id), self._seen(session_id) as seen:
            if not seen.is_there:
                raise no_session(session_id)
            files = self._places.files_of_fork(new_id)
            if session_id == new_id or exists(files.main):
                raise session_exists(new_id)
            count = seen.extent().length if length is None else length
            check_index(session_id, count, seen.extent().length)
            with self._words(new_id):
                held = new_id in self._open
                child = self._claimed(new_id, files)
                try:
                    if child.is_there:
                        raise session_exists(new_id)
                    self._begin(child, seen, count)
                    if child.is_unfinished:
                        with suppress(OSError):
                            child.delete()
                        raise StoreError(f"session {new_id!r} could not be made; see that there is room for it")
                except BaseException:
                    if not held:
                        child.abandon()
                        self._forget(new_id)
                    raise
            self._changed[new_id] = time.time_ns()

    def _begin(self, child: OpenSession, seen: OpenSession | ReadOnlySession, count: int) -> None:
        saved, last_seq = seen.load_checkpoint(), seen.extent().last_seq
        seen.sound(lambda history: child.begin_as(history, count, last_seq, saved))

    def delete(self, session_id: str) -> None:
        """Erase a session."""
        with self._words(session_id):
            files = self._places.files_of(session_id)
            session = self._open.get(session_id)
            if session is None and (exists(files.main) or (files.own_folder and os.path.isdir(files.folder))):
                tell = partial(self._tell, session_id)
                session = OpenSession(files, self._durability, archive=self._archive, tell=tell, to_delete=True)
            if session is not None:
                session.delete()
            self._forget(session_id)
            self._changed.pop(session_id, None)

    def verify(self, session_id: str) -> list[str]:
        """What is wrong with a session."""
        with self._words(session_id):
            if session_id in self._open:
                self._open[session_id].history()
            with looking(self._places.files_of(session_id)) as look:
                return problems_of(look)

    # -- all of them ------------------------------------------------------------------------------------------------

    def sessions(self) -> list[SessionInfo]:
        """All sessions, the last changed first."""
        found: list[tuple[int, SessionInfo]] = []
        for session_id, session in self._open.items():
            problem = self._try(session_id, session.write_held)
            if problem is not None:
                log.warning("%s", problem)
        try:
            listed = self._places.all()
        except OSError as problem:
            raise StoreError(f"the sessions in {self._places.root} cannot be listed: {problem.strerror}") from problem
        for files in listed:
            breathe()
            try:
                found.append(self._info(files))
            except (OSError, StoreError, ConfigError) as problem:  # somebody else's folder may bear any name
                log.warning("session %r cannot be listed: %s", files.session_id, problem)
        return [info for _, info in sorted(found, key=lambda one: one[0], reverse=True)]

    def _info(self, files: SessionFiles) -> tuple[int, SessionInfo]:
        session_id = files.session_id
        with self._seen(session_id) as seen:
            length = seen.extent().length
        times = [self._changed.get(session_id, 0)]
        paths = [files.path(part) for part in _CHANGING]
        times.extend(os.lstat(path).st_mtime_ns for path in paths if exists(path))
        updated = datetime.fromtimestamp(max(times) / 1e9, UTC).isoformat(timespec="milliseconds")
        size = os.lstat(files.main).st_size
        return max(times), SessionInfo(session_id, length, updated, size, holder_of(files))

    def close(self) -> None:
        """Give all claims back; raise what went wrong when all was tried."""
        problems: list[StoreError] = []
        for session_id in list(self._open):
            try:
                self.release(session_id)
            except StoreError as problem:
                problems.append(problem)
        self._end_pool()
        if problems:
            raise problems[0]

    def abandon(self) -> None:
        """Give all claims back, whatever cannot be done any more."""
        for session_id in list(self._open):
            self._open[session_id].abandon()
            self._forget(session_id)
        self._end_pool()

    def _end_pool(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    def to_tell(self) -> list[Callable[[], None]]:
        """Repairs that were made and not told yet, each as a call that tells of it."""
        told, self._to_tell = self._to_tell, []
        return told

    # -- who has what -----------------------------------------------------------------------------------------------

    def _claimed(self, session_id: str, files: SessionFiles | None = None) -> OpenSession:
        session = self._open.get(session_id)
        if session is None:
            files = files or self._places.files_of(session_id)
            tell = partial(self._tell, session_id)
            session = OpenSession(files, self._durability, archive=self._archive, tell=tell)
            self._open[session_id] = session
        return session

    def _changing(self, session_id: str) -> OpenSession:
        session = self._claimed(session_id)
        self._changed[session_id] = time.time_ns()
        return session

    @contextmanager
    def _seen(self, session_id: str) -> Generator[OpenSession | ReadOnlySession]:
        session = self._open.get(session_id)
        if session is not None:
            yield session
        else:
            with looking(self._places.files_of(session_id)) as look:
                yield look

    def _is_there(self, session_id: str) -> bool:
        session = self._open.get(session_id)
        return session.is_there if session else exists(self._places.files_of(session_id).main)

    def _forget(self, session_id: str) -> None:
        self._open.pop(session_id, None)
        self._listeners.pop(session_id, None)

    def _tell(self, session_id: str, repair: Repair) -> None:
        listener = self._listeners.get(session_id)
        if listener is None:
            report_repair(repair, None)
        else:
            self._to_tell.append(partial(report_repair, repair, listener))

    @contextmanager
    def _words(self, session_id: str) -> Generator[None]:
        """Say in words what the operating system says in numbers."""
        try:
            yield
        except (OSError, IndexDamaged) as problem:
            raise _in_words(session_id, problem) from problem


def _sync_all(tails: Sequence[Appender]) -> list[tuple[OSError | None, float]]:
    """Sync one after another: what went wrong with each, and the seconds it took."""
    came: list[tuple[OSError | None, float]] = []
    for tail in tails:
        began = perf_counter()
        came.append((tail.sync(), perf_counter() - began))
    return came


def _in_words(session_id: str, problem: Exception) -> Exception:
    """What the operating system said, or what was found, as it leaves here."""
    if isinstance(problem, OSError):
        said = store_error(session_id, problem)
    elif isinstance(problem, IndexDamaged):
        said = StoreError(f"session {session_id!r}: its index changes while it is read; try again")
    else:
        return problem
    said.__cause__ = problem
    return said
