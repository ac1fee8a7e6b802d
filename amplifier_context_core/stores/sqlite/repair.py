"""Copy what is readable of a damaged database into a new file: offline, and never in place.

The checksum of a row covers its key, so it says whether a row is what was written there. Rows are read by ranges of
keys, and a range that cannot be read is halved. A scan of the table from either end then finds the rows of pages that
no search by key reaches. The new file takes the place of the damaged one, which is kept beside it. While a process that
does this was interrupted, every call refuses the database (`check_not_replaced`) until the command is run again.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from ...errors import ConfigError, StoreError
from ..files import sync_folder
from ..protocol import Repair
from ..validation import check_session_id, recovered_id
from .carry_over import carry_over
from .driver import Connection, connect, required_row
from .errors import code_of, is_unwritable
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
    number_in,
    text_in,
)
from .schema import (
    FORMER_VERSION,
    MAX_SLOTS,
    SIDECARS,
    SLOT_BITS,
    check_schema,
    open_database,
    replacement,
    sidecar,
)

_FAILURES = 20_000  # ranges of one search that may fail: a second or two
_MAX_SEQ_JUMP = 1_000_000  # a seq in a damaged row is ignored if it exceeds those of the entries by this much


def repair_database(path: Path, mirror: Path | None = None) -> list[Repair]:
    """Write what is readable of a database into a new file, which takes its place. If nothing is, and there is a mirror
    of its one session, the new one is empty: the next opening takes the messages from the mirror.

    Return for each session that lost something, what; then the sum, with an empty session id. An error changes nothing:
    `StoreError` if others use the database or it is none of ours, `sqlite3.Error` or `OSError` from either file.
    """
    if replacement(path).exists():  # a former repair was interrupted
        _replace(path)
        return [Repair("", "completed a repair that was interrupted")]
    new_path = sidecar(path, ".repairing")
    _remove(new_path)
    with closing(connect(path, 1.0, "mode=rw")) as old:
        problem = _check(old, path)
        if problem is not None and not (mirror and mirror.exists()):
            raise problem
        try:
            if problem is None:
                repairs = _copy_into(new_path, old)
            else:
                _copy_into(new_path, None)
                text = f"nothing of {path.name} can be read; the messages are those of {mirror and mirror.name}"
                repairs = [Repair("", text)]
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


def _copy_into(new_path: Path, old: Connection | None) -> list[Repair]:
    """Copy into a new file, synced; without an old database, make one of a session that is empty."""
    fill = _fill_nothing if old is None or old.holds_one else None
    # Without a log: what closing moves from a log into the file may fail, and no call says so.
    with closing(open_database(new_path, "none", 1.0, carry_over, fill, "TRUNCATE")) as new:
        new.execute("BEGIN")
        repairs = _Copy(old, new).run() if old is not None else []
        new.execute("COMMIT")
    with new_path.open("r+b") as file:
        os.fsync(file.fileno())
    return repairs


def _fill_nothing(_: sqlite3.Connection) -> None:
    """The rows come from the damaged database."""


def _check(old: Connection, path: Path) -> StoreError | None:
    """Lock out all other connections, until this one is closed; raise `StoreError` if there are any. Return why a
    database cannot be copied: it is none of ours, or has a former format.
    """
    version, name = 0, None
    try:
        old.execute("PRAGMA writable_schema = ON")  # a definition that cannot be read hides no other table
        old.execute("PRAGMA locking_mode = EXCLUSIVE")
        old.execute("BEGIN EXCLUSIVE")
        old.execute("ROLLBACK")
        version = check_schema(old, path)
        name = old.execute("SELECT name FROM sqlite_master WHERE name = 'entries'").fetchone()
    except sqlite3.DatabaseError as problem:
        if code_of(problem) == sqlite3.SQLITE_BUSY:
            raise StoreError(
                f"the database {path} is in use, and cannot be repaired meanwhile; end the programs that use it"
            ) from None
        if is_unwritable(problem):
            raise
    except StoreError as problem:
        return problem
    if version == FORMER_VERSION:
        return StoreError(
            f"{path} has format {version}, which is repaired by the version that wrote it: open it with commit 37ba2a6 "
            "of amplifier-context-core, then with this one; or restore a backup"
        )
    if name is None:
        return StoreError(f"the first page of {path} is damaged, or not ours, so it was not changed; restore a backup")
    return None


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
            if self._new.execute(known, (key,)).fetchone() or decode_entry_row(tuple(columns), "", covered) is None:
                continue
            seq, turn, tokens, origin, *rest = columns
            self._new.execute(insert, (key, number, seq, turn, tokens, origin and origin.decode(), *rest))
            self._sessions.setdefault(number, (SessionRow(number, ""), False))

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _finish(self, number: int, taken: set[str]) -> Repair | None:
        """Write the row of a session and its checkpoint. Return what the session lost."""
        row, is_sound = self._sessions[number]
        slots, last_seq, size = self._renumber(number)
        (archived, last) = required_row(
            self._new.execute("SELECT count(*), max(seq) FROM archive WHERE session = ?", (number,))
        )
        last_seq = max(last_seq, last or 0)
        if is_sound or row.last_seq < last_seq + _MAX_SEQ_JUMP:
            last_seq = max(last_seq, row.last_seq)
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
    """Return the session of a row, and whether it is intact. Of a damaged one: an id and a seq that may be right."""
    with suppress(sqlite3.Error):
        return decode_session_row(row), True
    session = SessionRow(row[0], "", length=MAX_SLOTS)
    with suppress(sqlite3.Error):
        session.session_id = text_in(row[1])
    with suppress(sqlite3.Error):
        session.last_seq = number_in(row[3])
    return session, False


def _free_id(name: str, number: int, taken: set[str]) -> str:
    """Return an id for a session whose row is lost or damaged: its probable one, if no other session has it."""
    with suppress(ConfigError):
        if check_session_id(name) not in taken:
            return name
    return recovered_id(number, taken)
