"""A session read without its lock: damage is skipped, and another process may write at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from ...errors import StoreError
from ...transcript.entry import Entry
from ..protocol import Extent, index_range
from ..session_lock import lock_holder
from .archive import Archive
from .checkpoint import CheckpointDamaged, SavedCheckpoint, load_checkpoint
from .file_ops import FileOps, exists, open_for_reading, size_of
from .index import Index, IndexDamaged, IndexRecord
from .indexed_history import IndexedHistory, open_if_consistent
from .paths import SessionFiles
from .scan import ScanReport, scan

# Seconds between openings of a session that is being changed; after the last, inconsistency counts as damage. An append
# is seen in part between its first and its last write: for milliseconds, or longer on a machine under load.
_OPEN_PAUSES = (0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.2)
FileStates = list[tuple[int, int, int]]  # inode, bytes and time of the last change in ns, of main file and index
_Result = TypeVar("_Result")


class ReadOnlySession:
    """A read-only view of the files of a session."""

    def __init__(self, files: SessionFiles, main: int | None, index: Index | None) -> None:
        self.files = files
        self._main = main
        self._index = index
        # read after the size of the index: a writer lets the main file be ahead, never the index
        self._size = size_of(main)
        self._history: IndexedHistory | None = None
        self.file_states = self._current_file_states()
        self._skipped_damage = False
        self._archive = Archive(files.session_id, files.path("archive"), FileOps(durable=False))

    @property
    def exists(self) -> bool:
        """True if the session exists."""
        return self._main is not None

    @property
    def is_consistent(self) -> bool:
        """True if the last index record matches the end of the main file."""
        opened = open_if_consistent(self._main, self._size, self._index)
        if opened is not None:
            self._history = opened[0]
            self._history.session_id = self.files.session_id
        return opened is not None

    def history(self) -> IndexedHistory:
        """Return the history."""
        if self._history is None and not self.is_consistent:
            self._history = self.history_of(self.scan())
        if self._history is None:
            raise StoreError(f"session {self.files.session_id!r} cannot be read")
        return self._history

    def scan(self, *, full: bool = False) -> ScanReport:
        """Scan both files for damage."""
        last_seq = self._archive.committed().last_seq
        session_id = self.files.session_id
        return scan(self._main, self._size, self._index, session_id=session_id, last_seq=last_seq, full=full)

    def history_of(self, report: ScanReport) -> IndexedHistory:
        """Return the history that a scan found."""
        return report.history(self.files.session_id, self._main, self._size, self._index)

    def extent(self) -> Extent:
        """Return the extent of the session."""
        history = self.history()
        return Extent(history.length, max(history.max_seq, self._archive.committed().last_seq))

    def read(self, start: int, stop: int | None) -> list[Entry]:
        """Return the readable entries of a range."""

        def read(history: IndexedHistory) -> list[Entry]:
            wanted = index_range(history.length, start, stop)
            return self._readable(history, history.records(wanted.start, wanted.stop))

        return self.with_intact_history(read)

    def find(self, seqs: Sequence[int]) -> list[Entry]:
        """Return the readable entries with these seqs."""
        return self.with_intact_history(lambda history: self._readable(history, iter(history.find_records(seqs))))

    @property
    def is_outdated(self) -> bool:
        """True if messages were skipped because the files changed during the read; retry with a fresh view."""
        return self._skipped_damage and self.file_states != self._current_file_states()

    def _readable(self, history: IndexedHistory, records: Iterator[IndexRecord]) -> list[Entry]:
        found, damaged = history.read(records)
        self._skipped_damage = self._skipped_damage or bool(damaged)
        return [entry for entry in found if entry is not None]

    def _current_file_states(self) -> FileStates:
        there = [os.lstat(path) for path in (self.files.main, self.files.path("index")) if exists(path)]
        return [(one.st_ino, one.st_size, one.st_mtime_ns) for one in there]

    def archived(self) -> list[Entry]:
        """Return the entries of the archive."""
        return self._archive.read().entries

    def load_checkpoint(self) -> SavedCheckpoint | None:
        """Return the checkpoint if it is intact and covers entries that exist; None otherwise."""
        try:
            checkpoint = load_checkpoint(self.files.path("checkpoint"))
        except CheckpointDamaged:
            return None
        return (
            checkpoint
            if checkpoint is not None and self.with_intact_history(lambda history: covers_history(checkpoint, history))
            else None
        )

    def with_intact_history(self, query: Callable[[IndexedHistory], _Result]) -> _Result:
        """Run a query on the history. If the index is damaged, scan the files and repeat the query."""
        try:
            return query(self.history())
        except IndexDamaged:
            self._history = self.history_of(self.scan(full=True))
            return query(self._history)


def covers_history(checkpoint: SavedCheckpoint, history: IndexedHistory) -> bool:
    """True if all entries that a checkpoint covers exist unchanged."""
    if checkpoint.covered > history.length:
        return False
    return checkpoint.matches(history.record(checkpoint.covered - 1) if checkpoint.covered else None)


@contextmanager
def open_read_only(files: SessionFiles, known: MutableMapping[str, FileStates]) -> Generator[ReadOnlySession]:
    """Open a session read-only and close its files afterwards. Retry while its writer is changing it.

    Args:
        files: of the session.
        known: states of files, by main file, that stayed inconsistent although their writer had time to go on. Such a
            state is not waited for again.
    """
    with ExitStack() as opened:
        for pause in (*_OPEN_PAUSES, None):
            descriptor = opened.enter_context(open_for_reading(files.path("index")))
            index = None if descriptor is None else Index(descriptor, size_of(descriptor))
            session = ReadOnlySession(files, opened.enter_context(open_for_reading(files.main)), index)
            states = session.file_states
            if session.is_consistent:
                known.pop(files.main, None)
            elif known.get(files.main) != states and lock_holder(files.path("lock")):
                if pause is not None:
                    opened.close()
                    time.sleep(pause)
                    continue
                known[files.main] = states
            yield session
            return
