"""Append to the main file and to the index: all of a batch, or nothing.

An appender keeps its files open for as long as it lives. A file that it does not have open did not exist when the
appender was made.

An append is one write to the main file, one write to the index, and one fsync of the main file. A batch that must be
atomic is written to the redo journal first, so that a crash leaves all of it or nothing. The appender knows the files
as they were when it opened them, plus what it has written since. Before every write it checks that no other program
changed the main file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from ...errors import StoreError
from ...transcript.entry import Entry
from .file_ops import FileOps, close, open_file, open_if_exists, restrict_permissions, size_of, write_all, yield_gil
from .index import Index, IndexDamaged, IndexRecord, RecordWriter
from .indexed_history import IndexedHistory, open_if_consistent
from .journal import Operation, RedoJournal, Transaction
from .paths import SessionFiles
from .scan import RECENT_RECORDS

_MAX_BUFFERED = 64 * 1024  # bytes; the limit of the buffer that `durability: none` allows
_OPEN_FLAGS = os.O_RDWR | os.O_APPEND


class _Uncommitted(NamedTuple):
    """What an append has written to the files and has not committed yet."""

    writer: RecordWriter
    journaled: bool  # the batch is in the redo journal as well
    is_repeat: bool
    sizes: tuple[int, int]


class Appender:
    """The end of a session's main file and index, open for appending.

    Attributes:
        main: Descriptor of the main file; None while the file does not exist.
        index: The index; None while the file does not exist.
        writer: Holds the entry index, offset and highest seq at the end.
        last_seq: The highest seq ever assigned.
    """

    def __init__(self, files: SessionFiles, file_ops: FileOps, journal: RedoJournal, *, buffers: bool) -> None:
        """Open the files that exist. Call `load_end` first: nothing else may be called before it has returned True.

        Args:
            files: Paths of the session's files.
            file_ops: Writes and syncs them.
            journal: Receives each batch that must be atomic.
            buffers: Keep small appends in memory until they are worth a write.

        Raises:
            OSError: One of the files cannot be opened.
        """
        self._files, self._file_ops, self._journal, self._buffers = files, file_ops, journal, buffers
        self.main: int | None = None
        self.index: Index | None = None
        self.writer = RecordWriter(files.session_id)
        self.last_seq = 0
        self._committed_sizes = (0, 0)  # bytes of the main file and of the index that are committed
        self._needs_rollback = False  # a write failed: the files may be longer than `_committed_sizes`
        self._folder_is_synced = False  # the folder was synced after the files were created
        self._buffered: list[RecordWriter] = []
        self._uncommitted: _Uncommitted | None = None
        self._main_identity: tuple[int, int] | None = None  # device and inode of the open main file
        self._recent_crcs: dict[int, int] | None = None  # entry index by checksum, for the newest messages
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
        """True if the main file exists, or entries are buffered for it."""
        return self.main is not None or bool(self._buffered)

    def history(self) -> IndexedHistory:
        """Return the history in the files. Flush the buffer first."""
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
        """Read from the open files where the history ends. Return False if the files are inconsistent."""
        found = open_if_consistent(self.main, size_of(self.main), self.index)
        if found is None:
            return False
        history, last_record = found
        self.writer = RecordWriter.after(self._files.session_id, last_record)
        size = 0 if history.index is None else history.index.size
        if self.index is not None and self.index.size != size:  # the last line is torn
            os.ftruncate(self.index.descriptor, size)
            self.index.size = size
        self.last_seq = max(last_seq, self.writer.max_seq)
        self._committed_sizes = (history.size, size)
        self._folder_is_synced = history.size > 0  # the folder is synced before the first message is written
        return True

    def ensure_files(self) -> tuple[int, Index]:
        """Create the files that are missing and return both. A session exists once its main file does."""
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
        """Close the files. Nothing may be called afterwards."""
        close(self.main)
        close(None if self.index is None else self.index.descriptor)
        self.main = self.index = None

    # -- writing ----------------------------------------------------------------------------------------------------

    def write(self, batches: Sequence[Sequence[Entry]]) -> None:
        """Write batches to the files. They are part of the history only after `commit_or_rollback`."""
        writer = self.writer.successor()
        for entries in batches:
            encode_entries(writer, entries)
        if self._buffers:
            self._buffer(writer)
        else:
            self._write_files([writer], journaled=any(len(entries) > 1 for entries in batches))

    def start_writeback(self) -> None:
        """Start writing the uncommitted bytes to disk without waiting."""
        if self._uncommitted is not None and self.main is not None:
            begin = self._committed_sizes[0]
            self._file_ops.start_writeback(self.main, begin, self._uncommitted.sizes[0] - begin)

    def sync(self) -> OSError | None:
        """Sync the uncommitted bytes and return the error, if any. Several threads may call this at once."""
        if self._uncommitted is None or self.main is None or self.index is None:
            return None
        try:
            if self._uncommitted.is_repeat:
                # Without its index line, a repeated message could be taken for a tail that the file system wrote twice.
                self._file_ops.sync(self.index.descriptor)
            self._file_ops.sync(self.main)
        except OSError as problem:
            return problem
        return None

    def sync_index(self) -> None:
        """Sync the index, and ignore a failure: the index can be rebuilt from the main file."""
        if self.index is not None:
            with suppress(OSError):
                self._file_ops.sync(self.index.descriptor)

    def commit_or_rollback(self, error: OSError | None) -> None:
        """Add the written entries to the history; after an error, roll them back and raise it."""
        if self._uncommitted is None:
            return
        done, self._uncommitted = self._uncommitted, None
        if error is not None:
            self._rollback_now_or_later(journaled=done.journaled)
            raise error
        self._committed_sizes = done.sizes
        if done.journaled:
            with suppress(OSError):  # the batch is applied; applying it again does no harm
                self._journal.clear(durably=False)
        self._advance(done.writer)

    def flush_buffer(self) -> None:
        """Write the buffered entries to the files."""
        if self._buffered:
            end = self.writer
            self._write_files(self._buffered, journaled=False)
            self.commit_or_rollback(self.sync())
            self._buffered, self.writer = [], end

    def _buffer(self, writer: RecordWriter) -> None:
        """Keep entries in memory until the buffer is full."""
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
        """Write lines to both files. On failure, restore the files and raise."""
        at_main, at_index = self._committed_sizes
        crcs = [crc for writer in writers for crc in writer.crcs]
        is_repeat = self._file_ops.durable and self._repeats_recent(crcs)
        # cut off before their index lines, some would pass for repeats
        journaled = journaled or (is_repeat and len(crcs) > 1)
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
        """True if one of these messages equals one of the newest."""
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

    # -- rolling back -----------------------------------------------------------------------------------------------

    def rollback(self) -> None:
        """Truncate what a failed append left in the files. Must run before any other operation.

        The files are reopened: data that never reached the disk may look written through the old descriptors.

        Raises:
            OSError: The files cannot be truncated yet.
            StoreError: Another program removed or replaced a file.
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
        """Open a file again and close its old descriptor. On failure, the old descriptor stays open.

        Raises:
            OSError: The file cannot be opened.
            StoreError: The file is gone, or is another file.
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
        """Roll back now. If that fails too, leave it to the next operation."""
        self._needs_rollback = True
        if journaled:
            self._journal.reject()
        with suppress(OSError):
            self.rollback()

    def check_unmodified(self) -> None:
        """Raise `StoreError` if another program changed the main file: offsets would be wrong."""
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
            "release the session and open it again to continue with its present content"
        )


def encode_entries(writer: RecordWriter, entries: Sequence[Entry]) -> None:
    """Add entries to a writer.

    Raises:
        StoreError: An entry cannot be written as JSON.
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
    """Return the offset in the main file after a record; 0 without one."""
    return 0 if record is None else record.end
