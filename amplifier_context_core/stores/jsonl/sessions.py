"""The sessions of a store: one thread executes the calls of all, and few databases are open at once."""

from __future__ import annotations

import atexit
import sqlite3
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from ...errors import StoreError
from ..protocol import Durability
from ..sqlite.errors import store_error
from ..sqlite.journal import JournalMode
from ..sqlite.worker import SqliteWorker, Task
from .paths import SessionFiles, SessionPaths
from .session import MirroredSession

T = TypeVar("T")
_MAX_SETTLED = 8  # mirrors synced at once while nothing is called: a call waits for them, some milliseconds each
_MAX_CONNECTED = 128  # databases open at once: each has three descriptors and its mirror one, and each session its lock
_all: weakref.WeakSet[Sessions] = weakref.WeakSet()


class Sessions:
    def __init__(
        self, paths: SessionPaths, durability: Durability, *, archive: bool, journal: JournalMode | None = None
    ) -> None:
        self._paths = paths
        self._worker = SqliteWorker("jsonl store", self._settle)
        self._new = partial(
            MirroredSession,
            worker=self._worker,
            durability=durability,
            archive=archive,
            journal=journal,
            on_connect=self._on_connect,
        )
        self._known: weakref.WeakValueDictionary[str, MirroredSession] = weakref.WeakValueDictionary()
        self._kept: dict[str, MirroredSession] = {}  # locked, or with an open database; the one opened first is first
        _all.add(self)

    def of(self, session_id: str) -> MirroredSession:
        session = self._known.get(session_id)
        if session is not None and session.engine.locks.held:
            return session
        return self.at(self._paths.files_of(session_id))

    def at(self, files: SessionFiles) -> MirroredSession:
        session = self._known.get(files.session_id)
        if session is None or session.files != files:
            session = self._known[files.session_id] = self._new(files)
        return session

    async def run(self, work: Callable[[], T]) -> T:
        return await self._worker.run(Task(work))

    async def close(self) -> None:
        if self._worker.thread is not None:
            await self.run(self._close)

    def abandon(self) -> threading.Thread | None:
        """Close without waiting: the store is gone, or the process ends. Return the thread, if it runs."""
        if self._worker.thread is not None:
            with suppress(StoreError):  # of the parent process
                self._worker.submit(Task(self._close))
        return self._worker.thread

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _on_connect(self, session: MirroredSession) -> None:
        """Keep a session until it is released. Close the database that was opened first if too many are open."""
        self._kept.pop(session.files.session_id, None)
        self._kept[session.files.session_id] = session
        connected = [one for one in self._kept.values() if one.is_connected]
        for oldest in connected[: max(0, len(connected) - _MAX_CONNECTED)]:
            if oldest is not session and not oldest.engine.is_busy:
                oldest.disconnect()
        for session_id in [name for name, one in self._kept.items() if not (one.is_connected or one.engine.locks.held)]:
            del self._kept[session_id]

    def _settle(self) -> bool:
        waiting = [session for session in self._kept.values() if session.needs_settling]
        for session in waiting[:_MAX_SETTLED]:
            session.settle()
        return len(waiting) > _MAX_SETTLED

    def _close(self) -> None:
        problems: list[StoreError] = []
        for session in [*self._kept.values()]:
            try:
                session.on_release()
            except StoreError as problem:
                problems.append(problem)
            except (OSError, sqlite3.Error) as problem:
                problems.append(store_error(problem, session.engine.path))
        self._kept.clear()
        self._worker.stop()
        if problems:
            raise problems[0]


@atexit.register
def _end_all() -> None:
    """Release all locks before the process ends."""
    for thread in [sessions.abandon() for sessions in _all]:
        if thread is not None:
            thread.join(5)
