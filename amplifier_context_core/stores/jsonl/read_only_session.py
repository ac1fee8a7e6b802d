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
from .checkpoint import CheckpointDamaged, SavedCheckpoint, load
from .file_ops import FileOps, exists, reading, size_of
from .index import Index, IndexDamaged, IndexRecord
from .indexed_history import IndexedHistory, fits
from .lock import holder_of
from .paths import SessionFiles
from .scan import ScanReport, examine

_TRIES = 5  # looks at a session that is being changed, before what does not fit is taken for damage
_Answer = TypeVar("_Answer")


class ReadOnlySession:
    """One look at the files of a session."""

    def __init__(self, files: SessionFiles, main: int | None, index: Index | None) -> None:
        self.files = files
        self._main = main
        self._index = index
        self._size = size_of(main)  # after the index's: a writer lets the main file be ahead, never the index
        self._history: IndexedHistory | None = None
        self._state = self._files_now()
        self._left_out = False
        self._archive = Archive(files.session_id, files.path("archive"), FileOps(durable=False))

    @property
    def is_there(self) -> bool:
        """Is there such a session?"""
        return self._main is not None

    @property
    def fits(self) -> bool:
        """Does the index, by its last line, say all there is?"""
        found = fits(self._main, self._size, self._index)
        if found is not None:
            self._history = found[0]
            self._history.session_id = self.files.session_id
        return found is not None

    def history(self) -> IndexedHistory:
        """What there is."""
        if self._history is None and not self.fits:
            self._history = self.history_of(self.examine())
        if self._history is None:
            raise StoreError(f"session {self.files.session_id!r} cannot be read")
        return self._history

    def examine(self, *, all_of_it: bool = False) -> ScanReport:
        """All that can be found out."""
        last_seq = self._archive.committed().last_seq
        session_id = self.files.session_id
        return examine(
            self._main, self._size, self._index, session_id=session_id, last_seq=last_seq, all_of_it=all_of_it
        )

    def history_of(self, found: ScanReport) -> IndexedHistory:
        """What there is, as findings say."""
        return found.history(self.files.session_id, self._main, self._size, self._index)

    def extent(self) -> Extent:
        """How long it is."""
        history = self.history()
        return Extent(history.length, max(history.top, self._archive.committed().last_seq))

    def read(self, start: int, stop: int | None) -> list[Entry]:
        """The entries of these places that can be read."""

        def read(history: IndexedHistory) -> list[Entry]:
            wanted = index_range(history.length, start, stop)
            return self._readable(history, history.rows(wanted.start, wanted.stop))

        return self.sound(read)

    def find(self, seqs: Sequence[int]) -> list[Entry]:
        """The entries of these seqs that can be read."""
        return self.sound(lambda history: self._readable(history, iter(history.find_rows(seqs))))

    @property
    def is_outdated(self) -> bool:
        """Was something left out because the files are not any more what they were?"""
        return self._left_out and self._state != self._files_now()

    def _readable(self, history: IndexedHistory, rows: Iterator[IndexRecord]) -> list[Entry]:
        found, damaged = history.read(rows)
        self._left_out = self._left_out or bool(damaged)
        return [entry for entry in found if entry is not None]

    def _files_now(self) -> list[tuple[int, int, int]]:
        there = [os.lstat(path) for path in (self.files.main, self.files.path("index")) if exists(path)]
        return [(one.st_ino, one.st_size, one.st_mtime_ns) for one in there]

    def archived(self) -> list[Entry]:
        """What the archive holds."""
        return self._archive.read().entries

    def load_checkpoint(self) -> SavedCheckpoint | None:
        """The checkpoint, if it is whole and stands for what the history holds."""
        try:
            saved = load(self.files.path("checkpoint"))
        except CheckpointDamaged:
            return None
        return saved if saved is not None and self.sound(lambda history: stands(saved, history)) else None

    def sound(self, ask: Callable[[IndexedHistory], _Answer]) -> _Answer:
        """Ask the history; if its index turns out to be damaged, do without what that says."""
        try:
            return ask(self.history())
        except IndexDamaged:
            self._history = self.history_of(self.examine(all_of_it=True))
            return ask(self._history)


def stands(saved: SavedCheckpoint, history: IndexedHistory) -> bool:
    """Does a checkpoint stand for entries that are all there?"""
    if saved.covered > history.length:
        return False
    return saved.stands_for(history.row(saved.covered - 1) if saved.covered else None)


@contextmanager
def looking(files: SessionFiles) -> Generator[ReadOnlySession]:
    """A look at a session, its files closed afterwards. One that is being changed this moment is looked at again."""
    with ExitStack() as opened:
        left = _TRIES
        while True:
            descriptor = opened.enter_context(reading(files.path("index")))
            index = None if descriptor is None else Index(descriptor, size_of(descriptor))
            look = ReadOnlySession(files, opened.enter_context(reading(files.main)), index)
            left -= 1
            if look.fits or not left or not holder_of(files):
                break
            opened.close()
            time.sleep(0.003)
        yield look
