"""A session that this process has locked: its operations, and the repair of damage that they meet.

A session is loaded, or it must be loaded first. Every operation gets the appender from `_load_if_needed`, and nothing
else holds it. That method first completes what an earlier call left undone and opens the files, or it raises. So files
that could not be reopened are never taken for files that do not exist.

Appends go to the appender. All other changes are planned by `edits`, committed to the redo journal, and then applied.
Damage that a read finds is repaired before the read continues.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from ...errors import NotErased, StoreError
from ...transcript.entry import Entry
from ..protocol import Durability, Extent, Repair, index_range
from ..session_lock import SessionLock
from ..validation import check_index
from .appender import Appender
from .archive import Archive, ArchiveContents, edit_record
from .checkpoint import CheckpointDamaged, SavedCheckpoint, checkpoint_at, encode_checkpoint, load_checkpoint
from .edits import EditPlanner
from .file_ops import FileOps, check_regular_file, exists, open_for_reading, read_at, remove, size_of
from .index import IndexDamaged, IndexRecord
from .indexed_history import IndexedHistory
from .journal import Operation, RedoJournal, Transaction
from .paths import ERASED_PARTS, SessionFiles
from .read_only_session import covers_history
from .repair import RepairPlan, bad_bytes, describe_damage, quarantine, remove_leftovers, repairs_made
from .scan import scan

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 4  # repairs of one session in one call; more than one is rare, endless ones are a bug
_Result = TypeVar("_Result")


class OpenSession:
    """A session whose lock this process holds.

    Attributes:
        files: The paths of its files.
    """

    def __init__(
        self,
        files: SessionFiles,
        durability: Durability,
        *,
        archive: bool,
        report: Callable[[Repair], None],
        to_delete: bool = False,
    ) -> None:
        """Lock the session and load it.

        Args:
            files: The paths of its files.
            durability: What an acknowledgement promises.
            archive: Keep what edits remove.
            report: Called with every repair.
            to_delete: Only `delete` will be called: do not load.

        Raises:
            SessionInUse: Another writer holds the lock.
            OSError: The files cannot be used.
        """
        self.files = files
        self._file_ops = FileOps(durability == "fsync")
        self._report = report
        self._archive = Archive(files.session_id, files.path("archive"), self._file_ops)
        self._journal = RedoJournal(files, self._file_ops)
        self._planner = EditPlanner(files, self._file_ops, self._archive, keeps_archive=archive)
        self._buffers = durability == "none"
        self._appender: Appender | None = None  # None: the files must be loaded
        self._unapplied: Transaction | None = None  # committed but not applied yet; then there is no appender
        self._last_seq = 0  # the highest seq ever assigned, as far as is known without an appender
        self._lock = _acquire_lock(files, self._file_ops, to_delete=to_delete)
        try:
            if not to_delete:
                self._unapplied = self._journal.load()
                self._load_if_needed()
                if self._archive.committed().damaged:
                    self._intact_archive()
        except BaseException:
            self._unload()
            self._release_lock()
            raise

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """True if the session exists.

        Raises:
            OSError: The session must be loaded to know that, and cannot be.
        """
        return self._load_if_needed().exists

    @property
    def has_unapplied(self) -> bool:
        """True if the last edit is committed and not applied yet."""
        return self._unapplied is not None

    def extent(self) -> Extent:
        """Return the extent of the session."""
        appender = self._load_if_needed()
        return Extent(appender.writer.entry_index, appender.last_seq)

    def history(self) -> IndexedHistory:
        """Flush the buffer and return the history."""
        appender = self._load_if_needed()
        appender.flush_buffer()
        return appender.history()

    def read(self, start: int, stop: int | None) -> list[Entry]:
        """Return the entries of a range. Damaged ones are repaired or left out."""

        def records(history: IndexedHistory) -> list[IndexRecord]:
            wanted = index_range(history.length, start, stop)
            return list(history.records(wanted.start, wanted.stop))

        return self._read_entries(records)

    def find(self, seqs: Sequence[int]) -> list[Entry]:
        """Return the entries with these seqs."""
        return self._read_entries(lambda history: history.find_records(seqs))

    def _read_entries(self, records: Callable[[IndexedHistory], list[IndexRecord]]) -> list[Entry]:
        wanted = self.with_intact_history(records)
        found, damaged = self.history().read(iter(wanted))
        if damaged:
            self._repair(frozenset(record.entry_index for record in damaged))
            seqs = [record.seq for record in damaged]
            left, _ = self.history().read(iter(self.with_intact_history(lambda history: history.find_records(seqs))))
            repaired = {entry.seq: entry for entry in left if entry is not None}
            found = [entry or repaired.get(record.seq) for entry, record in zip(found, wanted, strict=True)]
        return [entry for entry in found if entry is not None]

    def with_intact_history(self, query: Callable[[IndexedHistory], _Result]) -> _Result:
        """Run a query on the history. If the index is damaged, repair it and repeat the query."""
        for _ in range(_MAX_ATTEMPTS):
            try:
                return query(self.history())
            except IndexDamaged:
                self._repair()
        raise StoreError(f"session {self.files.session_id!r}: its index is damaged repeatedly; check the disk")

    def archived(self) -> list[Entry]:
        """Repair the archive if necessary and return its entries."""
        return self._intact_archive().entries

    def _intact_archive(self) -> ArchiveContents:
        appender = self._load_if_needed()
        contents = self._archive.read()
        if contents.damaged:
            path = self.files.path("archive")
            quarantined_at = quarantine(self.files, self._file_ops, os.path.basename(path), contents.damaged)
            record = edit_record(appender.writer.entry_index, max(appender.last_seq, contents.last_seq), 0)
            self._file_ops.write_new(path, [*(line.data for line in contents.lines), record])
            self._commit([Operation("rename", "archive")])
            self._report(Repair(self.files.session_id, f"{describe_damage(contents)}; quarantined", 0, quarantined_at))
            self._load_if_needed()
            contents = self._archive.read()
        return contents

    def load_checkpoint(self) -> SavedCheckpoint | None:
        """Return the checkpoint if it is intact and covers entries that exist; quarantine it otherwise."""
        self._load_if_needed()
        path = self.files.path("checkpoint")
        try:
            checkpoint = load_checkpoint(path)
            if checkpoint is None or self.with_intact_history(lambda history: covers_history(checkpoint, history)):
                return checkpoint
            why = "covers messages that no longer exist"
        except CheckpointDamaged:
            why = "is damaged"
        with open_for_reading(path) as descriptor:
            data = b"" if descriptor is None else read_at(descriptor, 0, size_of(descriptor))
        quarantined_at = quarantine(self.files, self._file_ops, os.path.basename(path), [(0, data)])
        remove(path)
        self._report(Repair(self.files.session_id, f"the checkpoint {why}; quarantined", 0, quarantined_at))
        return None

    # -- writing ----------------------------------------------------------------------------------------------------

    def write(self, batches: Sequence[Sequence[Entry]]) -> Appender:
        """Write batches. The caller must sync and commit them at the appender that this returns."""
        appender = self._load_if_needed()
        appender.write(batches)
        return appender

    def flush_buffer(self) -> None:
        """Write the buffered entries to the files."""
        self._load_if_needed().flush_buffer()

    def replace(self, keep: int, entries: Sequence[Entry]) -> None:
        """Keep the first entries, archive the others, and continue with new ones."""

        def operations(history: IndexedHistory) -> list[Operation]:
            check_index(self.files.session_id, keep, history.length)
            if keep == history.length:
                return []
            appender = self._load_if_needed()
            appender.check_unmodified()
            return self._planner.plan_replace(history, keep, entries, appender.last_seq, self._quarantine_entry)

        planned = self.with_intact_history(operations)
        if planned:
            self._commit(planned)
        elif entries:
            appender = self.write([entries])
            appender.commit_or_rollback(appender.sync())

    def rewrite(self, entries: Sequence[Entry]) -> None:
        """Replace entries by new ones with the same seqs, in the history and in the archive.

        Raises:
            NotErased: The entries are replaced, but the old content is not erased from every file yet.
        """
        new = {entry.seq: entry for entry in entries}

        def operations(history: IndexedHistory) -> list[Operation]:
            self._load_if_needed().check_unmodified()
            return self._planner.plan_rewrite(history, new)

        self._intact_archive()
        planned = self.with_intact_history(operations)
        had_damage = exists(self.files.path("damaged"))
        self._commit(planned)
        erases = any(operation.part == "damaged" for operation in planned)
        if erases and had_damage:
            what = "the quarantined bytes are erased: their content is unknown"
            self._report(Repair(self.files.session_id, what))
        if erases and self._unapplied is not None:
            raise NotErased(
                f"session {self.files.session_id!r}: the messages were replaced, but their former content is not "
                "erased from every file yet; make sure that its folder is writable, and repeat the call"
            )

    def save_checkpoint(self, covered: int, data: bytes) -> None:
        """Replace the checkpoint."""

        def record(history: IndexedHistory) -> IndexRecord | None:
            check_index(self.files.session_id, covered, history.length)
            return history.record(covered - 1) if covered else None

        checkpoint = checkpoint_at(self.with_intact_history(record), data)
        self._file_ops.sync(self._load_if_needed().ensure_files()[1].descriptor)
        self._file_ops.write_new(self.files.path("checkpoint"), encode_checkpoint(checkpoint))
        self._commit([Operation("rename", "checkpoint")])

    def begin_as_fork(
        self, history: IndexedHistory, count: int, last_seq: int, checkpoint: SavedCheckpoint | None
    ) -> None:
        """Begin with the entries of another session. Nothing may exist yet.

        Raises:
            IndexDamaged: The other session is damaged.
        """
        self._commit(self._planner.plan_fork(history, count, last_seq, checkpoint))

    def _quarantine_entry(self, record: IndexRecord, span: bytes) -> None:
        quarantined_at = quarantine(self.files, self._file_ops, self.files.name, [(record.offset, span)])
        self._report(
            Repair(
                self.files.session_id,
                f"m{record.seq} is damaged and cannot be archived; quarantined",
                1,
                quarantined_at,
            )
        )

    def _commit(self, operations: Sequence[Operation]) -> None:
        """Commit operations to the journal and apply them. Once committed they are done, even if applying must wait."""
        if not operations:
            return
        transaction = Transaction(operations)
        try:
            self._journal.write(transaction)
        except BaseException:
            for discard in (self._archive.discard_staged, lambda: remove_leftovers(self.files)):
                with suppress(OSError):
                    discard()
            raise
        self._unload()
        self._unapplied = transaction
        try:
            self._load_if_needed()
        except (OSError, StoreError) as problem:
            log.warning(
                "session %r: an edit is in the journal but cannot be applied yet (%s); the next call applies it",
                self.files.session_id,
                problem.strerror if isinstance(problem, OSError) else problem,
            )

    # -- loading and repairing --------------------------------------------------------------------------------------

    def _load_if_needed(self) -> Appender:
        """Return the appender, after completing what an earlier call left undone. There is no other way to the
        appender.

        Raises:
            OSError: Something is still undone, or the files cannot be opened; the next call tries again.
            StoreError: Another program changed the files, or they cannot be repaired.
        """
        if self._appender is not None:
            self._appender.rollback()
            return self._appender
        self._journal.clear_rejected()
        self._apply_pending()
        self._appender = self._open_files()
        return self._appender

    def _unload(self) -> None:
        """Close the files. The next operation loads them again."""
        appender, self._appender = self._appender, None
        if appender is not None:
            self._last_seq = max(self._last_seq, appender.last_seq)
            appender.close()

    def _apply_pending(self) -> None:
        """Apply the committed transaction, if there is one."""
        if self._unapplied is not None:
            self._journal.apply(self._unapplied)
            self._journal.clear(durably=True)
            self._unapplied = None

    def _open_files(self, bad_indexes: frozenset[int] = frozenset(), *, trust_ends: bool = True) -> Appender:
        """Open the files and read from them where the history ends.

        Args:
            bad_indexes: Entry indexes that cannot be read.
            trust_ends: Accept the files if their ends are consistent; otherwise scan and repair them.
        """
        remove_leftovers(self.files)
        for _ in range(_MAX_ATTEMPTS):
            appender = Appender(self.files, self._file_ops, self._journal, buffers=self._buffers)
            try:
                last_seq = max(self._last_seq, self._archive.committed().last_seq)
                if trust_ends and appender.load_end(last_seq):
                    return appender
                self._repair_files(appender, last_seq, bad_indexes, full=not trust_ends)
            except BaseException:
                appender.close()
                raise
            appender.close()
            bad_indexes, trust_ends = frozenset(), True
        raise StoreError(f"session {self.files.session_id!r} cannot be repaired; check the disk, and copy it elsewhere")

    def _repair(self, bad_indexes: frozenset[int] = frozenset()) -> None:
        """Scan and repair the files, trusting nothing."""
        self._unload()
        self._appender = self._open_files(bad_indexes, trust_ends=False)

    def _repair_files(self, appender: Appender, last_seq: int, bad_indexes: frozenset[int], *, full: bool) -> None:
        main, session_id = appender.main, self.files.session_id
        scan_report = scan(
            main,
            size_of(main),
            appender.index,
            session_id=session_id,
            last_seq=last_seq,
            bad_indexes=bad_indexes,
            full=full,
        )
        pieces = iter(()) if main is None else bad_bytes(main, scan_report.bad_ranges)
        quarantined_at = quarantine(self.files, self._file_ops, self.files.name, pieces)
        transaction = Transaction(RepairPlan(self.files, self._file_ops, self._archive, scan_report).operations(main))
        self._journal.write(transaction)
        self._unapplied = transaction
        for repair in repairs_made(session_id, self.files, scan_report, quarantined_at):
            self._report(repair)
        self._apply_pending()

    # -- releasing and deleting -------------------------------------------------------------------------------------

    def release(self) -> None:
        """Write everything and release the lock.

        Raises:
            OSError: Buffered entries cannot be written, or a failed append cannot be rolled back. The lock is still
                held, so a released session holds exactly what was acknowledged; `abandon` gives that up.
        """
        with suppress(OSError, StoreError):  # the next opening also applies a committed transaction
            self._load_if_needed()
        try:
            self._journal.clear_rejected()
            if self._appender is not None:
                self._appender.rollback()
                self._appender.flush_buffer()
                self._appender.sync_index()
        except StoreError as problem:
            log.warning("%s; messages that were not on disk yet are lost", problem)
        if self._unapplied is None:
            with suppress(OSError):  # the file is empty
                self._journal.remove()
        self._unload()
        self._release_lock()

    def abandon(self) -> None:
        """Release the lock, whatever is left undone."""
        with suppress(OSError, StoreError):
            self._load_if_needed().flush_buffer()
        self._unload()
        with suppress(OSError):
            self._release_lock()

    def delete(self) -> None:
        """Erase all files and release the lock. If that fails half way, the next call continues."""
        self._unload()
        self._unapplied = Transaction([Operation("delete", part) for part in ERASED_PARTS])
        with suppress(OSError):  # a full disk cannot take the journal; deleting makes room all the same
            self._journal.write(self._unapplied)
        self._journal.apply(self._unapplied)
        remove_leftovers(self.files)
        self._journal.remove()
        self._file_ops.sync_folder(self.files.folder)
        self._unapplied = None
        self._release_lock()

    def _release_lock(self) -> None:
        empty = False
        with suppress(OSError):
            empty = not exists(self.files.main)
        self._lock.release(remove_file=empty)
        if empty and self.files.own_folder:
            with suppress(OSError):  # other files are in it
                os.rmdir(self.files.folder)


def _acquire_lock(files: SessionFiles, file_ops: FileOps, *, to_delete: bool) -> SessionLock:
    """Create the session's folder if necessary and acquire the lock."""
    for _ in range(_MAX_ATTEMPTS):
        file_ops.make_folder(files.folder)
        with suppress(FileNotFoundError):  # the former holder of an empty session removes its folder
            check_regular_file(files.path("lock"))
            return SessionLock(files.path("lock"), files.session_id, to_delete=to_delete)
    raise StoreError(
        f"session {files.session_id!r}: {files.folder} is removed repeatedly; find the program that does it"
    )
