"""The one writer of a session: what it may be asked, and what is done when the answer is that something is damaged.

A session is loaded, or it must be loaded first. Every operation asks `_loaded` for the tail, and nothing else has it:
what an earlier call left undone is done there, the files are opened, or the caller gets the error. So files that could
not be opened again are never taken for files that are not there.

Appends go to the tail (`appender`). All other changes are edits (`edits`): written down in the pending file
first, done from that moment on, and then carried out. Damage that is found by reading is mended (`repair`) before
the read goes on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from ...errors import NotErased, StoreError
from ...transcript.transcript import Entry
from ..protocol import Durability, Extent, Repair, index_range
from ..validation import check_index
from .appender import Appender
from .archive import Archive, ArchiveContents, edit_record
from .checkpoint import CheckpointDamaged, SavedCheckpoint, checkpoint_at, encode_checkpoint, load_checkpoint
from .edits import EditPlanner
from .file_ops import FileOps, exists, open_for_reading, read_at, remove, size_of
from .index import IndexDamaged, IndexRecord
from .indexed_history import IndexedHistory
from .journal import Operation, RedoJournal, Transaction
from .lock import SessionLock
from .paths import ERASED_PARTS, SessionFiles
from .read_only_session import covers_history
from .repair import RepairPlan, bad_bytes, describe_damage, quarantine, remove_leftovers, repairs_made
from .scan import scan

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 4  # repairs of one session in one call; more than one is rare, endless ones are a bug
_Result = TypeVar("_Result")


class OpenSession:
    """A session that is claimed by this process.

    Attributes:
        files: where it is.
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
        """Claim it and look at it.

        Args:
            files: where it is.
            durability: what acknowledged means.
            archive: keep what edits take out.
            tell: told of every repair.
            to_delete: nothing else will be asked: do not look.

        Raises:
            SessionInUse: another writer has it.
            OSError: its files cannot be used.
        """
        self.files = files
        self._file_ops = FileOps(durability == "fsync")
        self._report = report
        self._archive = Archive(files.session_id, files.path("archive"), self._file_ops)
        self._journal = RedoJournal(files, self._file_ops)
        self._planner = EditPlanner(files, self._file_ops, self._archive, keeps_archive=archive)
        self._buffers = durability == "none"
        self._appender: Appender | None = None  # None: the files must be loaded
        self._unapplied: Transaction | None = None  # done but not carried out yet; then there is no tail
        self._last_seq = 0  # the highest seq ever given, as far as is known while there is no tail
        self._lock = _acquire_lock(files, self._file_ops)
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

    # -- asking -----------------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """True if there is anything of it.

        Raises:
            OSError: it must be loaded to know that, and cannot be.
        """
        return self._load_if_needed().exists

    @property
    def has_unapplied(self) -> bool:
        """True if the last edit is written down, and is not carried out yet."""
        return self._unapplied is not None

    def extent(self) -> Extent:
        """How long it is."""
        appender = self._load_if_needed()
        return Extent(appender.writer.entry_index, appender.last_seq)

    def history(self) -> IndexedHistory:
        """What there is, everything written."""
        appender = self._load_if_needed()
        appender.flush_buffer()
        return appender.history()

    def read(self, start: int, stop: int | None) -> list[Entry]:
        """The entries of these places; damage among them is mended, and they are fewer."""

        def records(history: IndexedHistory) -> list[IndexRecord]:
            wanted = index_range(history.length, start, stop)
            return list(history.records(wanted.start, wanted.stop))

        return self._read_entries(records)

    def find(self, seqs: Sequence[int]) -> list[Entry]:
        """The entries of these seqs."""
        return self._read_entries(lambda history: history.find_records(seqs))

    def _read_entries(self, records: Callable[[IndexedHistory], list[IndexRecord]]) -> list[Entry]:
        wanted = self.with_intact_history(records)
        found, damaged = self.history().read(iter(wanted))
        if damaged:
            self._repair(frozenset(record.entry_index for record in damaged))
            seqs = [record.seq for record in damaged]
            left, _ = self.history().read(iter(self.with_intact_history(lambda history: history.find_records(seqs))))
            mended = {entry.seq: entry for entry in left if entry is not None}
            found = [entry or mended.get(record.seq) for entry, record in zip(found, wanted, strict=True)]
        return [entry for entry in found if entry is not None]

    def with_intact_history(self, query: Callable[[IndexedHistory], _Result]) -> _Result:
        """Ask the history; if its index turns out to be damaged, mend it and ask again."""
        for _ in range(_MAX_ATTEMPTS):
            try:
                return query(self.history())
            except IndexDamaged:
                self._repair()
        raise StoreError(f"session {self.files.session_id!r}: its index is damaged again and again; see to the disk")

    def archived(self) -> list[Entry]:
        """What the archive holds; damage in it is mended first."""
        return self._intact_archive().entries

    def _intact_archive(self) -> ArchiveContents:
        appender = self._load_if_needed()
        contents = self._archive.read()
        if contents.damaged:
            path = self.files.path("archive")
            kept = quarantine(self.files, self._file_ops, os.path.basename(path), contents.damaged)
            record = edit_record(appender.writer.entry_index, max(appender.last_seq, contents.last_seq), 0)
            self._file_ops.write_new(path, [*(line.data for line in contents.lines), record])
            self._commit([Operation("rename", "archive")])
            self._report(Repair(self.files.session_id, f"{describe_damage(contents)}; put aside", 0, kept))
            self._load_if_needed()
            contents = self._archive.read()
        return contents

    def load_checkpoint(self) -> SavedCheckpoint | None:
        """The checkpoint, if it is whole and stands for what the history holds; otherwise it is put aside."""
        self._load_if_needed()
        path = self.files.path("checkpoint")
        try:
            checkpoint = load_checkpoint(path)
            if checkpoint is None or self.with_intact_history(lambda history: covers_history(checkpoint, history)):
                return checkpoint
            why = "stands for messages that are not there any more"
        except CheckpointDamaged:
            why = "is damaged"
        with open_for_reading(path) as descriptor:
            data = b"" if descriptor is None else read_at(descriptor, 0, size_of(descriptor))
        kept = quarantine(self.files, self._file_ops, os.path.basename(path), [(0, data)])
        remove(path)
        self._report(Repair(self.files.session_id, f"the checkpoint {why}; put aside", 0, kept))
        return None

    # -- changing ---------------------------------------------------------------------------------------------------

    def write(self, batches: Sequence[Sequence[Entry]]) -> Appender:
        """The first half of an append; it is synced and settled at the tail that this returns."""
        appender = self._load_if_needed()
        appender.write(batches)
        return appender

    def flush_buffer(self) -> None:
        """Write what was kept back."""
        self._load_if_needed().flush_buffer()

    def replace(self, keep: int, entries: Sequence[Entry]) -> None:
        """Keep the first entries, archive the others, and go on with these."""

        def operations(history: IndexedHistory) -> list[Operation]:
            check_index(self.files.session_id, keep, history.length)
            if keep == history.length:
                return []
            appender = self._load_if_needed()
            appender.check_unmodified()
            return self._planner.plan_replace(history, keep, entries, appender.last_seq, self._quarantine_entry)

        made = self.with_intact_history(operations)
        if made:
            self._commit(made)
        elif entries:
            appender = self.write([entries])
            appender.commit_or_rollback(appender.sync())

    def rewrite(self, entries: Sequence[Entry]) -> None:
        """Put entries in place of those of the same seqs, here and in the archive.

        Raises:
            NotErased: they are in place, but what they replace is not erased from every file yet.
        """
        new = {entry.seq: entry for entry in entries}

        def operations(history: IndexedHistory) -> list[Operation]:
            self._load_if_needed().check_unmodified()
            return self._planner.plan_rewrite(history, new)

        self._intact_archive()
        made = self.with_intact_history(operations)
        had_damage = exists(self.files.path("damaged"))
        self._commit(made)
        erases = any(operation.part == "damaged" for operation in made)
        if erases and had_damage:
            what = "the damaged bytes that were put aside are erased: what they say cannot be told"
            self._report(Repair(self.files.session_id, what))
        if erases and self._unapplied is not None:
            raise NotErased(
                f"session {self.files.session_id!r}: the messages were replaced, but what they said is not erased from "
                "every file yet; see that its folder can be written, and make the same call again"
            )

    def save_checkpoint(self, covered: int, data: bytes) -> None:
        """Put a checkpoint in the place of the one before."""

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
        """Begin, with nothing there yet, as another session did.

        Raises:
            IndexDamaged: the other is damaged.
        """
        self._commit(self._planner.plan_fork(history, count, last_seq, checkpoint))

    def _quarantine_entry(self, record: IndexRecord, span: bytes) -> None:
        kept = quarantine(self.files, self._file_ops, self.files.name, [(record.offset, span)])
        self._report(
            Repair(self.files.session_id, f"m{record.seq} is damaged, and was to be archived; put aside", 1, kept)
        )

    def _commit(self, operations: Sequence[Operation]) -> None:
        """Do all of this. From the moment it is written down it is done, even if carrying it out has to wait."""
        if not operations:
            return
        transaction = Transaction(operations)
        try:
            self._journal.write(transaction)
        except BaseException:
            for take_back in (self._archive.discard_staged, lambda: remove_leftovers(self.files)):
                with suppress(OSError):
                    take_back()
            raise
        self._unload()
        self._unapplied = transaction
        try:
            self._load_if_needed()
        except (OSError, StoreError) as problem:
            log.warning(
                "session %r: an edit is written down but cannot be carried out yet (%s); the next call does that",
                self.files.session_id,
                problem.strerror if isinstance(problem, OSError) else problem,
            )

    # -- loading and mending ----------------------------------------------------------------------------------------

    def _load_if_needed(self) -> Appender:
        """Return the tail, after all that an earlier call left undone. The only way to it.

        Raises:
            OSError: something is still undone, or the files cannot be opened; the next call tries again.
            StoreError: another program changed the files, or they cannot be mended.
        """
        if self._appender is not None:
            self._appender.rollback()
            return self._appender
        self._journal.clear_rejected()
        self._apply_pending()
        self._appender = self._open_files()
        return self._appender

    def _unload(self) -> None:
        """Close the files; they must be loaded before anything else is asked."""
        appender, self._appender = self._appender, None
        if appender is not None:
            self._last_seq = max(self._last_seq, appender.last_seq)
            appender.close()

    def _apply_pending(self) -> None:
        """Carry out the edit that is written down, if there is one."""
        if self._unapplied is not None:
            self._journal.apply(self._unapplied)
            self._journal.clear(durably=True)
            self._unapplied = None

    def _open_files(self, bad_indexes: frozenset[int] = frozenset(), *, trust_ends: bool = True) -> Appender:
        """Open the files, and learn from them where the history goes on.

        Args:
            bad: places that cannot be read.
            trusting: what the ends of the files say is enough where it fits; otherwise they are examined and mended.
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
        raise StoreError(f"session {self.files.session_id!r} cannot be mended; see to the disk, and copy it elsewhere")

    def _repair(self, bad_indexes: frozenset[int] = frozenset()) -> None:
        """Make the files right, of which some places cannot be read; trust nothing they say."""
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

    # -- the end ----------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Write everything, and give the claim back.

        Raises:
            OSError: what was kept back cannot be written, or what was refused cannot be cut off; the session is still
                claimed. So a session that was released holds what was acknowledged, and nothing else.
        """
        with suppress(OSError, StoreError):  # an edit that is written down is carried out by the next opening, too
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
            with suppress(OSError):  # it is empty
                self._journal.remove()
        self._unload()
        self._release_lock()

    def abandon(self) -> None:
        """Give the claim back, whatever is left undone."""
        with suppress(OSError, StoreError):
            self._load_if_needed().flush_buffer()
        self._unload()
        with suppress(OSError):
            self._release_lock()

    def delete(self) -> None:
        """Erase all of it, and give the claim back. What fails half way is carried on by the next call."""
        self._unload()
        self._unapplied = Transaction([Operation("delete", part) for part in ERASED_PARTS])
        with suppress(OSError):  # on a full disk this cannot be written down, and makes room all the same
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
            with suppress(OSError):  # something else is in it
                os.rmdir(self.files.folder)


def _acquire_lock(files: SessionFiles, file_ops: FileOps) -> SessionLock:
    """The claim on a session; its folder is made for the lock."""
    for _ in range(_MAX_ATTEMPTS):
        file_ops.make_folder(files.folder)
        with suppress(FileNotFoundError):  # whoever had an empty session gives it back, folder and all
            return SessionLock(files)
    raise StoreError(f"session {files.session_id!r}: {files.folder} is removed again and again; see who does that")
