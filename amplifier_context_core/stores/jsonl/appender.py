"""The end of the main file and of the index, where one writer adds: all of it, or nothing.

A tail has its files open for as long as it lives. A file it does not have was not there when it was made.

An append is one write to the main file, one to the index, and one fsync of the main file; a batch that must be atomic
is written down in the pending file before, so that even a crash leaves all of it or nothing. What is known here of the
files is what was read when they were opened and what was written since: before every write they are asked whether that
is still so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from ...errors import StoreError
from ...transcript.transcript import Entry
from .file_ops import FileOps, close, open_file, open_if_exists, restrict_permissions, size_of, write_all, yield_gil
from .index import Index, IndexDamaged, IndexRecord, RecordWriter
from .indexed_history import IndexedHistory, open_if_consistent
from .journal import Operation, RedoJournal, Transaction
from .paths import SessionFiles
from .scan import RECENT_RECORDS

_MAX_BUFFERED = 64 * 1024  # bytes kept back at most where nothing is promised of them
_OPEN_FLAGS = os.O_RDWR | os.O_APPEND


class _Uncommitted(NamedTuple):
    """What an append has written and is not part of the history yet."""

    writer: RecordWriter
    journaled: bool  # it stands in the pending file too
    is_repeat: bool
    sizes: tuple[int, int]


class Appender:
    """Where a history goes on.

    Attributes:
        main: descriptor of the main file; None while there is no such file.
        index: the index, likewise.
        lines: place, offset and highest seq up to here.
        last_seq: the highest seq ever given.
    """

    def __init__(self, files: SessionFiles, file_ops: FileOps, journal: RedoJournal, *, buffers: bool) -> None:
        """Open the files there are. Nothing may be asked of it before `learn` has returned True.

        Args:
            files: the session's.
            disk: writes them.
            pending: where a batch is written down that must be atomic.
            holds: keep small appends in memory until they are worth a write.

        Raises:
            OSError: one of the files cannot be opened.
        """
        self._files, self._file_ops, self._journal, self._buffers = files, file_ops, journal, buffers
        self.main: int | None = None
        self.index: Index | None = None
        self.writer = RecordWriter(files.session_id)
        self.last_seq = 0
        self._committed_sizes = (0, 0)  # bytes of the main file and of the index that are in the files
        self._needs_rollback = False  # a write failed: the files may hold more than `_written`
        self._folder_is_synced = False  # the folder was synced since the files were made
        self._buffered: list[RecordWriter] = []
        self._uncommitted: _Uncommitted | None = None
        self._main_identity: tuple[int, int] | None = (
            None  # of the main file that is open: its device, and its number there
        )
        self._recent_crcs: dict[int, int] | None = None  # checksums of the last messages, and the place of each
        try:
            self.main = open_if_exists(files.main, _OPEN_FLAGS)
            if self.main is not None and files.own_folder:
                restrict_permissions(self.main)
            descriptor = open_if_exists(files.path("index"), _OPEN_FLAGS)
            if descriptor is not None:
                self.index = Index(descriptor, 0)
                self.index.size = size_of(descriptor)
        except BaseException:
            self.close()
            raise

    @property
    def exists(self) -> bool:
        """True if there is a main file, or anything is kept back to be written to it."""
        return self.main is not None or bool(self._buffered)

    def history(self) -> IndexedHistory:
        """What the files hold; what is kept back must be written before."""
        writer = self.writer
        return IndexedHistory(
            writer.session_id,
            self.main,
            writer.offset,
            self.index,
            writer.entry_index,
            max_seq=writer.max_seq,
            seqs_ascend=writer.seqs_ascend,
        )

    # -- opening ----------------------------------------------------------------------------------------------------

    def load_end(self, last_seq: int) -> bool:
        """Learn from the open files where the history goes on; False if they do not fit each other."""
        found = open_if_consistent(self.main, size_of(self.main), self.index)
        if found is None:
            return False
        history, last_record = found
        self.writer = RecordWriter.after(self._files.session_id, last_record)
        size = 0 if history.index is None else history.index.size
        if self.index is not None and self.index.size != size:  # its last line is torn
            os.ftruncate(self.index.descriptor, size)
            self.index.size = size
        self.last_seq = max(last_seq, self.writer.max_seq)
        self._committed_sizes = (history.size, size)
        self._folder_is_synced = history.size > 0  # the folder is synced before the first message is written
        return True

    def ensure_files(self) -> tuple[int, Index]:
        """Have both files open; a session begins to be there when the main file is."""
        if self.main is None:
            self._file_ops.make_folder(self._files.folder)
            self.main = open_file(self._files.main, _OPEN_FLAGS | os.O_CREAT)
        if self.index is None:
            self.index = Index(open_file(self._files.path("index"), _OPEN_FLAGS | os.O_CREAT), 0)
        if not self._folder_is_synced:
            os.ftruncate(self.index.descriptor, self._committed_sizes[1])
            self._file_ops.sync_folder(self._files.folder)
            self._folder_is_synced = True
        return self.main, self.index

    def close(self) -> None:
        """Close the files. Nothing may be asked of it any more."""
        close(self.main)
        close(None if self.index is None else self.index.descriptor)
        self.main = self.index = None

    # -- writing ----------------------------------------------------------------------------------------------------

    def write(self, batches: Sequence[Sequence[Entry]]) -> None:
        """The first half of an append: what is written is not there until it is settled."""
        writer = self.writer.successor()
        for entries in batches:
            encode_entries(writer, entries)
        if self._buffers:
            self._buffer(writer)
        else:
            self._write_files([writer], journaled=any(len(entries) > 1 for entries in batches))

    def begin_sync(self) -> None:
        """Have what was written begin to reach the disk, and not wait for it."""
        if self._uncommitted is not None and self.main is not None:
            begin = self._committed_sizes[0]
            self._file_ops.start_writeback(self.main, begin, self._uncommitted.sizes[0] - begin)

    def sync(self) -> OSError | None:
        """Have on disk what was written; what went wrong. Other threads may do this, for many sessions at once."""
        if self._uncommitted is None or self.main is None or self.index is None:
            return None
        try:
            if self._uncommitted.is_repeat:
                # Like one of the last: without its index line it could be taken for a damage of the file system.
                self._file_ops.sync(self.index.descriptor)
            self._file_ops.sync(self.main)
        except OSError as problem:
            return problem
        return None

    def sync_index(self) -> None:
        """Have the index on disk, too, as far as that can be: it can be made anew from the main file."""
        if self.index is not None:
            with suppress(OSError):
                self._file_ops.sync(self.index.descriptor)

    def commit_or_rollback(self, error: OSError | None) -> None:
        """Make what was written part of the history, or take it back and raise why."""
        if self._uncommitted is None:
            return
        done, self._uncommitted = self._uncommitted, None
        if error is not None:
            self._rollback_now_or_later(journaled=done.journaled)
            raise error
        self._committed_sizes = done.sizes
        if done.journaled:
            with suppress(OSError):  # it is carried out; found again, it does no harm
                self._journal.clear(durably=False)
        self._advance(done.writer)

    def flush_buffer(self) -> None:
        """Write what was kept back."""
        if self._buffered:
            end = self.writer
            self._write_files(self._buffered, journaled=False)
            self.commit_or_rollback(self.sync())
            self._buffered, self.writer = [], end

    def _buffer(self, writer: RecordWriter) -> None:
        """Keep entries in memory until enough have come together."""
        self._buffered.append(writer)
        if writer.offset - self._committed_sizes[0] >= _MAX_BUFFERED:
            try:
                self.flush_buffer()
            except BaseException:
                self._buffered.pop()
                raise
        self._advance(writer)

    def _advance(self, writer: RecordWriter) -> None:
        self.last_seq = max(self.last_seq, writer.max_seq)
        self.writer = writer.successor()

    def _write_files(self, writers: Sequence[RecordWriter], *, journaled: bool) -> None:
        """Write lines into the files, or raise with the files as they were."""
        at_main, at_index = self._committed_sizes
        crcs = [crc for writer in writers for crc in writer.crcs]
        is_repeat = self._file_ops.durable and self._repeats_recent(crcs)
        journaled = journaled or (
            is_repeat and len(crcs) > 1
        )  # or, cut off before their index lines, some may pass for the last's
        main = b"".join(chain.from_iterable(lines.main_lines for lines in writers))
        text = b"".join(chain.from_iterable(lines.index_lines for lines in writers))
        descriptor, index = self.ensure_files()
        self.check_unmodified()
        if journaled:
            operations = [Operation("write", "main", at_main, main), Operation("write", "index", at_index, text)]
            self._journal.write(Transaction(operations, appends_only=True))
        try:
            write_all(descriptor, main)
            write_all(index.descriptor, text)
        except BaseException:
            self._rollback_now_or_later(journaled=journaled)
            raise
        index.size += len(text)
        self._uncommitted = _Uncommitted(writers[-1], journaled, is_repeat, (at_main + len(main), at_index + len(text)))

    def _repeats_recent(self, crcs: Sequence[int]) -> bool:
        """Is one of these messages like one of the last?"""
        length = self.writer.entry_index
        if self._recent_crcs is None:
            self._recent_crcs = {}
            with suppress(IndexDamaged):
                self._recent_crcs = {
                    record.crc: record.entry_index for record in self.history().records(max(0, length - RECENT_RECORDS))
                }
        repeats = False
        for entry_index, crc in enumerate(crcs, length):
            repeats = repeats or self._recent_crcs.get(crc, -RECENT_RECORDS - 1) >= entry_index - RECENT_RECORDS
            self._recent_crcs[crc] = entry_index
        if len(self._recent_crcs) > 4 * RECENT_RECORDS:
            newest = length + len(crcs) - RECENT_RECORDS
            self._recent_crcs = {
                crc: entry_index for crc, entry_index in self._recent_crcs.items() if entry_index >= newest
            }
        return repeats

    # -- when it fails ----------------------------------------------------------------------------------------------

    def rollback(self) -> None:
        """Cut off what a refused append left in the files. Comes before anything else is asked or done.

        The files are opened again, too: what never reached the disk may look written through the old descriptors.

        Raises:
            OSError: it cannot be cut off yet.
            StoreError: another program removed or replaced a file.
        """
        if self._needs_rollback:
            self._recent_crcs = None
            if self.main is not None and size_of(self.main) > self._committed_sizes[0]:
                os.ftruncate(self.main, self._committed_sizes[0])
            if self.index is not None:
                os.ftruncate(self.index.descriptor, self._committed_sizes[1])
            self.main = self._reopened(self.main, self._files.main)
            old_index = None if self.index is None else self.index.descriptor
            descriptor = self._reopened(old_index, self._files.path("index"))
            self.index = None if descriptor is None else Index(descriptor, self._committed_sizes[1])
            self._needs_rollback = False
        self._journal.clear_rejected()

    def _reopened(self, descriptor: int | None, path: str) -> int | None:
        """Open a file again and close its old descriptor, which stays open where that fails.

        Raises:
            OSError: it cannot be opened.
            StoreError: it is not there any more, or is another file.
        """
        reopened = open_if_exists(path, _OPEN_FLAGS)
        if descriptor is None:
            return reopened
        try:
            if reopened is None:
                raise self._modified_error("removed", path)
            if _identity_of(os.fstat(reopened)) != _identity_of(os.fstat(descriptor)):
                raise self._modified_error("replaced", path)
        except BaseException:
            close(reopened)
            raise
        close(descriptor)
        return reopened

    def _rollback_now_or_later(self, *, journaled: bool) -> None:
        """Take back what was written, now or, where that fails too, before anything else is done."""
        self._needs_rollback = True
        if journaled:
            self._journal.reject()
        with suppress(OSError):
            self.rollback()

    def check_unmodified(self) -> None:
        """Raise if somebody else changed the main file: what we add would not be where we think."""
        if self.main is None:
            return
        if self._main_identity is None:
            self._main_identity = _identity_of(os.fstat(self.main))
        try:
            status = os.lstat(self._files.main)
        except FileNotFoundError:
            raise self._modified_error("removed", self._files.main) from None
        if _identity_of(status) != self._main_identity:
            raise self._modified_error("replaced", self._files.main)
        if status.st_size != self._committed_sizes[0]:
            raise self._modified_error("wrote to", self._files.main)

    def _modified_error(self, change: str, path: str) -> StoreError:
        return StoreError(
            f"session {self._files.session_id!r}: another program {change} {path}, and nothing was written over it; "
            "release the session and open it again, then what it holds now is taken over"
        )


def encode_entries(writer: RecordWriter, entries: Sequence[Entry]) -> None:
    """Add entries to lines.

    Raises:
        StoreError: JSON cannot hold one of them.
    """
    for entry in entries:
        yield_gil()
        try:
            writer.add(entry)
        except (TypeError, ValueError, RecursionError) as problem:
            raise StoreError(
                f"{entry.mark} of session {writer.session_id!r} cannot be written as JSON ({type(problem).__name__}); "
                "nothing was stored"
            ) from None


def _identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def end_offset(record: IndexRecord | None) -> int:
    """Where in the main file a row ends; 0 for none."""
    return 0 if record is None else record.end
