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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...errors import StoreError
from ...transcript.entry import Entry
from ..protocol import Repair
from ..sqlite import changes, queries
from ..sqlite.rows import SessionRow, number_in
from ..sqlite.schema import sync_folder
from .comparison import Theirs, adopted, compare, lines_of
from .files import add_lines, open_file, opened, write_all
from .paths import SessionFiles

log = logging.getLogger(__name__)

SETTLED, APPENDED, EDITED = range(3)  # the mark: written and synced; messages were appended; others were changed
NEW_FILE = -1  # messages that stay if nothing of the file may: it is written without joining all lines in memory
_ALL = 1 << 62
_FACTS = (b"mirror mark", b"mirror inode", b"mirror size", b"mirror ctime")
_SELECT = "SELECT name, value FROM facts WHERE name LIKE 'mirror %'"
_SAVE = """INSERT INTO facts VALUES ('mirror mark', ?), ('mirror inode', ?), ('mirror size', ?), ('mirror ctime', ?)
ON CONFLICT(name) DO UPDATE SET value = excluded.value"""


class Identity(NamedTuple):
    """What tells that a file is still the one that was written."""

    inode: int = 0
    size: int = 0
    ctime: int = 0  # ns; no program can set it, unlike the time of modification


_OTHER = Identity()  # that of no file


class Mirror:
    """The mirror of one session. All methods are called in the thread of its database, while the session is locked."""

    def __init__(self, files: SessionFiles, *, archive: bool, report: Callable[[Repair], None]) -> None:
        self._files, self._path, self._session_id, self._archive = files, files.main, files.session_id, archive
        self._report = report  # receives what is taken over of another program
        self._identity: Identity | None = None  # of the file as it should be; None: it must be written
        self._count = 0  # messages in the file
        self._mark = SETTLED  # as in the database
        self._keep = _ALL  # messages that the transaction leaves as they are
        self._added: list[bytes] = []  # messages after those; of a file that has fewer messages, after its last
        self._target: SessionRow | None = None  # what is written after the commit, which may have failed
        self._descriptor: int | None = None  # of the file, to append to it; opening takes longer than writing

    @property
    def is_settled(self) -> bool:
        """True if the file is synced, and the database knows that and its identity."""
        return self._mark == SETTLED

    # -- what another program wrote ------------------------------------------------------------------------------------

    def adopt(self, db: sqlite3.Connection) -> None:
        """Compare the file with the database, in a transaction. Take over what another program wrote."""
        self._load(db)
        mark = self._mark
        found = self._examine(db, is_complete=mark == SETTLED)
        if found is not None and mark != EDITED:
            self._take_over(db, found)

    def check_unchanged(self, db: sqlite3.Connection) -> None:
        may_be_former = False
        if self._target is not None:  # the database says whether the commit was made
            self._load(db)
            may_be_former = self._mark == EDITED
        expected = self._identity
        if self._examine(db, is_complete=True) is not None and not may_be_former:
            self._identity = expected
            raise self.changed_by_another()

    def _examine(self, db: sqlite3.Connection, *, is_complete: bool) -> Theirs | None:
        """Compare another file than the expected one. Go on with one that is the same; any other is written again."""
        identity = _identity_of(self._path)
        if self._identity is None or identity == self._identity:
            return None
        self.close()
        found = compare(db, self._session_id, self._path, is_complete=is_complete) if identity is not None else "behind"
        self._identity = identity if found == "same" else None
        if self.is_settled:
            save_mark(db, APPENDED)
            self._mark = APPENDED
        return found if isinstance(found, Theirs) else None

    def changed_by_another(self) -> StoreError:
        return StoreError(
            f"session {self._session_id!r}: another program wrote to {self._path}; release the session and open it "
            "again to continue with what it wrote"
        )

    def _take_over(self, db: sqlite3.Connection, found: Theirs) -> None:
        session = queries.find_session(db, self._session_id)
        new = adopted(self._session_id, found.order, session.last_seq if session else 0)
        pairs = enumerate(zip(found.entries, new, strict=False))
        keep = next((index for index, (old, one) in pairs if one is not old), min(len(found.entries), len(new)))
        changes.replace(db, self._session_id, keep, new[keep:], archive=self._archive)
        added = sum(not isinstance(one, Entry) for one in found.order)
        removed = len(found.entries) + added - len(new)
        name = os.path.basename(self._path)
        what = f"took over what another program wrote to {name}: {added:,} messages added, {removed:,} removed"
        kept = add_lines(self._files.path("damaged"), found.unreadable)
        self._report(Repair(self._session_id, what, len(found.unreadable), kept))

    # -- following the database ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A transaction begins; the one before may have been rolled back."""
        self._keep, self._added = _ALL, []

    def on_change(self, keep: int | None, added: Sequence[bytes]) -> None:
        """See `Companion`; `keep` may be `NEW_FILE`."""
        if keep is not None:
            del self._added[max(0, keep - min(self._keep, self._count)) :]
            self._keep = min(self._keep, keep)
        self._added += added

    def before_commit(self, db: sqlite3.Connection) -> None:
        """Set the mark if the transaction changes what the mirror must hold."""
        session = queries.find_session(db, self._session_id)
        if session is None or (self._identity is not None and session.length == self._count <= self._keep):
            return
        self._target = session
        mark = EDITED if self._keep < self._count else APPENDED
        if mark > self._mark:
            save_mark(db, mark)

    def after_commit(self, db: sqlite3.Connection) -> None:
        """Write what the commit changed. A failure is logged: the mark stays, and the next change tries it again."""
        session, self._target = self._target, None
        added, self._added = self._added, []
        if session is None:
            return
        self._mark = max(self._mark, EDITED if self._keep < self._count else APPENDED)
        try:
            if self._identity is None or self._keep == NEW_FILE:
                self._write_all(db, session)
            else:
                self._write(session, added, self._identity)
        except (OSError, sqlite3.Error, StoreError) as problem:
            self._identity = None
            self.close()
            log.warning("session %r: %s cannot be written (%s)", self._session_id, self._path, problem)

    def _write(self, session: SessionRow, added: Sequence[bytes], expected: Identity) -> None:
        lines = b"".join([message + b"\n" for message in added])
        size = session.size + session.length  # each line has an end
        offset = size - len(lines)
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._descriptor = open_file(self._path, os.O_WRONLY | os.O_APPEND)
        found = os.fstat(descriptor)
        if _identity(found).inode != expected.inode or not 0 <= offset <= found.st_size:
            raise OSError(f"{self._path} was replaced meanwhile")
        if offset < expected.size:
            os.ftruncate(descriptor, offset)
        write_all(descriptor, lines)
        # If another program wrote meanwhile, the size is another one, and the next change finds that out.
        self._identity = _identity(os.fstat(descriptor))._replace(size=size)
        self._count = session.length

    def _write_all(self, db: sqlite3.Connection, session: SessionRow) -> Identity:
        """Write a new file, synced, which takes the place of the former one, and return its identity."""
        self.close()
        new = f"{self._path}.new"
        try:
            with opened(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
                with suppress(FileNotFoundError):
                    os.fchmod(descriptor, stat.S_IMODE(os.stat(self._path).st_mode) & ~0o022 | 0o600)
                for lines in lines_of(db, session):
                    write_all(descriptor, lines)
                os.fsync(descriptor)
                os.replace(new, self._path)
                written = _identity(os.fstat(descriptor))  # a rename changes the time
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise
        sync_folder(Path(self._path).parent)
        self._identity, self._count = written, session.length
        return written

    def close(self) -> None:
        """Close the file until the next change. A write that this reports as failed was never synced: the next opening
        compares the file.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    # -- the record in the database ------------------------------------------------------------------------------------

    def settle(self, db: sqlite3.Connection) -> None:
        """Sync the file and record its identity, outside any transaction."""
        session = queries.find_session(db, self._session_id)
        if self.is_settled or self._target is not None or session is None:
            return
        identity = self._identity or self._write_all(db, session)
        if identity != _identity_of(self._path):
            return  # the next change or opening compares it
        with opened(self._path, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)
        save_mark(db, SETTLED, identity)
        self._mark = SETTLED

    def _load(self, db: sqlite3.Connection) -> None:
        facts = {_FACTS[0]: APPENDED} | dict(db.execute(_SELECT))
        self._mark, *identity = (number_in(facts.get(name, 0)) for name in _FACTS)
        self._identity = Identity(*identity) if self.is_settled else _OTHER
        session = queries.find_session(db, self._session_id)
        self._count, self._target = session.length if session else 0, None


def save_mark(db: sqlite3.Connection, mark: int, identity: Identity = _OTHER) -> None:
    """Record a mark, and the identity of a file that is written and synced."""
    db.execute(_SAVE, (mark, *identity))


def _identity_of(path: str) -> Identity | None:
    """Return the identity of a file; None if it does not exist. Raise `StoreError` if it is no ordinary file."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path}: is no ordinary file, so it is not read; move it away")
    return _identity(status)


def _identity(status: os.stat_result) -> Identity:
    return Identity(status.st_ino & _ALL - 1, status.st_size, status.st_ctime_ns)
