"""Sessions in one SQLite database: ``sqlite:PATH``.

Any number of sessions share a file. A thread of the store executes all calls; concurrent writes share one transaction
and one fsync. `schema` describes the file, `queries` what calls do to it, `engine` how they run.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace as but
from functools import partial
from pathlib import Path

from ...errors import StoreError
from ...transcript.entry import Entry
from ..protocol import Durability, Extent, KeptVector, OnRepair, Repair, SessionInfo, index_range
from ..sqlite import queries, search
from ..validation import check_session_id, no_session, session_exists, url_path
from ..word_index import has_fts5
from .engine import SqliteEngine
from .queries import ReadResult
from .rows import SessionRow
from .schema import is_read_only
from .secure_erase import erase, is_erase_pending, request_erase
from .vectors import read_vectors, save_vectors
from .verify import check_before_erasing, verify
from .worker import Continuation, Task

_MAX_FOREGROUND_ENTRIES = 1_000  # entries; the second thread reads longer ranges

Change = Callable[[sqlite3.Connection], object]


class SqliteStore:
    """Keeps histories in a SQLite database.

    See `Store`, `Searchable`, `Checkable` and `Repairable` for what the methods promise.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fsync",
        archive: bool = True,
        busy: float = 10.0,
    ) -> None:
        """
        Args:
            path: The database file; ``~`` is the home folder.
            durability: What an acknowledgement promises.
            archive: Keep what edits and interrupts remove from a history.
            busy: Seconds to wait while another process has locked the file.
        """
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self._archive = archive
        self._engine = SqliteEngine(self.path, durability, busy)
        self._busy = busy
        # A store without references ends its thread and releases its sessions.
        weakref.finalize(self, self._engine.abandon).atexit = False

    @classmethod
    def from_url(cls, url: str, *, durability: Durability, archive: bool) -> SqliteStore:
        """Return the store at ``sqlite:PATH``.

        Raises:
            ConfigError: The URL holds no valid path.
        """
        path = url_path(url, "the path of a database file", "sqlite:~/sessions.db or sqlite:/var/lib/sessions.db")
        return cls(path, durability=durability, archive=archive)

    # -- locks ---------------------------------------------------------------------------------------------------------

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        check_session_id(session_id)

        def work(task: Task) -> Extent:
            session = queries.find_session(task.db, session_id)
            if session is not None:
                queries.check_end(task.db, session)
            self._engine.begin_session(session_id, on_repair)
            return _extent(session)

        # Locked first: what is read then cannot be changed by another writer.
        is_new = await self._engine.run("no_connection", lambda task: self._engine.lock(task, session_id, again=True))
        try:
            return await self._engine.run("read", work, session_id)
        except StoreError:
            if is_new:
                await self.release(session_id)
            raise

    async def release(self, session_id: str) -> None:
        check_session_id(session_id)
        await self._engine.run("no_connection", lambda task: self._engine.end_session(session_id))

    async def close(self) -> None:
        await self._engine.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def extent(self, session_id: str) -> Extent:
        check_session_id(session_id)
        return await self._engine.run(
            "read", lambda task: _extent(queries.find_session(task.db, session_id)), session_id
        )

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        check_session_id(session_id)

        def work(task: Task) -> list[Entry] | Continuation:
            session = queries.find_session(task.db, session_id)
            if session is None:
                return []
            wanted = index_range(session.length, start, stop)
            reading = partial(queries.read, session_id=session_id, session=session, wanted=wanted)
            return self._read_rows(task, session_id, reading, long=len(wanted) > _MAX_FOREGROUND_ENTRIES)

        return await self._engine.run("read", work, session_id)

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        check_session_id(session_id)
        asked = tuple(seqs)

        def work(task: Task) -> list[Entry] | Continuation:
            session = queries.find_session(task.db, session_id)
            if session is None:
                return []
            reading = partial(queries.find, session_id=session_id, session=session, seqs=asked)
            return self._read_rows(task, session_id, reading, long=len(asked) > _MAX_FOREGROUND_ENTRIES)

        return await self._engine.run("read", work, session_id)

    async def archived(self, session_id: str) -> list[Entry]:
        check_session_id(session_id)

        def work(task: Task) -> list[Entry] | Continuation:
            session = queries.find_session(task.db, session_id)
            if session is None:
                return []
            reading = partial(queries.archived, session_id=session_id, session=session)
            return self._read_rows(task, session_id, reading, long=True)

        return await self._engine.run("read", work, session_id)

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        check_session_id(session_id)

        def work(task: Task) -> bytes | None:
            session = queries.find_session(task.db, session_id)
            data, damaged = queries.load_checkpoint(task.db, session) if session else (None, False)
            if damaged:
                what = "the checkpoint is damaged; a new one is made from the history"
                self._engine.report(task, Repair(session_id, what))
            return data

        return await self._engine.run("read", work, session_id)

    async def sessions(self) -> list[SessionInfo]:
        def work(task: Task) -> list[SessionInfo]:
            found = queries.sessions(task.db)
            holders = self._engine.locks.holders(info.session_id for info in found)
            return [but(info, holder=holders.get(info.session_id, "")) for info in found]

        return await self._engine.run("read", work)

    # -- writing -------------------------------------------------------------------------------------------------------

    async def append(self, session_id: str, entries: Sequence[Entry], *, atomic: bool = True) -> None:
        batch = tuple(entries)
        check_session_id(session_id)
        if batch:
            await self._change(session_id, lambda db: queries.append(db, session_id, batch))

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        batch = tuple(entries)
        await self._change(session_id, lambda db: queries.replace(db, session_id, keep, batch, archive=self._archive))

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        await self._change(session_id, lambda db: queries.save_checkpoint(db, session_id, covered, data))

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        check_session_id(session_id)
        batch = tuple(entries)

        def work(task: Task) -> Continuation | None:
            if queries.find_session(task.db, session_id) is None:
                return None
            self._engine.lock(task, session_id)
            if queries.rewrite(task.db, session_id, batch):
                check_before_erasing(task.db, session_id)
                queries.drop_index(task.db)  # it holds erased words, perhaps in unexpected locations
                request_erase(task.db)
            return Continuation(partial(erase, self.path), "write") if is_erase_pending(task.db) else None

        await self._engine.run("write", work, session_id)

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        check_session_id(session_id)
        check_session_id(new_id)

        def work(task: Task) -> None:
            if queries.find_session(task.db, session_id) is None:
                raise no_session(session_id)
            if queries.find_session(task.db, new_id) is not None:
                raise session_exists(new_id)
            self._engine.lock(task, new_id)
            queries.fork(task.db, session_id, new_id, length)

        await self._engine.run("write", work, session_id)

    async def delete(self, session_id: str) -> None:
        check_session_id(session_id)

        def work(task: Task) -> None:
            self._engine.lock(task, session_id, to_delete=True)
            queries.delete(task.db, session_id)
            task.releases_on_success = session_id

        await self._engine.run("write", work, session_id)

    # -- searching and checking ----------------------------------------------------------------------------------------

    async def search(self, session_id: str, query: str, limit: int) -> list[int]:
        """See `Searchable`. The index is filled first, one batch at a time."""
        check_session_id(session_id)
        fill = search.IndexFill(session_id)

        def begin(task: Task) -> Continuation:
            if not has_fts5(task.db) or is_read_only(task.db):
                return scan(task)
            return use_index(task) if search.is_filled(task.db, session_id) else catching_up

        def catch_up(task: Task) -> Continuation:
            return catching_up if fill.step(task.db) else Continuation(use_index, "read")

        def use_index(task: Task) -> Continuation:
            if is_read_only(task.db):  # the index may be incomplete
                return scan(task)
            return self._in_background(lambda db: search.matching_seqs(db, session_id, query, limit))

        def scan(task: Task) -> Continuation:
            return self._in_background(lambda db: search.scan(db, session_id, query, limit))

        catching_up = Continuation(catch_up, "write_unsynced", fallback=lambda _: Continuation(scan, "read"))

        return await self._engine.run("read", begin, session_id)

    async def vectors(self, session_id: str, model: str) -> list[KeptVector]:
        """See `KeepsVectors`."""
        check_session_id(session_id)

        def work(_: Task) -> Continuation:
            return self._in_background(lambda db: read_vectors(db, session_id, model))

        return await self._engine.run("read", work, session_id)

    async def save_vectors(self, session_id: str, model: str, vectors: Sequence[KeptVector]) -> None:
        """See `KeepsVectors`. Locks nothing."""
        check_session_id(session_id)
        batch = tuple(vectors)
        await self._engine.run(
            "write_unsynced", lambda task: save_vectors(task.db, session_id, model, batch), session_id
        )

    async def verify(self, session_id: str) -> list[str]:
        """See `Checkable`. Also reports what SQLite's integrity check finds in any session."""
        check_session_id(session_id)
        refused: list[str] = []
        try:
            await self.extent(session_id)  # a database of a former format is carried over
        except StoreError as problem:
            refused = [str(problem)]

        def work(task: Task) -> list[str]:
            return [*refused, *(one for one in verify(self.path, session_id, self._busy) if one not in refused)]

        return await self._engine.run(
            "no_connection", lambda task: Continuation(work, "no_connection", in_background=True), session_id
        )

    async def repair(self, session_id: str | None, on_repair: OnRepair | None = None) -> None:
        """See `Repairable`. The whole database is written again, whichever session is damaged; no other may use it."""
        if session_id is not None:
            check_session_id(session_id)

        def work(task: Task) -> None:
            if verify(self.path, session_id, self._busy):
                self._engine.repair(task, on_repair)

        await self._engine.run("no_connection", work)

    # -- helpers -------------------------------------------------------------------------------------------------------

    async def _change(self, session_id: str, change: Change) -> None:
        check_session_id(session_id)

        def work(task: Task) -> None:
            self._engine.lock(task, session_id)
            self._engine.check_undamaged(session_id)
            change(task.db)

        await self._engine.run("write", work, session_id)

    def _read_rows(
        self,
        task: Task,
        session_id: str,
        reading: Callable[[sqlite3.Connection], ReadResult],
        *,
        long: bool,
    ) -> list[Entry] | Continuation:
        """Read in the first thread, or, if it takes long, in the second one from a snapshot."""
        if not long:
            return self._intact(task, session_id, reading(task.db))
        return self._in_background(lambda db: self._intact(task, session_id, reading(db)))

    def _in_background(self, work: Callable[[sqlite3.Connection], object]) -> Continuation:
        snapshot = self._engine.snapshot()

        def run(task: Task) -> object:
            with snapshot as db:
                return work(db)

        return Continuation(run, "no_connection", in_background=True)

    def _intact(self, task: Task, session_id: str, found: ReadResult) -> list[Entry]:
        """Return what was read. Report what is damaged."""
        if found.damaged:
            self._engine.note_damage(task, session_id, found.damaged)
        return found.entries


def _extent(session: SessionRow | None) -> Extent:
    return Extent(session.length, session.last_seq) if session else Extent()
