"""One session: its database, its mirror, and the files beside them. All runs in the thread of the store."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from ...errors import NotErased, StoreError
from ..protocol import Durability, Repair
from ..sqlite import changes
from ..sqlite.engine import Companion, SqliteEngine
from ..sqlite.errors import store_error
from ..sqlite.journal import JournalMode
from ..sqlite.locks import SessionLocks
from ..sqlite.repair import repair_session
from ..sqlite.schema import SIDECARS, VERSION, open_in_memory, replacement, sidecar, sync_folder
from ..sqlite.secure_erase import is_erase_pending, remove_copies
from ..sqlite.worker import SqliteWorker
from .files import add_lines, exists, remove
from .former import former_files, put_away, read_former, remove_former
from .mirror import EDITED, NEW_FILE, Mirror, save_mark
from .paths import SessionFiles

log = logging.getLogger(__name__)
_BUSY = 10.0  # seconds to wait while another process has locked the database


class MirroredSession(Companion):
    """A session of a folder: what belongs to its database."""

    holds_one = True

    def __init__(
        self,
        files: SessionFiles,
        worker: SqliteWorker,
        durability: Durability,
        *,
        archive: bool,
        journal: JournalMode | None,
        on_connect: Callable[[MirroredSession], None],
    ) -> None:
        self._on_connect = on_connect  # called when the session is locked, or a database opened for it
        self.files = files
        locks = SessionLocks(Path(files.folder), os.path.basename(files.path("lock")))
        path = Path(files.database)
        self.engine = SqliteEngine(path, durability, _BUSY, journal=journal, worker=worker, locks=locks, companion=self)
        self._new_mirror = partial(Mirror, files, archive=archive, report=self.engine.reports.append)
        self._mirror = self._new_mirror()
        self._memory: tuple[object, sqlite3.Connection] | None = None  # for readers, while there is no database
        self._will_erase = False  # the transaction erases messages
        self._erases = False  # files beside the database may hold erased messages

    @property
    def is_connected(self) -> bool:
        return self.engine.is_connected or self._memory is not None

    def on_connect(self) -> None:
        self._on_connect(self)

    def disconnect(self) -> None:
        self.engine.disconnect()
        self._mirror.close()
        if self._memory is not None:
            self._memory[1].close()
            self._memory = None

    # -- opening -------------------------------------------------------------------------------------------------------

    def begin(self, *, is_new: bool) -> None:
        """Take over what another program wrote before the session was locked."""
        self._will_erase = False
        if is_new:
            self.on_connect()
            self._mirror.close()
            self._mirror = self._new_mirror()
            if self.files.exists:
                self._adopt()
        elif self.engine.is_connected or exists(self.files.database):
            self._mirror.check_unchanged(self.engine.database())
        elif exists(self.files.main):
            raise self._mirror.changed_by_another()
        self._mirror.begin()

    def _adopt(self) -> None:
        db = self.engine.database()
        former = former_files(self.files)
        if former:  # what the database was made from is changed from here on
            _flush(db)
        db.execute("BEGIN IMMEDIATE")  # after an error the engine rolls it back
        self._mirror.adopt(db)
        self._mirror.before_commit(db)
        db.execute("COMMIT")
        self._erases = is_erase_pending(db)  # a crash came before it was done
        self.after_commit(db)
        with suppress(OSError):  # the next opening tries it again
            if former:
                put_away(self.files)

    def fill(self, db: sqlite3.Connection) -> None:
        """Load the messages of another program, or those of a former version with all that it kept."""
        found = read_former(self.files)
        if found is None:
            return
        name, status = self.files.session_id, _status(self.files.main)
        updated = status.st_mtime_ns // 1_000 if status else 0
        changes.load(db, name, found.entries, found.archived, last_seq=found.last_seq, updated=updated)
        if found.checkpoint is not None:
            changes.save_checkpoint(db, name, *found.checkpoint)
        if found.is_outdated:
            save_mark(db, EDITED)
        is_former = bool(former_files(self.files))
        if self.engine.locks.held and (found.lost or not is_former):
            what = "of a former version" if is_former else "of another program, without a database"
            text = (
                f"{os.path.basename(self.files.main)} is a session {what}; {len(found.entries):,} messages taken over"
            )
            path = add_lines(self.files.path("damaged"), found.unreadable)
            self.engine.reports.append(Repair(name, text, found.lost, path))

    def open_in_memory(self) -> sqlite3.Connection:
        """See `Companion`. The connection is kept until a file changes."""
        paths = [self.files.main, *former_files(self.files)]
        state = [(status.st_ino, status.st_size, status.st_mtime_ns) for path in paths if (status := _status(path))]
        if self._memory is None or self._memory[0] != state:
            self.disconnect()
            self._memory = state, open_in_memory(self.engine.path, self.fill)
            self.on_connect()
        return self._memory[1]

    def problems(self) -> list[str]:
        """Return those of the text file of a session without a database."""
        found = None if exists(self.files.database) else read_former(self.files)
        name = os.path.basename(self.files.main)
        return [f"{len(found.unreadable):,} lines of {name} are no messages"] if found and found.unreadable else []

    def repair(self) -> None:
        """Lock the session. Copy what is readable of a damaged database into a new one, and take from the mirror what
        only that holds.
        """
        name = self.files.session_id
        is_changed = self.engine.lock(name)
        try:
            is_there = exists(self.files.database) or replacement(self.engine.path).exists()
            if is_there and self.engine.verify(name):
                self.disconnect()
                found = repair_session(self.engine.path, Path(self.files.main))
                for repair in found[:-1] or found:  # without the sum of one
                    self.engine.reports.append(repair)
                self.engine.expect_replaced()
                is_changed = True
            if is_changed:
                self.begin(is_new=True)
        except BaseException:
            self._unlock()
            raise

    # -- changing ------------------------------------------------------------------------------------------------------

    def before_commit(self, db: sqlite3.Connection) -> None:
        self._mirror.before_commit(db)

    def after_commit(self, db: sqlite3.Connection) -> None:
        self._mirror.after_commit(db)
        self._erases = self._erases or self._will_erase
        with suppress(OSError):  # `settle` tries it again
            if self._erases:  # before the database forgets that it has to erase
                self._remove_side_files()

    def on_change(self, keep: int | None, added: Sequence[bytes]) -> None:
        self._mirror.on_change(keep, added)

    def on_erase(self, *, messages: bool) -> None:
        if messages:
            self._mirror.on_change(NEW_FILE, ())
        self._will_erase = True

    def finish_erasing(self) -> None:
        problem = self.settle()
        if self._erases:
            raise NotErased(
                f"session {self.files.session_id!r}: the messages were replaced, but files in {self.files.folder} may "
                f"hold the former ones ({problem or 'another program writes to them'}); the next change tries it again"
            ) from problem

    @property
    def needs_settling(self) -> bool:
        return bool(self.engine.locks.held) and (self._erases or not self._mirror.is_settled)

    def settle(self) -> Exception | None:
        """Sync the mirror, so that the next opening need not read it, and erase what is to be erased. Return what
        prevented it, which was logged.
        """
        if not self.needs_settling:
            return None
        try:
            if exists(self.files.database):
                self._mirror.settle(self.engine.database())
            if self._erases and self._mirror.is_settled:
                self._remove_side_files()
                self._erases = False
        except (OSError, sqlite3.Error, StoreError) as problem:
            log.warning("session %r: its files are not written yet (%s)", self.files.session_id, problem)
            return problem
        return None

    def fork_from(self, source: MirroredSession, length: int | None, db: sqlite3.Connection) -> None:
        """Create this session from the beginning of another one, in a transaction of its database."""
        try:
            with source.engine.reading() as old:
                changes.fork(db, source.files.session_id, self.files.session_id, length, old)
        except sqlite3.DatabaseError as problem:
            raise store_error(problem, source.engine.path) from problem

    # -- releasing and deleting ----------------------------------------------------------------------------------------

    def on_release(self) -> None:
        try:
            self.settle()
            self.disconnect()
        finally:
            self._unlock()

    def _unlock(self) -> None:
        self.engine.expect_replaced()
        self.engine.locks.release_all()
        if self.files.own_folder:
            with suppress(OSError):  # it is not empty
                os.rmdir(self.files.folder)

    def delete(self) -> None:
        """Erase all files. The mirror goes first, and the log of the database after it: a crash leaves all, or nothing
        that could be opened.
        """
        if exists(self.files.folder) and (self.files.exists or self.files.own_folder):
            self.engine.expect_replaced()
            self.engine.lock(self.files.session_id, to_delete=True)
            self.disconnect()
            remove(self.files.main)
            sync_folder(Path(self.files.folder))
            for ending in ("", *SIDECARS):
                remove(str(sidecar(self.engine.path, ending)))
                if not ending:
                    sync_folder(Path(self.files.folder))
            remove_copies(self.engine.path)
            self._remove_side_files()
        self.disconnect()
        self._unlock()

    def _remove_side_files(self) -> None:
        """Remove what may hold erased messages beside mirror and database."""
        remove(self.files.path("damaged"))
        remove(f"{self.files.main}.new")
        remove_former(self.files)
        sync_folder(Path(self.files.folder))


def _flush(db: sqlite3.Connection) -> None:
    """Write everything to the disk, whatever `durability` says."""
    (before,) = db.execute("PRAGMA synchronous").fetchone()
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA user_version = {VERSION}")  # a commit: after it no journal is left that undoes the one before
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.execute(f"PRAGMA synchronous = {int(before)}")


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None
