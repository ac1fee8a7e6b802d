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
from .file_ops import FileOps, breathe, close, keep_private, open_file, open_if_there, size_of, write_all
from .index import Index, IndexDamaged, IndexRecord, RecordWriter
from .indexed_history import IndexedHistory, fits
from .journal import Operation, RedoJournal, Transaction
from .paths import SessionFiles
from .scan import RECENT

_HELD = 64 * 1024  # bytes kept back at most where nothing is promised of them
_FLAGS = os.O_RDWR | os.O_APPEND


class _Uncommitted(NamedTuple):
    """What an append has written and is not part of the history yet."""

    lines: RecordWriter
    whole: bool  # it stands in the pending file too
    came_before: bool
    sizes: tuple[int, int]


class Appender:
    """Where a history goes on.

    Attributes:
        main: descriptor of the main file; None while there is no such file.
        index: the index, likewise.
        lines: place, offset and highest seq up to here.
        last_seq: the highest seq ever given.
    """

    def __init__(self, files: SessionFiles, disk: FileOps, pending: RedoJournal, *, holds: bool) -> None:
        """Open the files there are. Nothing may be asked of it before `learn` has returned True.

        Args:
            files: the session's.
            disk: writes them.
            pending: where a batch is written down that must be atomic.
            holds: keep small appends in memory until they are worth a write.

        Raises:
            OSError: one of the files cannot be opened.
        """
        self._files, self._disk, self._pending, self._holds = files, disk, pending, holds
        self.main: int | None = None
        self.index: Index | None = None
        self.lines = RecordWriter(files.session_id)
        self.last_seq = 0
        self._written = (0, 0)  # bytes of the main file and of the index that are in the files
        self._is_refused = False  # a write failed: the files may hold more than `_written`
        self._is_named = False  # the folder was synced since the files were made
        self._held: list[RecordWriter] = []
        self._under_way: _Uncommitted | None = None
        self._place: tuple[int, int] | None = None  # of the main file that is open: its device, and its number there
        self._recent: dict[int, int] | None = None  # checksums of the last messages, and the place of each
        try:
            self.main = open_if_there(files.main, _FLAGS)
            if self.main is not None and files.own_folder:
                keep_private(self.main)
            descriptor = open_if_there(files.path("index"), _FLAGS)
            if descriptor is not None:
                self.index = Index(descriptor, 0)
                self.index.size = size_of(descriptor)
        except BaseException:
            self.close()
            raise

    @property
    def is_there(self) -> bool:
        """True if there is a main file, or anything is kept back to be written to it."""
        return self.main is not None or bool(self._held)

    def history(self) -> IndexedHistory:
        """What the files hold; what is kept back must be written before."""
        last = self.lines
        return IndexedHistory(
            last.session_id, self.main, last.offset, self.index, last.place, top=last.top, rising=last.rising
        )

    # -- opening ----------------------------------------------------------------------------------------------------

    def learn(self, last_seq: int) -> bool:
        """Learn from the open files where the history goes on; False if they do not fit each other."""
        found = fits(self.main, size_of(self.main), self.index)
        if found is None:
            return False
        history, last = found
        self.lines = RecordWriter.after(self._files.session_id, last)
        size = 0 if history.index is None else history.index.size
        if self.index is not None and self.index.size != size:  # its last line is torn
            os.ftruncate(self.index.descriptor, size)
            self.index.size = size
        self.last_seq = max(last_seq, self.lines.top)
        self._written = (history.size, size)
        self._is_named = history.size > 0  # the folder is synced before the first message is written
        return True

    def make(self) -> tuple[int, Index]:
        """Have both files open; a session begins to be there when the main file is."""
        if self.main is None:
            self._disk.make_folder(self._files.folder)
            self.main = open_file(self._files.main, _FLAGS | os.O_CREAT)
        if self.index is None:
            self.index = Index(open_file(self._files.path("index"), _FLAGS | os.O_CREAT), 0)
        if not self._is_named:
            os.ftruncate(self.index.descriptor, self._written[1])
            self._disk.sync_folder(self._files.folder)
            self._is_named = True
        return self.main, self.index

    def close(self) -> None:
        """Close the files. Nothing may be asked of it any more."""
        close(self.main)
        close(None if self.index is None else self.index.descriptor)
        self.main = self.index = None

    # -- writing ----------------------------------------------------------------------------------------------------

    def write(self, batches: Sequence[Sequence[Entry]]) -> None:
        """The first half of an append: what is written is not there until it is settled."""
        lines = self.lines.continued()
        for entries in batches:
            encode_entries(lines, entries)
        if self._holds:
            self._hold(lines)
        else:
            self._put([lines], whole=any(len(entries) > 1 for entries in batches))

    def begin_sync(self) -> None:
        """Have what was written begin to reach the disk, and not wait for it."""
        if self._under_way is not None and self.main is not None:
            begin = self._written[0]
            self._disk.begin_sync(self.main, begin, self._under_way.sizes[0] - begin)

    def sync(self) -> OSError | None:
        """Have on disk what was written; what went wrong. Other threads may do this, for many sessions at once."""
        if self._under_way is None or self.main is None or self.index is None:
            return None
        try:
            if self._under_way.came_before:
                # Like one of the last: without its index line it could be taken for a damage of the file system.
                self._disk.sync(self.index.descriptor)
            self._disk.sync(self.main)
        except OSError as problem:
            return problem
        return None

    def sync_index(self) -> None:
        """Have the index on disk, too, as far as that can be: it can be made anew from the main file."""
        if self.index is not None:
            with suppress(OSError):
                self._disk.sync(self.index.descriptor)

    def settle(self, problem: OSError | None) -> None:
        """Make what was written part of the history, or take it back and raise why."""
        if self._under_way is None:
            return
        done, self._under_way = self._under_way, None
        if problem is not None:
            self._fail(pending_too=done.whole)
            raise problem
        self._written = done.sizes
        if done.whole:
            with suppress(OSError):  # it is carried out; found again, it does no harm
                self._pending.end(surely=False)
        self._go_on_after(done.lines)

    def write_held(self) -> None:
        """Write what was kept back."""
        if self._held:
            now = self.lines
            self._put(self._held, whole=False)
            self.settle(self.sync())
            self._held, self.lines = [], now

    def _hold(self, lines: RecordWriter) -> None:
        """Keep entries in memory until enough have come together."""
        self._held.append(lines)
        if lines.offset - self._written[0] >= _HELD:
            try:
                self.write_held()
            except BaseException:
                self._held.pop()
                raise
        self._go_on_after(lines)

    def _go_on_after(self, lines: RecordWriter) -> None:
        self.last_seq = max(self.last_seq, lines.top)
        self.lines = lines.continued()

    def _put(self, parts: Sequence[RecordWriter], *, whole: bool) -> None:
        """Write lines into the files, or raise with the files as they were."""
        at_main, at_index = self._written
        crcs = [crc for lines in parts for crc in lines.crcs]
        came = self._disk.durable and self._came_before(crcs)
        whole = whole or (came and len(crcs) > 1)  # or, cut off before their index lines, some may pass for the last's
        main = b"".join(chain.from_iterable(lines.main for lines in parts))
        text = b"".join(chain.from_iterable(lines.index for lines in parts))
        descriptor, index = self.make()
        self.check_alone()
        if whole:
            steps = [Operation("put", "main", at_main, main), Operation("put", "index", at_index, text)]
            self._pending.begin(Transaction(steps, grows=True))
        try:
            write_all(descriptor, main)
            write_all(index.descriptor, text)
        except BaseException:
            self._fail(pending_too=whole)
            raise
        index.size += len(text)
        self._under_way = _Uncommitted(parts[-1], whole, came, (at_main + len(main), at_index + len(text)))

    def _came_before(self, crcs: Sequence[int]) -> bool:
        """Is one of these messages like one of the last?"""
        last = self.lines.place
        if self._recent is None:
            self._recent = {}
            with suppress(IndexDamaged):
                self._recent = {row.crc: row.place for row in self.history().rows(max(0, last - RECENT))}
        came = False
        for place, crc in enumerate(crcs, last):
            came = came or self._recent.get(crc, -RECENT - 1) >= place - RECENT
            self._recent[crc] = place
        if len(self._recent) > 4 * RECENT:
            newest = last + len(crcs) - RECENT
            self._recent = {crc: place for crc, place in self._recent.items() if place >= newest}
        return came

    # -- when it fails ----------------------------------------------------------------------------------------------

    def take_back(self) -> None:
        """Cut off what a refused append left in the files. Comes before anything else is asked or done.

        The files are opened again, too: what never reached the disk may look written through the old descriptors.

        Raises:
            OSError: it cannot be cut off yet.
            StoreError: another program removed or replaced a file.
        """
        if self._is_refused:
            self._recent = None
            if self.main is not None and size_of(self.main) > self._written[0]:
                os.ftruncate(self.main, self._written[0])
            if self.index is not None:
                os.ftruncate(self.index.descriptor, self._written[1])
            self.main = self._opened_again(self.main, self._files.main)
            kept = None if self.index is None else self.index.descriptor
            descriptor = self._opened_again(kept, self._files.path("index"))
            self.index = None if descriptor is None else Index(descriptor, self._written[1])
            self._is_refused = False
        self._pending.strike_out()

    def _opened_again(self, descriptor: int | None, path: str) -> int | None:
        """Open a file again and close its old descriptor, which stays open where that fails.

        Raises:
            OSError: it cannot be opened.
            StoreError: it is not there any more, or is another file.
        """
        found = open_if_there(path, _FLAGS)
        if descriptor is None:
            return found
        try:
            if found is None:
                raise self._changed("removed", path)
            if _place(os.fstat(found)) != _place(os.fstat(descriptor)):
                raise self._changed("replaced", path)
        except BaseException:
            close(found)
            raise
        close(descriptor)
        return found

    def _fail(self, *, pending_too: bool) -> None:
        """Take back what was written, now or, where that fails too, before anything else is done."""
        self._is_refused = True
        if pending_too:
            self._pending.refuse()
        with suppress(OSError):
            self.take_back()

    def check_alone(self) -> None:
        """Raise if somebody else changed the main file: what we add would not be where we think."""
        if self.main is None:
            return
        if self._place is None:
            self._place = _place(os.fstat(self.main))
        try:
            there = os.lstat(self._files.main)
        except FileNotFoundError:
            raise self._changed("removed", self._files.main) from None
        if _place(there) != self._place:
            raise self._changed("replaced", self._files.main)
        if there.st_size != self._written[0]:
            raise self._changed("wrote to", self._files.main)

    def _changed(self, did: str, path: str) -> StoreError:
        return StoreError(
            f"session {self._files.session_id!r}: another program {did} {path}, and nothing was written over it; "
            "release the session and open it again, then what it holds now is taken over"
        )


def encode_entries(lines: RecordWriter, entries: Sequence[Entry]) -> None:
    """Add entries to lines.

    Raises:
        StoreError: JSON cannot hold one of them.
    """
    for entry in entries:
        breathe()
        try:
            lines.add(entry)
        except (TypeError, ValueError, RecursionError) as problem:
            raise StoreError(
                f"{entry.mark} of session {lines.session_id!r} cannot be written as JSON ({type(problem).__name__}); "
                "nothing was stored"
            ) from None


def _place(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def end_of(row: IndexRecord | None) -> int:
    """Where in the main file a row ends; 0 for none."""
    return 0 if row is None else row.end
