"""Sessions in SQLite databases: what the store in one file, ``sqlite:PATH``, and that in files share, and the former.

Any number of sessions share a file. A thread of the store executes all calls; concurrent writes share one transaction
and one fsync. `schema` describes the file, `queries` and `changes` what calls do to it, `engine` how they run.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ...errors import NotErased, StoreError
from ...transcript.entry import Entry
from ..protocol import Durability, Extent, KeptVector, OnRepair, Repair, SessionInfo, report_repair
from ..sqlite import changes, queries
from ..validation import check_index, check_session_id, no_session, session_exists, url_path
from .engine import SqliteEngine
from .errors import REPAIR, damaged_messages, is_index_damage, is_unwritable
from .journal import JournalMode, journal_in
from .queries import ReadResult
from .rows import SessionRow
from .secure_erase import RETRY_DELAY, erasing, is_erase_pending, request_erase
from .vectors import read_vectors, save_vectors
from .verify import check_before_erasing

T = TypeVar("T")


class DatabaseStore(ABC):
    """What stores share that keep sessions in databases, be it one for all or one each.

    See `Store`, `Searchable`, `KeepsVectors` and `Checkable` for what the methods promise.
    """

    def __init__(self, *, archive: bool) -> None:
        self._archive = archive
        self._listeners: dict[str, OnRepair] = {}  # by session
        self._damaged: dict[str, set[int]] = {}  # keys of damaged messages by session, as far as they were read

    @abstractmethod
    def _engine_of(self, session_id: str) -> SqliteEngine:
        """Raises `ConfigError`: the session id is invalid."""

    # -- locks ---------------------------------------------------------------------------------------------------------

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        engine, before = self._engine_of(session_id), self._listeners.get(session_id)

        def work(db: sqlite3.Connection) -> Extent:
            session = queries.find_session(db, session_id)
            if session is not None:
                queries.check_end(db, session)
            return _extent(session)

        if on_repair is not None:
            self._listeners[session_id] = on_repair
        try:
            extent = await self._run(engine, lambda: engine.open(session_id, work))
        except StoreError:
            if before is None:
                self._listeners.pop(session_id, None)
            raise
        self._damaged.pop(session_id, None)
        return extent

    async def release(self, session_id: str) -> None:
        engine = self._engine_of(session_id)
        await self._run(engine, lambda: engine.release(session_id))
        self._forget(session_id)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def extent(self, session_id: str) -> Extent:
        return await self._read(session_id, lambda db: _extent(queries.find_session(db, session_id)))

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        return self._intact(
            session_id, await self._read(session_id, lambda db: queries.read(db, session_id, start, stop))
        )

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        asked = tuple(seqs)
        return self._intact(session_id, await self._read(session_id, lambda db: queries.find(db, session_id, asked)))

    async def archived(self, session_id: str) -> list[Entry]:
        return self._intact(session_id, await self._read(session_id, lambda db: queries.archived(db, session_id)))

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        data, damaged = await self._read(session_id, lambda db: queries.load_checkpoint(db, session_id))
        if damaged:
            self._report(Repair(session_id, "the checkpoint is damaged; a new one is made from the history"))
        return data

    # -- writing -------------------------------------------------------------------------------------------------------

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        batch = tuple(entries)
        if batch:
            on_change = self._engine_of(session_id).companion.on_change
            await self._change(session_id, lambda db: on_change(None, changes.append(db, session_id, batch)))

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        batch, engine = tuple(entries), self._engine_of(session_id)
        if not batch and not await self._exists(session_id):
            check_index(session_id, keep, 0)
            return

        def work(db: sqlite3.Connection) -> None:
            engine.companion.on_change(keep, changes.replace(db, session_id, keep, batch, archive=self._archive))

        await self._change(session_id, work)

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        await self._change(session_id, lambda db: changes.save_checkpoint(db, session_id, covered, data))

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        batch, engine = tuple(entries), self._engine_of(session_id)
        if not await self._exists(session_id):
            return

        def work(db: sqlite3.Connection) -> bool:
            is_erased, is_unknown = changes.rewrite(db, session_id, batch)
            if is_erased or is_unknown:
                engine.companion.on_erase(messages=is_erased)
            if is_erased:
                check_before_erasing(db, session_id)
                changes.drop_index(db)  # it holds erased words, perhaps in unexpected locations
                request_erase(db)
            return is_erase_pending(db)

        is_pending = await self._write(session_id, work)
        try:
            if is_pending:
                await _erase(engine)
        finally:
            await self._run(engine, engine.companion.finish_erasing)

    # -- searching and checking ----------------------------------------------------------------------------------------

    async def search(self, session_id: str, query: str, limit: int) -> list[int]:
        """See `Searchable`. The index is filled first, one batch at a time."""
        try:
            return await self._search(session_id, query, limit)
        except StoreError as problem:
            if not is_index_damage(problem.__cause__):
                raise
            await self._engine_of(session_id).write(changes.drop_index)
            self._report(Repair(session_id, "the search index was damaged; it is filled again"))
            return await self._search(session_id, query, limit)

    async def _search(self, session_id: str, query: str, limit: int) -> list[int]:
        from . import search  # here: many sessions are never searched

        def found(db: sqlite3.Connection) -> list[int] | None:
            return search.matching_seqs(db, session_id, query, limit)

        def fill(db: sqlite3.Connection) -> bool:
            return search.index_next_batch(db, session_id)

        def found_or_scanned(db: sqlite3.Connection) -> list[int]:
            seqs = found(db)
            return search.scan(db, session_id, query, limit) if seqs is None else seqs

        seqs = await self._read(session_id, found)
        if seqs is not None:
            return seqs
        engine = self._engine_of(session_id)
        try:
            # A text file of another program stays without a database until it is opened: only then is it locked.
            while await engine.run(engine.path.exists) and await engine.write(fill):
                pass
        except StoreError as problem:
            if not is_unwritable(problem.__cause__):
                raise
        return await self._read(session_id, found_or_scanned)

    async def vectors(self, session_id: str, model: str) -> list[KeptVector]:
        return await self._read(session_id, lambda db: read_vectors(db, session_id, model))

    async def save_vectors(self, session_id: str, model: str, vectors: Sequence[KeptVector]) -> None:
        """Locks nothing."""
        batch, engine = tuple(vectors), self._engine_of(session_id)
        if await self._exists(session_id) and await engine.run(engine.path.exists):
            await engine.write(lambda db: save_vectors(db, session_id, model, batch))

    async def verify(self, session_id: str) -> list[str]:
        """See `Checkable`. Also reports what SQLite's integrity check finds in any session of the file."""
        engine, refused = self._engine_of(session_id), list[str]()
        try:
            await self.extent(session_id)  # a database of a former format is carried over
        except StoreError as problem:
            refused = [str(problem)]
        found = await engine.run(lambda: [*engine.verify(session_id), *engine.companion.problems()])
        return [*refused, *(one for one in found if one not in refused)]

    # -- helpers -------------------------------------------------------------------------------------------------------

    async def _read(self, session_id: str, work: Callable[[sqlite3.Connection], T]) -> T:
        engine = self._engine_of(session_id)
        return await self._reported(engine, engine.read(work))

    async def _run(self, engine: SqliteEngine, work: Callable[[], T]) -> T:
        return await self._reported(engine, engine.run(work))

    async def _write(self, session_id: str, work: Callable[[sqlite3.Connection], T]) -> T:
        engine = self._engine_of(session_id)
        return await self._reported(engine, engine.write(work, session_id))

    async def _reported(self, engine: SqliteEngine, call: Awaitable[T]) -> T:
        """Await a call, and report what the engine found."""
        try:
            return await call
        finally:
            while engine.reports:  # the thread may add one meanwhile
                self._report(engine.reports.pop(0))

    async def _exists(self, session_id: str) -> bool:
        return await self._read(session_id, lambda db: queries.find_session(db, session_id)) is not None

    async def _change(self, session_id: str, change: Callable[[sqlite3.Connection], object]) -> None:
        engine = self._engine_of(session_id)

        def work(db: sqlite3.Connection) -> None:
            if damaged := self._damaged.get(session_id):
                raise damaged_messages(session_id, len(damaged), engine.path)
            change(db)

        await self._write(session_id, work)

    def _intact(self, session_id: str, found: ReadResult) -> list[Entry]:
        """Return what was read. Report what is damaged, once; the session is not changed until it is opened again."""
        new = set(found.damaged) - self._damaged.get(session_id, set())
        if new:
            self._damaged.setdefault(session_id, set()).update(new)
            what = f"{len(new):,} damaged message{' was' if len(new) == 1 else 's were'} left out. {REPAIR}"
            self._report(Repair(session_id, what, len(new)))
        return found.entries

    def _report(self, repair: Repair) -> None:
        report_repair(repair, self._listeners.get(repair.session_id))

    def _forget(self, session_id: str) -> None:
        self._listeners.pop(session_id, None)
        self._damaged.pop(session_id, None)


class SqliteStore(DatabaseStore):
    """Keeps histories in one SQLite database. See also `Repairable`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fsync",
        archive: bool = True,
        busy: float = 10.0,
        journal: JournalMode | None = None,
    ) -> None:
        """`busy` is in seconds, to wait while another process has locked the file. See `JsonlStore` for the rest."""
        super().__init__(archive=archive)
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self._engine = SqliteEngine(self.path, durability, busy, journal=journal)
        # A store without references ends its thread and releases its sessions.
        weakref.finalize(self, self._engine.abandon).atexit = False

    @classmethod
    def from_url(cls, url: str, *, durability: Durability, archive: bool) -> SqliteStore:
        """Return the store at ``sqlite:PATH``, or ``sqlite:PATH?journal=truncate`` on a network file system."""
        examples = "sqlite:~/sessions.db or sqlite:/var/lib/sessions.db"
        path, journal = journal_in(url_path(url, "the path of a database file", examples))
        return cls(path, durability=durability, archive=archive, journal=journal)

    def _engine_of(self, session_id: str) -> SqliteEngine:
        check_session_id(session_id)
        return self._engine

    async def close(self) -> None:
        try:
            await self._engine.close()
        finally:
            self._listeners.clear()
            self._damaged.clear()

    async def sessions(self) -> list[SessionInfo]:
        def work(db: sqlite3.Connection) -> list[SessionInfo]:
            return [row.info(self._engine.locks.holder(row.session_id)) for row in queries.session_rows(db)]

        return await self._engine.read(work)

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        if not await self._exists(session_id):
            raise no_session(session_id)
        if await self._exists(new_id):
            raise session_exists(new_id)
        await self._engine.write(lambda db: changes.fork(db, session_id, new_id, length), new_id)

    async def delete(self, session_id: str) -> None:
        def work(db: sqlite3.Connection) -> bool:
            if changes.delete(db, session_id):
                request_erase(db)
            return is_erase_pending(db)

        engine = self._engine_of(session_id)
        is_pending = await engine.write(work, session_id, deletes=True)
        self._forget(session_id)
        if is_pending:
            await _erase(engine)

    async def repair(self, session_id: str | None, on_repair: OnRepair | None = None) -> None:
        """See `Repairable`. The whole database is written again, whichever session is damaged; no other may use it."""
        if session_id is not None:
            check_session_id(session_id)
        with suppress(StoreError):
            await self.sessions()  # a database of a former format is carried over

        def work() -> list[Repair]:
            return self._engine.repair() if self._engine.verify(session_id) else []

        repairs = await self._engine.run(work)
        if repairs:
            self._damaged.clear()
        for repair in repairs:
            report_repair(repair, on_repair)


async def _erase(engine: SqliteEngine) -> None:
    """Run all pending erasures. Raise `NotErased` if they are not complete; the next opening tries it again."""
    steps = erasing(engine.database, engine.path)
    try:
        while await engine.run(lambda: next(steps, "done")) != "done":  # noqa: ASYNC110 - readers of a file
            await asyncio.sleep(RETRY_DELAY)
    except NotErased:
        raise
    except StoreError as problem:
        raise NotErased(f"the messages are replaced, but the former ones are not erased yet: {problem}") from problem


def _extent(session: SessionRow | None) -> Extent:
    return Extent(session.length, session.last_seq) if session else Extent()
