"""Copy from a damaged database into a new one what is readable, row by row.

An unreadable page costs only its own rows: keys are integers, so a range that fails is read in halves, down to single
rows. The checksum of a row also binds it to its session and slot. An index is a hint where else to look and is never
trusted.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import ConfigError
from ..validation import check_session_id, recovered_id
from .columns import number_in, slots_in, text_in
from .first_page import FirstPage
from .rows import (
    ENTRY_COLUMNS,
    ENTRY_VALUES,
    MAX_SESSION_NUMBER,
    RawRow,
    SessionRow,
    decode_entry_row,
    decode_session_row,
    decode_unchecked,
    first_key,
)
from .schema import APPLICATION_ID, MAX_SLOTS, SLOT_BITS, connect, disconnect
from .table_rows import ROW_READERS, RowReader, decode_checkpoint_row

_RANGE_KEYS = 1_000  # keys read at once
_MAX_EMPTY_RANGES = 20  # ranges without a row before giving up; a lost inner page costs fewer
_PROBES = 8  # keys of a range that are tried before its halves are
_MAX_SEQ_JUMP = 1_000_000  # a seq in a damaged row is ignored if it exceeds those of the entries by this much
REWRITTEN = "the database was damaged and has been rewritten"
WHOLE_DATABASE = ""  # no session id; reports of the whole database use it

# Constants only: names of tables and columns.
_SESSIONS = "SELECT * FROM sessions NOT INDEXED WHERE number >= ? AND number <= ?"
_INDEXED = "SELECT id, number FROM sessions INDEXED BY sqlite_autoindex_sessions_1 WHERE id > ''"
_ENTRIES = f"SELECT id, {ENTRY_COLUMNS} FROM entries WHERE id >= ? AND id <= ?"  # noqa: S608
_ARCHIVE = "SELECT id, session FROM archive NOT INDEXED WHERE id >= ? AND id <= ?"
_ARCHIVED = f"SELECT {ENTRY_COLUMNS} FROM archive WHERE id = ?"  # noqa: S608
_INSERT_VALUES = f"(id, session, {ENTRY_COLUMNS}) VALUES (?, ?, {ENTRY_VALUES})"


@dataclass(slots=True)
class RecoveryCounts:
    """The result of one attempt.

    Attributes:
        entries: Number of intact entries, archives included.
        lost: Number of missing or damaged entries, as far as is known.
        whole: True if nothing is missing or damaged, as far as is known.
    """

    entries: int = 0
    lost: int = 0
    whole: bool = True


def recover_rows(
    new: sqlite3.Connection, copy: Path, first_page: FirstPage, quarantined_at: str, *, whole: bool = True
) -> RecoveryCounts | None:
    """Write into a new database what is readable in a copy of the damaged one.

    Args:
        new: An empty database.
        copy: The file to read; its first page is replaced.
        first_page: The first page to read it with.
        quarantined_at: Where the damaged database will be.
        whole: Leave the new database empty if anything is missing.

    Returns:
        The counts; None if nothing is known to be ours under this page.

    Raises:
        sqlite3.Error, OSError: The new database cannot be written.
    """
    with copy.open("r+b") as file:
        file.write(first_page.content)
    old = connect(copy, 1.0)
    recovery = RowRecovery(old, new, quarantined_at)
    new.execute("BEGIN")
    try:
        sessions = recovery.sessions()
        if not recovery.is_ours(sessions, marked=first_page.is_own):
            return None
        recovery.run(sessions)
        if recovery.counts.whole or not whole:
            new.execute("COMMIT")
        return recovery.counts
    finally:
        if new.in_transaction:
            new.execute("ROLLBACK")
        disconnect(old, copy)


@dataclass(slots=True)
class _FoundSession:
    """What is known of a session.

    Attributes:
        number: Its number in the database.
        name: Its id; empty if unknown.
        row: Its row, if intact.
        archived_count: Entries in the archive; None if unknown.
        last_seq: Highest seq ever assigned, from a damaged row.
        updated: Microseconds since 1970 of the last change, from a damaged row.
        gaps: Slots without an entry, from a row.
    """

    number: int
    name: str = ""
    row: SessionRow | None = None
    archived_count: int | None = None
    last_seq: int = 0
    updated: int = 0
    gaps: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class RowRecovery:
    """Copies rows from one database to another."""

    old: sqlite3.Connection
    new: sqlite3.Connection
    quarantined_at: str
    counts: RecoveryCounts = field(default_factory=RecoveryCounts)

    def is_ours(self, sessions: list[_FoundSession], *, marked: bool) -> bool:
        """True if something in the file is known to be ours: a row with a valid checksum, or the application id.

        Args:
            sessions: The sessions that were found.
            marked: The application id counts, because the first page is the file's own.
        """
        try:
            (application,) = self.old.execute("PRAGMA application_id").fetchone()
        except sqlite3.Error:
            return False
        marked = marked and application == APPLICATION_ID
        return any(marked or session.row or self._has_entry(session) for session in sessions)

    def _has_entry(self, session: _FoundSession) -> bool:
        start = first_key(session.number)
        return any(
            _decode_intact(row[1:], "", row[0], start) for row in self._read_by_halves(_ENTRIES, start, start + _PROBES)
        )

    def run(self, sessions: list[_FoundSession]) -> None:
        """Copy everything readable."""
        for table in ("leases", "facts", "repairs", "damaged"):
            self._recover_table(table, ROW_READERS[table])
        archives = self._archive_keys()
        for session in sessions:
            self._recover_session(session, archives.pop(session.number, []))
        missing = self._report_elsewhere(sessions)
        what = f"{REWRITTEN}; recovered: {len(sessions):,} sessions, {self.counts.entries:,} messages with archives"
        what += f"; ids that had a writer and have no session now: {', '.join(missing)}" if missing else ""
        self._report(WHOLE_DATABASE, what, self.counts.lost)
        # Fences ascend, even if the last one was unreadable.
        self.new.execute("INSERT OR IGNORE INTO facts VALUES ('fence', ?)", (int(time.time()),))

    def _recover_table(self, table: str, read: RowReader) -> None:
        """Copy the readable rows of a table that holds no messages."""
        with suppress(sqlite3.Error):
            for row in self.old.execute(f"SELECT * FROM {table}"):  # noqa: S608 - one of four names
                with suppress(sqlite3.Error):
                    values = read(row)
                    marks = ", ".join("?" * len(values))
                    self.new.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", values)  # noqa: S608

    # -- sessions ------------------------------------------------------------------------------------------------------

    def sessions(self) -> list[_FoundSession]:
        """Return all sessions. Those without a row are known by an index of ids, or by the keys of their entries."""
        names: dict[int, str] = {}
        with suppress(sqlite3.Error):
            for name, number in self.old.execute(_INDEXED):
                with suppress(sqlite3.Error):
                    names[number_in(number, 1, MAX_SESSION_NUMBER)] = text_in(name)
        known: dict[int, _FoundSession] = {}
        for row in self._iterate_rows(_SESSIONS, 1, MAX_SESSION_NUMBER, names):
            known[row[0]] = _decode_session(row, names.get(row[0], ""))
        number = 0
        with suppress(sqlite3.Error):
            while row := self.old.execute("SELECT id FROM entries WHERE id >= ?", (first_key(number + 1),)).fetchone():
                if row[0] >> SLOT_BITS <= number:
                    break  # a damaged tree may return any row
                number = row[0] >> SLOT_BITS
                names.setdefault(number, "")
        taken = {session.name for session in known.values() if session.row}
        found = [known.get(number) or _FoundSession(number, names[number]) for number in sorted({*names, *known})]
        for session in found:
            if session.row is None:
                session.name = _free_id(session, taken)
                taken.add(session.name)
        return found

    def _recover_session(self, session: _FoundSession, archive: list[int]) -> None:
        new_row = SessionRow(
            session.number, session.name, updated=session.row.updated if session.row else session.updated
        )
        new_row.last_seq = session.row.last_seq if session.row else 0
        slots = self._recover_entries(session, new_row)
        stop = slots[-1] + 1 if slots else 0
        length = session.row.length if session.row else stop - sum(gap < stop for gap in session.gaps)
        archived = len(archive) if session.archived_count is None else session.archived_count
        self._recover_archive(session, new_row, archive)
        if session.last_seq < new_row.last_seq + _MAX_SEQ_JUMP:
            new_row.last_seq = max(new_row.last_seq, session.last_seq)
        gone = self._recover_checkpoint(session, slots)
        marks = ", ".join("?" * len(new_row.values))
        self.new.execute(f"INSERT INTO sessions VALUES ({marks})", new_row.values)  # noqa: S608 - question marks
        self.counts.entries += new_row.stop_slot + new_row.archived_count
        lost = max(0, length - new_row.stop_slot) + max(0, archived - new_row.archived_count)
        self.counts.lost += lost
        if lost or gone or session.row is None:
            self.counts.whole = False
            self._report_session(session, lost, gone)

    def _recover_entries(self, session: _FoundSession, new_row: SessionRow) -> list[int]:
        """Copy the history. Return the slots that its entries had."""
        start = first_key(session.number)
        last = start + session.row.stop_slot - 1 if session.row else self._last(start)
        slots: list[int] = []
        seqs: set[int] = set()
        for row in self._iterate_rows(_ENTRIES, start, last, range(start, last + 1)):
            slot = row[0] - start
            columns = _decode_intact(row[1:], session.name, row[0], start)
            if columns is None or columns[0] in seqs:
                self._quarantine(session, row[1:], "entries", slot)
                continue
            self._insert("entries", start + len(slots), session, columns, start + len(slots))
            slots.append(slot)
            seqs.add(columns[0])
            new_row.size += len(columns[5])
            new_row.last_seq = max(new_row.last_seq, columns[0])
        new_row.stop_slot = len(slots)
        return slots

    def _last(self, start: int) -> int:
        """Return the last key of a session without a row; if unreadable, the last possible one."""
        last_possible = start + (1 << SLOT_BITS) - 1
        with suppress(sqlite3.Error):
            newest = self.old.execute("SELECT max(id) FROM entries WHERE id >= ? AND id <= ?", (start, last_possible))
            return newest.fetchone()[0] or start - 1
        return last_possible

    def _archive_keys(self) -> dict[int, list[int]]:
        """Return the keys of all archived rows, by session number."""
        indexed: dict[int, int] = {}
        with suppress(sqlite3.Error):
            indexed = dict(self.old.execute("SELECT id, session FROM archive INDEXED BY archive_by_session"))
        last = None
        with suppress(sqlite3.Error):
            (last,) = self.old.execute("SELECT max(id) FROM archive NOT INDEXED").fetchone()
        found: dict[int, list[int]] = {}
        for key, session in self._iterate_rows(_ARCHIVE, 1, last or max(indexed, default=0), indexed):
            found.setdefault(session, []).append(key)
        return found

    def _recover_archive(self, session: _FoundSession, new_row: SessionRow, archive: list[int]) -> None:
        """Copy the archive."""
        start = first_key(session.number)
        for key in archive:
            row: RawRow | None = None
            with suppress(sqlite3.Error):
                row = self.old.execute(_ARCHIVED, (key,)).fetchone()
            if row is None:
                continue
            columns = _decode_intact(row, session.name, start, start)
            if columns is None:
                self._quarantine(session, row, "archive", None)
                continue
            self._insert("archive", key, session, columns, start)
            new_row.archived_count += 1
            new_row.last_seq = max(new_row.last_seq, columns[0])

    # -- rows of a session ---------------------------------------------------------------------------------------------

    def _insert(self, table: str, key: int, session: _FoundSession, columns: RawRow, added: int) -> None:
        """Insert the columns of an intact row.

        Args:
            table: The table.
            key: Key of the row.
            session: The session.
            columns: The columns, with the checksum of the content alone.
            added: What to add to the checksum.
        """
        *others, crc = columns
        self.new.execute(f"INSERT OR REPLACE INTO {table}{_INSERT_VALUES}", (key, session.number, *others, crc + added))

    def _recover_checkpoint(self, session: _FoundSession, slots: list[int]) -> bool:
        """Copy the checkpoint. Return True if there was one that is not valid any more."""
        try:
            row = self.old.execute("SELECT * FROM checkpoints WHERE session = ?", (session.number,)).fetchone()
            if row is None:
                return False
            row = decode_checkpoint_row(row)
        except sqlite3.Error:
            return True
        covered = row[1]
        if slots[:covered] != list(range(covered)):
            return True
        self.new.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?)", row)
        return False

    def _quarantine(self, session: _FoundSession, row: RawRow, table: str, at: int | None) -> None:
        """Keep a damaged row unchanged."""
        marks = ", ".join("?" * 11)
        self.new.execute(
            f"INSERT INTO damaged(session, found, came, at, {ENTRY_COLUMNS}) VALUES ({marks})",  # noqa: S608 - constants
            (session.number, time.time(), table, at, *row),
        )

    def _report_session(self, session: _FoundSession, lost: int, checkpoint: bool) -> None:
        what = REWRITTEN
        what += "" if session.row else "; what was known of this session is taken from its messages"
        what += f"; {lost:,} messages of this session could not be read" if lost else ""
        what += "; its checkpoint is gone" if checkpoint else ""
        self._report(session.name, what, lost)

    def _report(self, name: str, what: str, lost: int) -> None:
        self.new.execute(
            "INSERT INTO repairs(session, what, lost, kept) VALUES (?, ?, ?, ?)",
            (name, what, lost, self.quarantined_at),
        )

    def _report_elsewhere(self, sessions: list[_FoundSession]) -> list[str]:
        """If ids are uncertain, report that to every id that had a lease and has no session now. Return those ids."""
        unsure = ", ".join(session.name for session in sessions if session.row is None)
        if not unsure:
            return []
        rows = self.new.execute("SELECT session FROM leases WHERE session NOT IN (SELECT id FROM sessions)")
        missing = [text_in(session) for (session,) in rows.fetchall()]
        for name in missing:
            self._report(name, f"{REWRITTEN}; messages of sessions whose ids could not be read are in: {unsure}", 0)
        return missing

    # -- reading -------------------------------------------------------------------------------------------------------

    def _iterate_rows(self, sql: str, first: int, last: int, hints: Container[int]) -> Iterator[RawRow]:
        """Yield the readable rows of a range of keys, in order.

        Args:
            sql: Selects the rows between two keys.
            first, last: The first and the last key.
            hints: Keys that have a row, as far as is known.
        """
        empty = 0
        while first <= last and empty < _MAX_EMPTY_RANGES:
            end = min(first + _RANGE_KEYS - 1, last)
            rows = (
                {row[0]: row for row in self._read_by_halves(sql, first, end)}
                if self._is_readable(sql, first, end)
                else {}
            )
            for key in range(first, end + 1):  # a damaged tree may hide a row from a range and return it by key
                if key not in rows and key in hints:
                    rows |= {row[0]: row for row in self._read_by_halves(sql, key, key)}
            yield from (rows[key] for key in sorted(rows))
            empty = 0 if rows else empty + 1
            first = end + 1
            if not rows:
                with suppress(sqlite3.Error):  # skip a gap of any width
                    found = self.old.execute(f"{sql} LIMIT 1", (first, last)).fetchone()
                    first = max(first, found[0]) if found else last + 1

    def _is_readable(self, sql: str, first: int, last: int) -> bool:
        """True if one of several keys of a range can be read, the first and the last among them."""
        for key in (first, last, *range(first, last, max(1, (last - first) // _PROBES))):
            with suppress(sqlite3.Error):
                self.old.execute(sql, (key, key)).fetchall()
                return True
        return False

    def _read_by_halves(self, sql: str, first: int, last: int) -> Iterator[RawRow]:
        try:
            rows = self.old.execute(sql, (first, last)).fetchall()
            if all(isinstance(row[0], int) and first <= row[0] <= last for row in rows):
                yield from rows
                return
        except sqlite3.Error:
            pass
        if first < last:
            middle = (first + last) // 2
            yield from self._read_by_halves(sql, first, middle)
            yield from self._read_by_halves(sql, middle + 1, last)


def _decode_intact(row: RawRow, name: str, key: int, start: int) -> RawRow | None:
    """Return the columns of an intact row, with the checksum of its content alone; None for a damaged one.

    Args:
        row: The row as stored.
        name: Id of its session.
        key: Key of the row; in the archive, `start`.
        start: Key of the session's slot 0.
    """
    origin = row[3]
    if isinstance(origin, bytes):
        try:
            origin = origin.decode()
        except UnicodeDecodeError:
            return None
    for added in (key, key - start):  # in a database of version 1 the checksum does not cover the session
        if decode_entry_row(row, name, added) is not None:
            return (*row[:3], origin, *row[4:6], row[6] - added)
    return None


def _decode_session(row: RawRow, indexed: str) -> _FoundSession:
    """Return what a row of `sessions` says; for a damaged one, the values that may still be right.

    Args:
        row: A current row, or one of version 1, which has neither the archive's count nor a checksum.
        indexed: The id that the index of ids has for it.
    """
    number, name, _, gaps, last_seq, _, updated, *_ = row
    for candidate in (name, indexed.encode()):
        with suppress(sqlite3.Error):
            if len(row) > 8:
                new_row = decode_session_row((number, candidate, *row[2:]))
                return _FoundSession(number, new_row.session_id, new_row, new_row.archived_count)
            new_row = decode_unchecked((number, candidate, *row[2:], 0))
            return _FoundSession(number, new_row.session_id, new_row)
    session = _FoundSession(number, indexed)
    with suppress(sqlite3.Error):
        session.name = indexed or text_in(name)
    with suppress(sqlite3.Error):
        session.last_seq = number_in(last_seq)
    with suppress(sqlite3.Error):
        session.updated = number_in(updated, 0, time.time_ns() // 1000)
    with suppress(sqlite3.Error):
        session.gaps = slots_in(gaps, MAX_SLOTS)
    return session


def _free_id(session: _FoundSession, taken: set[str]) -> str:
    """Return an id for a session whose row is lost or damaged: its probable id, if no other session has it."""
    with suppress(ConfigError):
        if check_session_id(session.name) not in taken:
            return session.name
    return recovered_id(session.number, taken)
