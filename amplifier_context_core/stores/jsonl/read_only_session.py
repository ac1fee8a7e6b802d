"""A session as somebody sees it who has not claimed it: read only, damage left out, while another process may write."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from ...errors import StoreError
from ...transcript.transcript import Entry
from ..protocol import Extent, index_range
from .archive import Archive
from .checkpoint import CheckpointDamaged, SavedCheckpoint, load_checkpoint
from .file_ops import FileOps, exists, open_for_reading, size_of
from .index import Index, IndexDamaged, IndexRecord
from .indexed_history import IndexedHistory, open_if_consistent
from .lock import lock_holder
from .paths import SessionFiles
from .scan import ScanReport, scan

_MAX_OPEN_ATTEMPTS = 5  # looks at a session that is being changed, before what does not fit is taken for damage
_Result = TypeVar("_Result")


class ReadOnlySession:
    """One look at the files of a session."""

    def __init__(self, files: SessionFiles, main: int | None, index: Index | None) -> None:
        self.files = files
        self._main = main
        self._index = index
        self._size = size_of(main)  # after the index's: a writer lets the main file be ahead, never the index
        self._history: IndexedHistory | None = None
        self._file_states = self._current_file_states()
        self._skipped_damage = False
        self._archive = Archive(files.session_id, files.path("archive"), FileOps(durable=False))

    @property
    def exists(self) -> bool:
        """Is there such a session?"""
        return self._main is not None

    @property
    def is_consistent(self) -> bool:
        """Does the index, by its last line, say all there is?"""
        opened = open_if_consistent(self._main, self._size, self._index)
        if opened is not None:
            self._history = opened[0]
            self._history.session_id = self.files.session_id
        return opened is not None

    def history(self) -> IndexedHistory:
        """What there is."""
        if self._history is None and not self.is_consistent:
            self._history = self.history_of(self.scan())
        if self._history is None:
            raise StoreError(f"session {self.files.session_id!r} cannot be read")
        return self._history

    def scan(self, *, full: bool = False) -> ScanReport:
        """All that can be found out."""
        last_seq = self._archive.committed().last_seq
        session_id = self.files.session_id
        return scan(self._main, self._size, self._index, session_id=session_id, last_seq=last_seq, full=full)

    def history_of(self, report: ScanReport) -> IndexedHistory:
        """What there is, as findings say."""
        return report.history(self.files.session_id, self._main, self._size, self._index)

    def extent(self) -> Extent:
        """How long it is."""
        history = self.history()
        return Extent(history.length, max(history.max_seq, self._archive.committed().last_seq))

    def read(self, start: int, stop: int | None) -> list[Entry]:
        """The entries of these places that can be read."""

        def read(history: IndexedHistory) -> list[Entry]:
            wanted = index_range(history.length, start, stop)
            return self._readable(history, history.records(wanted.start, wanted.stop))

        return self.with_intact_history(read)

    def find(self, seqs: Sequence[int]) -> list[Entry]:
        """The entries of these seqs that can be read."""
        return self.with_intact_history(lambda history: self._readable(history, iter(history.find_records(seqs))))

    @property
    def is_outdated(self) -> bool:
        """Was something left out because the files are not any more what they were?"""
        return self._skipped_damage and self._file_states != self._current_file_states()

    def _readable(self, history: IndexedHistory, records: Iterator[IndexRecord]) -> list[Entry]:
        found, damaged = history.read(records)
        self._skipped_damage = self._skipped_damage or bool(damaged)
        return [entry for entry in found if entry is not None]

    def _current_file_states(self) -> list[tuple[int, int, int]]:
        there = [os.lstat(path) for path in (self.files.main, self.files.path("index")) if exists(path)]
        return [(one.st_ino, one.st_size, one.st_mtime_ns) for one in there]

    def archived(self) -> list[Entry]:
        """What the archive holds."""
        return self._archive.read().entries

    def load_checkpoint(self) -> SavedCheckpoint | None:
        """The checkpoint, if it is whole and stands for what the history holds."""
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
        """Ask the history; if its index turns out to be damaged, do without what that says."""
        try:
            return query(self.history())
        except IndexDamaged:
            self._history = self.history_of(self.scan(full=True))
            return query(self._history)


def covers_history(checkpoint: SavedCheckpoint, history: IndexedHistory) -> bool:
    """Does a checkpoint stand for entries that are all there?"""
    if checkpoint.covered > history.length:
        return False
    return checkpoint.matches(history.record(checkpoint.covered - 1) if checkpoint.covered else None)


@contextmanager
def open_read_only(files: SessionFiles) -> Generator[ReadOnlySession]:
    """A look at a session, its files closed afterwards. One that is being changed this moment is looked at again."""
    with ExitStack() as opened:
        attempts_left = _MAX_OPEN_ATTEMPTS
        while True:
            descriptor = opened.enter_context(open_for_reading(files.path("index")))
            index = None if descriptor is None else Index(descriptor, size_of(descriptor))
            session = ReadOnlySession(files, opened.enter_context(open_for_reading(files.main)), index)
            attempts_left -= 1
            if session.is_consistent or not attempts_left or not lock_holder(files):
                break
            opened.close()
            time.sleep(0.003)
        yield session
