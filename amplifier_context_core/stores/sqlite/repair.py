"""Copy what is readable of a damaged database into a new file: offline, and never in place.

The checksum of a row covers its key, so it says whether a row is what was written there. Rows are read by ranges of
keys, and a range that cannot be read is halved. A scan of the table from either end then finds the rows of pages that
no search by key reaches. The new file takes the place of the damaged one, which is kept beside it. While a process that
does this was interrupted, every call refuses the database (`check_not_replaced`) until the command is run again.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ...errors import ConfigError, StoreError
from ..protocol import Repair
from ..validation import check_session_id, recovered_id
from .carry_over import carry_over
from .driver import connect, is_open_here, opening, required_row
from .errors import is_unwritable
from .queries import is_intact
from .rows import (
    ENTRY_COLUMNS,
    ENTRY_VALUES,
    MAX_SESSION_NUMBER,
    SESSION_COLUMNS,
    RawRow,
    SessionRow,
    decode_entry_row,
    decode_session_row,
    first_key,
    text_in,
)
from .schema import (
    APPLICATION_ID,
    FORMER_VERSION,
    MAX_SLOTS,
    ONE_SESSION_ID,
    SIDECARS,
    SLOT_BITS,
    VERSION,
    Fill,
    open_database,
    replacement,
    sidecar,
    sync_folder,
)

_FAILURES = 20_000  # ranges of one search that may fail: a second or two
_LOCK_OFFSET, _LOCK_LENGTH = 0x40000000, 512  # SQLite's locks in a file


def repair_session(path: Path, mirror: Path) -> list[Repair]:
    """Write what is readable of a session's database into a new file. If nothing is, keep the damaged one beside it:
    the next opening takes the messages from the mirror. See `repair_database` for errors.
    """
    try:
        return repair_database(path)
    except _InUse:
        raise
    except StoreError:
        if not mirror.exists():
            raise
    kept = sidecar(path, f".damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}")
    with _exclusive(path):
        os.replace(path, kept)
        _remove(path)
    sync_folder(path.parent)
    return [Repair("", f"nothing of {path.name} can be read; the messages are those of {mirror.name}", 0, str(kept))]


def repair_database(path: Path) -> list[Repair]:
    """Write what is readable of a database into a new file, which takes its place.

    Return for each session that lost something, what; then the sum, with an empty session id. An error changes nothing:
    `StoreError` if others use the database or it is none of ours, `sqlite3.Error` or `OSError` from either file.
    """
    repairs: list[Repair] = []
    new_path = sidecar(path, ".repairing")
    with _exclusive(path):
        before = _state(path)
    try:
        if not replacement(path).exists():
            _remove(new_path)
            repairs = _copy_into(new_path, path)
        with _exclusive(path):
            if new_path.exists():
                if _state(path) != before:  # another program has used it while it was copied
                    raise _InUse(path)
                os.replace(new_path, replacement(path))  # from now on, `check_not_replaced` refuses the damaged one
                sync_folder(path.parent)
            kept = str(_replace(path))
    finally:
        _remove(new_path)
    return [Repair(one.session_id, one.description, one.lost, kept) for one in repairs]


def _replace(path: Path) -> Path:
    """Move the damaged files away and the new one into place. Each step can be made again after a crash."""
    new_path = replacement(path)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(new_path.stat().st_mtime))
    kept = sidecar(path, f".damaged-{stamp}")
    for ending in ("", "-wal", "-journal"):
        former = sidecar(path, ending)
        if not sidecar(kept, ending).exists() and former.exists() and former.stat().st_size:
            os.replace(former, sidecar(kept, ending))
    _remove(path)
    sync_folder(path.parent)
    os.replace(new_path, path)
    sync_folder(path.parent)
    return kept


def _remove(path: Path) -> None:
    for ending in ("", *SIDECARS):
        sidecar(path, ending).unlink(missing_ok=True)


class _InUse(StoreError):
    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the database {path} is in use, and cannot be repaired meanwhile; end the programs that use it"
        )


@contextmanager
def _exclusive(path: Path) -> Generator[None]:
    """Keep other programs from reading and writing a database; raise `_InUse` if one has it open."""
    with opening, ExitStack() as files:
        if is_open_here(path):
            raise _InUse(path)
        if path.exists():
            file = files.enter_context(path.open("r+b"))
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_LENGTH, _LOCK_OFFSET)
            except OSError:
                raise _InUse(path) from None
        yield


def _state(path: Path) -> list[tuple[int, int]]:
    """Return what a commit changes: sizes and times of a database, its log and its journal."""
    files = [sidecar(path, ending) for ending in ("", "-wal", "-journal")]
    found = [one.stat() for one in files if one.exists()]
    return [(one.st_size, one.st_mtime_ns) for one in found if one.st_size]


def _copy_into(new_path: Path, path: Path) -> list[Repair]:
    old = connect(path, 1.0, "mode=ro")
    try:
        is_one = _application_of(old, path) == ONE_SESSION_ID
        # Without a log: what closing moves from a log into the file may fail, and no call says so.
        fill: Fill | None = (lambda _: None) if is_one else None  # the rows come from the damaged one
        new = open_database(new_path, "none", 1.0, carry_over, fill, "TRUNCATE")
        try:
            new.execute("BEGIN")
            repairs = _Copy(old, new).run()
            new.execute("COMMIT")
        finally:
            new.close()
    finally:
        old.close()
    with new_path.open("r+b") as file:
        os.fsync(file.fileno())
    return repairs


def _application_of(old: sqlite3.Connection, path: Path) -> int:
    """Return the application id of a database of ours. Raise `StoreError` if it is none, or has a former format."""
    found: tuple[int, int, bytes] | None = None
    try:
        old.execute("PRAGMA writable_schema = ON")  # a definition that cannot be read hides no other table
        query = (
            "SELECT application_id, user_version, name FROM pragma_application_id, pragma_user_version, sqlite_master"
        )
        found = old.execute(f"{query} WHERE name = 'entries'").fetchone()
    except sqlite3.DatabaseError as problem:
        if is_unwritable(problem):
            raise
    application, version, name = found or (0, 0, b"")
    if application == APPLICATION_ID and version == FORMER_VERSION:
        raise StoreError(
            f"{path} has format {version}, which is repaired by the version that wrote it: open it with commit 37ba2a6 "
            "of amplifier-context-core, then with this one; or restore a backup"
        )
    if application not in (APPLICATION_ID, ONE_SESSION_ID) or version != VERSION or name != b"entries":
        raise StoreError(f"the first page of {path} is damaged, or not ours, so it was not changed; restore a backup")
    return application


class _Copy:
    def __init__(self, old: sqlite3.Connection, new: sqlite3.Connection) -> None:
        self._old, self._new = old, new
        self._sessions: dict[int, tuple[SessionRow, bool]] = {}  # by number; see `_decode`

    def run(self) -> list[Repair]:
        select = f"SELECT {SESSION_COLUMNS} FROM sessions NOT INDEXED WHERE number"  # noqa: S608 - constants
        for row in (*self._by_ranges(select, 1, MAX_SESSION_NUMBER), *self._by_scan(select)):
            if row[0] not in self._sessions and 1 <= row[0] <= MAX_SESSION_NUMBER:
                self._sessions[row[0]] = _decode(row)
        select = f"SELECT id, session, {ENTRY_COLUMNS} FROM entries NOT INDEXED WHERE id"  # noqa: S608 - constants
        for number, (session, _) in [*self._sessions.items()]:
            start = first_key(number)
            self._copy("entries", self._by_ranges(select, start, start + session.length - 1))
        self._copy("entries", self._by_scan(select))
        self._copy_mark()
        select = select.replace("entries", "archive")
        self._copy("archive", self._by_ranges(select, 1, MAX_SLOTS))
        self._copy("archive", self._by_scan(select))
        taken = {session.session_id for session, is_sound in self._sessions.values() if is_sound}
        lost = [loss for number in sorted(self._sessions) if (loss := self._finish(number, taken))]
        (count,) = required_row(self._new.execute("SELECT total(length + archived) FROM sessions"))
        what = f"copied {len(self._sessions):,} sessions, {int(count):,} messages with archives, into a new file"
        return [*lost, Repair("", what, sum(repair.lost for repair in lost))]

    # -- messages ------------------------------------------------------------------------------------------------------

    def _by_ranges(self, select: str, first: int, last: int) -> Iterator[RawRow]:
        """Yield the rows of a range of keys. One that cannot be read is halved, so rows may come twice."""
        ranges, failures = [(first, last)], 0
        while ranges and failures < _FAILURES:
            low, high = ranges.pop()
            try:
                yield from self._old.execute(f"{select} BETWEEN ? AND ?", (low, high))
            except sqlite3.Error:
                failures += 1
                if low < high:
                    middle = (low + high) // 2
                    ranges += [(middle + 1, high), (low, middle)]

    def _by_scan(self, select: str) -> Iterator[RawRow]:
        """Yield the rows that a scan of the table meets, from either end up to what cannot be read."""
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error):
                yield from self._old.execute(f"{select} > 0 ORDER BY {select.rpartition(' ')[2]} {order}")

    def _copy_mark(self) -> None:
        """Copy the mark of a mirror, and not its identity: it is compared with what could be read."""
        with suppress(sqlite3.Error):
            for row in self._old.execute("SELECT name, value FROM facts WHERE name = 'mirror mark'"):
                self._new.execute("INSERT INTO facts VALUES (CAST(? AS TEXT), max(1, ?))", row)

    def _copy(self, table: str, rows: Iterator[RawRow]) -> None:
        """Write the rows whose checksum is right, if they are not written yet."""
        known = f"SELECT 1 FROM {table} WHERE id = ?"  # noqa: S608 - a constant
        insert = f"INSERT INTO {table}(id, session, {ENTRY_COLUMNS}) VALUES (?, ?, {ENTRY_VALUES})"  # noqa: S608
        for key, session, *columns in rows:
            number = key >> SLOT_BITS if table == "entries" else session
            if not isinstance(number, int) or not 1 <= number <= MAX_SESSION_NUMBER:
                continue
            covered = key if table == "entries" else first_key(number)
            if self._new.execute(known, (key,)).fetchone() or decode_entry_row((key, *columns), "", covered) is None:
                continue
            self._new.execute(insert, (key, number, *columns))
            self._sessions.setdefault(number, (SessionRow(number, ""), False))

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _finish(self, number: int, taken: set[str]) -> Repair | None:
        """Write the row of a session and its checkpoint. Return what the session lost."""
        row, is_sound = self._sessions[number]
        slots, last_seq, size = self._renumber(number)
        (archived, last) = required_row(
            self._new.execute("SELECT count(*), max(seq) FROM archive WHERE session = ?", (number,))
        )
        last_seq = max(last_seq, last or 0, row.last_seq)
        name = row.session_id if is_sound else _free_id(row.session_id, number, taken)
        taken.add(name)
        lost = max(0, row.length - len(slots)) + max(0, row.archived - archived) if is_sound else 0
        SessionRow(
            number,
            name,
            length=len(slots),
            last_seq=last_seq,
            size=size,
            updated=row.updated,
            archived=archived,
        ).insert(self._new)
        gone = not self._copy_checkpoint(number, slots)
        if not lost and not gone and is_sound:
            return None
        what = f"session {name!r}: {len(slots) + archived:,} messages copied, archive included"
        what += "" if is_sound else "; its id and length could not be read"
        what += "; its checkpoint is gone" if gone else ""
        return Repair(name, what, lost)

    def _renumber(self, number: int) -> tuple[list[int], int, int]:
        """Close the gaps of a history. Return the former slots of its entries, their highest seq, and their size."""
        start = first_key(number)
        select = "SELECT id, seq, length(CAST(message AS BLOB)) FROM entries WHERE id >= ? AND id < ? ORDER BY id"
        slots: dict[int, int] = {}  # by seq
        total = 0
        for key, seq, size in self._new.execute(select, (start, first_key(number + 1))).fetchall():
            if seq in slots:  # of a page in a former state
                self._new.execute("DELETE FROM entries WHERE id = ?", (key,))
                continue
            to = start + len(slots)
            if to != key:
                self._new.execute("UPDATE entries SET id = ?, crc = crc + ? WHERE id = ?", (to, to - key, key))
            slots[seq] = key - start
            total += size
        return [*slots.values()], max(slots, default=0), total

    def _copy_checkpoint(self, number: int, slots: list[int]) -> bool:
        """Copy a checkpoint if all messages are there that it covers. False if there was another one."""
        select = "SELECT session, covered, crc, data FROM checkpoints WHERE session = ?"
        try:
            row = self._old.execute(select, (number,)).fetchone()
        except sqlite3.Error:
            return False
        if row is None:
            return True
        _, covered, crc, data = row
        if not is_intact(data, crc) or not isinstance(covered, int):
            return False
        if slots[:covered] != [*range(covered)]:
            return False
        self._new.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?)", row)
        return True


def _decode(row: RawRow) -> tuple[SessionRow, bool]:
    """Return the session of a row, and whether it is intact. Of a damaged one: an id that may be right."""
    with suppress(sqlite3.Error):
        return decode_session_row(row), True
    session = SessionRow(row[0], "", length=MAX_SLOTS)
    with suppress(sqlite3.Error):
        session.session_id = text_in(row[1])
    return session, False


def _free_id(name: str, number: int, taken: set[str]) -> str:
    """Return an id for a session whose row is lost or damaged: its probable one, if no other session has it."""
    with suppress(ConfigError):
        if check_session_id(name) not in taken:
            return name
    return recovered_id(number, taken)
