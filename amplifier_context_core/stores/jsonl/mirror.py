"""The mirror of a session: its messages as a text file, one a line, in the format of the module that this one replaces.

The database decides. The commit of a change sets a mark in it: the mirror is not written yet. The mark is removed once
the mirror is synced. Its identity (inode, size, time of change) is recorded then; a mirror of that identity is not read
again. The bytes are always those that `comparison.lines_of` gives.

Any other file is compared with the database (see `comparison`). What another program wrote is taken over, and the
mirror is written again. While the mark is set, messages may be missing because they were never written: then only new
ones are added. While the mark of an edit is set, lines may be those that the edit removed: such a file is not read.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...errors import NotErased, StoreError
from ...transcript.entry import Entry
from ..protocol import Durability, Repair
from ..sqlite import changes, queries
from ..sqlite.rows import SessionRow, number_in
from ..sqlite.schema import sync_folder
from .comparison import Difference, adopted, compare, lines_of, merged, written_size
from .files import add_lines, open_file, sync, write_all
from .paths import SessionFiles

log = logging.getLogger(__name__)

SETTLED, APPENDED, EDITED = range(3)  # the mark: written and synced; messages were appended; others were changed
_ALL = 1 << 62
_FACTS = ("mark", "inode", "size", "ctime")


class Identity(NamedTuple):
    """What tells that a file is still the one that was written."""

    inode: int = 0
    size: int = 0
    ctime: int = 0  # ns; no program can set it, unlike the time of modification


class Mirror:
    """The mirror of one session. All methods are called in the thread of its database, while the session is locked.

    Attributes:
        path: The file.
        is_settled: It is synced, and the database knows that and its identity.
    """

    def __init__(
        self, files: SessionFiles, durability: Durability, *, archive: bool, report: Callable[[Repair], None]
    ) -> None:
        self.path = files.main
        self._files, self._session_id, self._archive = files, files.session_id, archive
        self._report = report  # receives what is taken over of another program
        self._is_synced = durability != "none"
        self._identity: Identity | None = None  # of the file as it should be; None: it must be written
        self._count = 0  # messages in the file
        self._mark = SETTLED
        self.is_settled = False
        self._keep = _ALL  # messages that the transaction leaves as they are
        self._will_erase = False  # the transaction erases messages
        self._is_uncertain = False  # a commit failed, and may have been made
        self._erases = False  # the file may hold erased messages
        self._target: SessionRow | None = None  # what is written after the commit

    # -- what another program wrote ------------------------------------------------------------------------------------

    def adopt(self, db: sqlite3.Connection) -> None:
        """Compare the file with the database, in a transaction. Take over what another program wrote."""
        self._load(db)
        identity = _identity_of(self.path)
        if self.is_settled and identity == self._identity:
            return
        found = self._examine(db, identity)
        if found is None:
            return
        if found.kind == "theirs" and self._mark != EDITED:
            self._take_over(db, found)
        self._save(db, APPENDED if self._mark == SETTLED else self._mark)

    def check_unchanged(self, db: sqlite3.Connection) -> None:
        """Raise `StoreError` if another program wrote to the file while the session is open."""
        identity, may_be_former = _identity_of(self.path), False
        if self._is_uncertain:  # the database says whether the commit was made
            self._load(db)
            if not self.is_settled:
                self._identity, may_be_former = Identity(), self._mark == EDITED
        if self._identity is None or identity == self._identity:
            return
        expected = self._identity
        found = self._examine(db, identity)
        if found is not None and found.kind == "theirs" and not may_be_former:
            self._identity = expected
            raise self.changed_by_another()

    def _examine(self, db: sqlite3.Connection, identity: Identity | None) -> Difference | None:
        """Compare a file of this identity. Go on appending to one that is the same; any other one is written again."""
        found = compare(db, self._session_id, self.path) if identity is not None else None
        self._identity, self.is_settled = (identity if found is not None and found.kind == "same" else None), False
        return found

    def changed_by_another(self) -> StoreError:
        """Return the error for a file that another program wrote to while the session is open."""
        return StoreError(
            f"session {self._session_id!r}: another program wrote to {self.path}; release the session and open it "
            "again to continue with what it wrote"
        )

    def _take_over(self, db: sqlite3.Connection, found: Difference) -> None:
        session = queries.find_session(db, self._session_id)
        entries, order = found.entries, merged(found, is_complete=self._mark == SETTLED)
        keep = 0
        while keep < min(len(order), len(entries)) and order[keep] is entries[keep]:
            keep += 1
        new = adopted(self._session_id, order[keep:], entries[:keep], session.last_seq if session else 0)
        changes.replace(db, self._session_id, keep, new, archive=self._archive)
        added = sum(not isinstance(one, Entry) for one in order)
        removed = len(entries) + added - len(order)
        name = os.path.basename(self.path)
        what = f"took over what another program wrote to {name}: {added:,} messages added, {removed:,} removed"
        kept = add_lines(self._files.path("damaged"), found.unreadable)
        self._report(Repair(self._session_id, what, len(found.unreadable), kept))

    # -- following the database ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A transaction begins; the one before may have been rolled back."""
        self._keep, self._will_erase = _ALL, False

    def on_edit(self, keep: int) -> None:
        """The transaction leaves the first `keep` messages as they are."""
        self._keep = min(self._keep, keep)

    def on_erase(self) -> None:
        """The transaction erases messages: nothing of the file may be left."""
        self._keep, self._will_erase = 0, True

    def before_commit(self, db: sqlite3.Connection) -> None:
        """Set the mark if the transaction changes what the mirror must hold."""
        self._is_uncertain = True
        session = queries.find_session(db, self._session_id)
        is_written = self._identity is not None and not self._erases and not self._will_erase
        if session is None or (is_written and session.length == self._count <= self._keep):
            self._target = None
            return
        self._target = session
        mark = EDITED if self._keep < self._count else APPENDED
        if mark > self._mark or self.is_settled:
            _write_facts(db, {"mark": max(mark, self._mark)})

    def after_commit(self, db: sqlite3.Connection) -> None:
        """Write what the commit changed. A failure is logged: the mark stays, and the next change tries it again."""
        session, self._target, self._is_uncertain = self._target, None, False
        keep = min(self._keep, self._count)
        if session is None:
            return
        self._erases = self._erases or self._will_erase
        self._mark = max(self._mark, EDITED if keep < self._count else APPENDED)
        self.is_settled = False
        try:
            self._write(db, session, keep)
            self._count, self._erases = session.length, False
        except (OSError, sqlite3.Error, StoreError) as problem:
            self._identity = None
            log.warning("session %r: %s cannot be written (%s)", self._session_id, self.path, problem)

    def check_erased(self) -> None:
        """Raise `NotErased` if the file could not be written after messages were erased."""
        if self._erases:
            raise NotErased(
                f"session {self._session_id!r}: the messages were replaced, but {self.path} cannot be written, and may "
                "hold the former ones; it is tried again at the next change or opening"
            )

    def _write(self, db: sqlite3.Connection, session: SessionRow, keep: int) -> None:
        if self._identity is None or self._erases:
            self._write_all(db, session)
            return
        lines = b"".join(lines_of(db, session, keep))
        offset = written_size(session) - len(lines)
        descriptor = open_file(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            found = os.fstat(descriptor)
            if _identity(found).inode != self._identity.inode or not 0 <= offset <= found.st_size:
                raise OSError(f"{self.path} was replaced meanwhile")
            if offset < self._identity.size:
                os.ftruncate(descriptor, offset)
            write_all(descriptor, lines)
            written = _identity(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        # If another program wrote meanwhile, the size is another one, and the next change finds that out.
        self._identity = written._replace(size=offset + len(lines))

    def _write_all(self, db: sqlite3.Connection, session: SessionRow) -> None:
        """Write a new file, which takes the place of the former one."""
        new = f"{self.path}.new"
        descriptor = open_file(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            with suppress(FileNotFoundError):
                os.fchmod(descriptor, stat.S_IMODE(os.stat(self.path).st_mode) & ~0o022 | 0o600)
            for lines in lines_of(db, session, 0):
                write_all(descriptor, lines)
            if self._is_synced or self._erases:
                sync(descriptor)
            os.replace(new, self.path)
            self._identity = _identity(os.fstat(descriptor))  # a rename changes the time
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise
        finally:
            os.close(descriptor)
        if self._is_synced or self._erases:
            sync_folder(Path(self.path).parent)

    # -- the record in the database ------------------------------------------------------------------------------------

    def settle(self, db: sqlite3.Connection) -> None:
        """Sync the file and record its identity, outside any transaction."""
        session = queries.find_session(db, self._session_id)
        if self.is_settled or self._is_uncertain or session is None:
            return
        if self._identity is None:
            self._write_all(db, session)
            self._count, self._erases = session.length, False
        identity = _identity_of(self.path)
        if self._identity != identity and identity is not None:
            kind = compare(db, self._session_id, self.path).kind
            if kind == "behind":
                return
            if kind == "same":  # else: another program's, next time
                self._identity = identity
        if self._is_synced and identity is not None:
            descriptor = open_file(self.path, os.O_RDONLY)
            try:
                sync(descriptor)
            finally:
                os.close(descriptor)
        db.execute("BEGIN IMMEDIATE")
        try:
            self._save(db, SETTLED)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._mark, self.is_settled = SETTLED, True

    def record_outdated(self, db: sqlite3.Connection) -> None:
        """Record that the file is one from before an edit."""
        self._identity = None
        self._save(db, EDITED)

    def _load(self, db: sqlite3.Connection) -> None:
        rows = db.execute("SELECT name, value FROM facts WHERE name LIKE 'mirror %'")
        facts = {bytes(name).decode().removeprefix("mirror "): number_in(value) for name, value in rows}
        mark, *identity = (facts.get(name, 0) for name in _FACTS)
        self._mark = mark if "mark" in facts else APPENDED
        self._identity, self.is_settled = Identity(*identity), self._mark == SETTLED
        session = queries.find_session(db, self._session_id)
        self._count, self._is_uncertain = session.length if session else 0, False

    def _save(self, db: sqlite3.Connection, mark: int) -> None:
        self._mark = mark
        _write_facts(db, dict(zip(_FACTS, (mark, *(self._identity or Identity())), strict=True)))


def _write_facts(db: sqlite3.Connection, facts: dict[str, int]) -> None:
    db.executemany(
        "INSERT INTO facts VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value",
        [(f"mirror {name}", value) for name, value in facts.items()],
    )


def _identity_of(path: str) -> Identity | None:
    """Return the identity of a file; None if it does not exist.

    Raises:
        StoreError: It is no ordinary file.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path}: is no ordinary file, so it is not read; move it away")
    return _identity(status)


def _identity(status: os.stat_result) -> Identity:
    return Identity(status.st_ino & _ALL - 1, status.st_size, status.st_ctime_ns)
