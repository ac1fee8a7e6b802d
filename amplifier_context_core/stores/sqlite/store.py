"""Sessions in one SQLite database: ``sqlite:PATH``.

Any number of sessions share a file. Calls are carried out by a thread of the store; what is written at the same time
shares one transaction and with it one fsync. What is in the file is described in `schema`, what calls do to it
in `queries`, how they are run in `engine`.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ...transcript.transcript import Entry
from ..protocol import Durability, Extent, OnRepair, Repair, SessionInfo, index_range
from ..sqlite import queries, search
from ..validation import check_session_id, no_session, session_exists, url_path
from .engine import SqliteEngine
from .errors import damage
from .queries import ReadResult
from .recovery import pop_repairs
from .row_recovery import WHOLE
from .rows import SessionRow
from .schema import disconnect, has_fts5, only_reads
from .secure_erase import erase, is_erasing, note_erasing
from .verify import check, check_pages, problems, verify
from .worker import Continuation, Task

_LONG = 1_000  # entries; longer ranges are read by the second thread

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
            path: of the database file; ``~`` is the home folder.
            durability: what acknowledged means.
            archive: keep what edits and interrupts take out of a history.
            busy: seconds to wait while another process has locked the file.
        """
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self._archive = archive
        self._engine = SqliteEngine(self.path, durability, busy)
        self._busy = busy
        # Of a store nobody holds any more the thread ends, and the claims are given back.
        weakref.finalize(self, self._engine.abandon).atexit = False

    @classmethod
    def from_url(cls, address: str, *, durability: Durability, archive: bool) -> SqliteStore:
        """The store at ``sqlite:PATH``.

        Raises:
            ConfigError: there is no path in it that could be one.
        """
        path = url_path(address, "the path of a database file", "sqlite:~/sessions.db or sqlite:/var/lib/sessions.db")
        return cls(path, durability=durability, archive=archive)

    # -- claims --------------------------------------------------------------------------------------------------------

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        check_session_id(session_id)

        def work(job: Task) -> Extent:
            head = queries.head_of(job.db, session_id)
            if head is None:
                queries.check_none(job.db, session_id)
            else:
                queries.check_end(job.db, head)
            self._engine.leases.hold(job.db, session_id, anew=True)
            self._engine.listen(session_id, on_repair)
            for repair in pop_repairs(job.db, session_id):
                self._engine.tell(job, repair)
            return _extent(head)

        return await self._engine.run("claim", work, session_id)

    async def release(self, session_id: str) -> None:
        check_session_id(session_id)

        def work(job: Task) -> None:
            self._engine.leases.release(job.db, session_id)
            self._engine.unlisten(session_id)

        await self._engine.run("leave", work, session_id)

    async def close(self) -> None:
        await self._engine.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def extent(self, session_id: str) -> Extent:
        check_session_id(session_id)
        return await self._engine.run("read", lambda job: _extent(queries.head_of(job.db, session_id)), session_id)

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        check_session_id(session_id)

        def work(job: Task) -> list[Entry] | Continuation:
            head = queries.head_of(job.db, session_id)
            if head is None:
                return []
            wanted = index_range(head.length, start, stop)
            reading = partial(queries.read, session_id=session_id, head=head, wanted=wanted)
            return self._reading(job, session_id, reading, "entries", long=len(wanted) > _LONG)

        return await self._engine.run("read", work, session_id)

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        check_session_id(session_id)
        asked = tuple(seqs)

        def work(job: Task) -> list[Entry] | Continuation:
            head = queries.head_of(job.db, session_id)
            if head is None:
                return []
            reading = partial(queries.find, session_id=session_id, head=head, seqs=asked)
            return self._reading(job, session_id, reading, "entries", long=len(asked) > _LONG)

        return await self._engine.run("read", work, session_id)

    async def archived(self, session_id: str) -> list[Entry]:
        check_session_id(session_id)

        def work(job: Task) -> list[Entry] | Continuation:
            head = queries.head_of(job.db, session_id)
            if head is None:
                return []
            reading = partial(queries.archived, session_id=session_id, head=head)
            return self._reading(job, session_id, reading, "archive", long=True)

        return await self._engine.run("read", work, session_id)

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        check_session_id(session_id)

        def work(job: Task) -> bytes | Continuation | None:
            head = queries.head_of(job.db, session_id)
            data, damaged = queries.load_checkpoint(job.db, head) if head else (None, False)
            return Continuation(drop, "write", otherwise=report) if damaged else data

        def drop(job: Task) -> None:
            head = queries.head_of(job.db, session_id)
            if head and queries.load_checkpoint(job.db, head)[1] and self._engine.leases.is_free(job.db, session_id):
                job.db.execute("DELETE FROM checkpoints WHERE session = ?", (head.number,))
            report(job)

        def report(job: Task) -> None:
            self._engine.tell(job, Repair(session_id, "the checkpoint was damaged; it is made again from the history"))

        return await self._engine.run("read", work, session_id)

    async def sessions(self) -> list[SessionInfo]:
        return await self._engine.run("read", lambda job: queries.sessions(job.db))

    # -- changing ------------------------------------------------------------------------------------------------------

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

        def work(job: Task) -> Continuation | None:
            if queries.head_of(job.db, session_id) is None:
                return None
            self._engine.leases.hold(job.db, session_id)
            if queries.rewrite(job.db, session_id, batch):
                check(job.db)  # or what a damaged page holds by mistake would stay in the file
                search.drop(job.db)  # words that are erased are in it, and maybe where nobody looks for them
                note_erasing(job.db)
            return Continuation(partial(erase, self.path), "write") if is_erasing(job.db) else None

        await self._engine.run("write", work, session_id)

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        check_session_id(session_id)
        check_session_id(new_id)

        def work(job: Task) -> None:
            if queries.head_of(job.db, session_id) is None:
                raise no_session(session_id)
            if queries.head_of(job.db, new_id) is not None:
                raise session_exists(new_id)
            self._engine.leases.hold(job.db, new_id)
            queries.fork(job.db, session_id, new_id, length)

        await self._engine.run("write", work, session_id)

    async def delete(self, session_id: str) -> None:
        check_session_id(session_id)

        def work(job: Task) -> None:
            self._engine.leases.check_free(job.db, session_id)
            self._engine.leases.release(job.db, session_id)
            queries.delete(job.db, session_id)
            self._engine.unlisten(session_id)

        await self._engine.run("write", work, session_id)

    # -- searching and checking ----------------------------------------------------------------------------------------

    async def search(self, session_id: str, query: str, limit: int) -> list[int]:
        """See `Searchable`. The index is brought up to date first, a slice at a time."""
        check_session_id(session_id)

        def begin(job: Task) -> Continuation:
            return catching_up if has_fts5(job.db) and not only_reads(job.db) else scan(job)

        def catch_up(job: Task) -> Continuation:
            return catching_up if search.catch_up(job.db, session_id) else Continuation(look, "read")

        def look(job: Task) -> Continuation:
            if only_reads(job.db):  # the index may be behind
                return scan(job)
            return self._elsewhere(lambda db: search.found(db, session_id, query, limit))

        def scan(job: Task) -> Continuation:
            return self._elsewhere(lambda db: search.scanned(db, session_id, query, limit))

        catching_up = Continuation(catch_up, "note", otherwise=lambda _: Continuation(scan, "read"))

        return await self._engine.run("read", begin, session_id)

    async def verify(self, session_id: str) -> list[str]:
        """See `Checkable`. Also says what the database's own check finds, in whichever session."""
        check_session_id(session_id)

        def work(job: Task) -> list[str]:
            return verify(self.path, session_id, self._busy)

        return await self._engine.run("apart", lambda job: Continuation(work, "apart", elsewhere=True), session_id)

    async def repair(self, session_id: str | None, on_repair: OnRepair | None = None) -> None:
        """See `Repairable`. The whole database is rewritten, whichever session the damage is in."""
        if session_id is None:
            await self._engine.run("write", partial(self._repair_all, on_repair))
            return
        check_session_id(session_id)

        def work(job: Task) -> None:
            self._engine.leases.hold(job.db, session_id, anew=True)
            self._engine.listen(session_id, on_repair)
            found = problems(job.db, self.path, session_id)
            if found:
                raise damage(found[0])
            search.check(job.db)

        await self._engine.run("claim", work, session_id)

    def _repair_all(self, on_repair: OnRepair | None, job: Task) -> None:
        self._engine.listen(WHOLE, on_repair)
        check(job.db)
        search.check(job.db)
        for repair in pop_repairs(job.db, WHOLE):
            self._engine.tell(job, repair)

    # -- how -----------------------------------------------------------------------------------------------------------

    async def _change(self, session_id: str, change: Change) -> None:
        check_session_id(session_id)

        def work(job: Task) -> None:
            self._engine.leases.hold(job.db, session_id)
            change(job.db)

        await self._engine.run("write", work, session_id)

    def _reading(
        self, job: Task, session_id: str, reading: Callable[[sqlite3.Connection], ReadResult], came: str, *, long: bool
    ) -> list[Entry] | Continuation:
        """Read here, or, what is long, elsewhere from the database as it is now."""
        if not long:
            return self._sound(session_id, reading(job.db), came)
        return self._elsewhere(lambda db: self._sound(session_id, reading(db), came))

    def _elsewhere(self, work: Callable[[sqlite3.Connection], object]) -> Continuation:
        snapshot = self._engine.snapshot()

        def run(job: Task) -> object:
            try:
                return work(snapshot)
            finally:
                disconnect(snapshot, self.path)

        return Continuation(run, "apart", elsewhere=True)

    def _sound(self, session_id: str, found: ReadResult, came: str) -> list[Entry] | Continuation:
        """What was read; damaged rows are put aside first, where nobody else writes to the session."""
        if not found.damaged:
            return found.entries

        def aside(job: Task) -> list[Entry] | Continuation:
            if not self._engine.leases.is_free(job.db, session_id):
                return left_out(job)
            check_pages(job.db)  # or what is sound may only have been hard to find
            lost = queries.set_aside(job.db, session_id, found.damaged, came)
            if lost < len(found.damaged) and job.begin and not job.tried:
                job.tried = True
                return Continuation(*job.begin)  # the database was rewritten or repaired: it reads differently
            if lost:
                what = f"{lost:,} damaged messages were put aside"
                self._engine.tell(job, Repair(session_id, what, lost, f"{self.path}, table `damaged`"))
            return found.entries

        def left_out(job: Task) -> list[Entry]:
            lost = len(found.damaged)
            what = f"{lost:,} damaged messages were left out; the session's next writer puts them aside"
            self._engine.tell(job, Repair(session_id, what, lost))
            return found.entries

        return Continuation(aside, "write", otherwise=left_out)


def _extent(head: SessionRow | None) -> Extent:
    return Extent(head.length, head.last_seq) if head else Extent()
