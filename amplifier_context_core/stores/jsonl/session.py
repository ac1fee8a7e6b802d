"""The one writer of a session: what it may be asked, and what is done when the answer is that something is damaged.

Appends go to the tail (`tail`). All other changes are edits (`edits`): written down in the pending file
first, done from that moment on, and then carried out. Damage that is found by reading is mended (`mend`) before
the read goes on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from ...errors import StoreError
from ...transcript import Entry
from ..checks import check_within
from ..protocol import Durability, Extent, Repair, places
from .archive import Archive
from .checkpoint import CheckpointDamaged, Saved, encode, load, saved_at
from .claim import Claim
from .disk import Disk, read_at, reading, remove, size_of
from .edits import Edits
from .files import ERASED, SessionFiles
from .history import History
from .index import IndexDamaged, Row
from .look import stands
from .mend import Mending, erase_leftovers, pieces_of, put_aside, repairs_of
from .pending import Edit, Pending, Step
from .repair import examine
from .tail import Tail

log = logging.getLogger(__name__)

_TRIES = 4  # repairs of one session in one call; more than one is rare, endless ones are a bug
_Answer = TypeVar("_Answer")


class Session:
    """A session that is claimed by this process.

    Attributes:
        files: where it is.
        tail: where it goes on.
    """

    def __init__(
        self,
        files: SessionFiles,
        durability: Durability,
        *,
        archive: bool,
        tell: Callable[[Repair], None],
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
        self._disk = Disk(durability == "fsync")
        self._tell = tell
        self._archive = Archive(files.session_id, files.path("archive"), self._disk)
        self._pending = Pending(files, self._disk)
        self._edits = Edits(files, self._disk, self._archive, archives=archive)
        self.tail = Tail(files, self._disk, self._pending, holds=durability == "none")
        self._unfinished: Edit | None = None  # an edit that is done but could not be carried out yet
        self._claim = _claimed(files, self._disk)
        try:
            if not to_delete:
                self._begin()
        except BaseException:
            self.tail.close()
            self._give_back()
            raise

    # -- asking -----------------------------------------------------------------------------------------------------

    @property
    def is_there(self) -> bool:
        """Is there anything of it?"""
        return self.tail.is_there

    @property
    def is_unfinished(self) -> bool:
        """Is the last edit written down, but could not be carried out?"""
        return self._unfinished is not None

    def extent(self) -> Extent:
        """How long it is."""
        self._catch_up()
        return Extent(self.tail.lines.place, self.tail.last_seq)

    def history(self) -> History:
        """What there is, everything written."""
        self._catch_up()
        self.tail.write_held()
        return self.tail.history()

    def read(self, start: int, stop: int | None) -> list[Entry]:
        """The entries of these places; damage among them is mended, and they are fewer."""

        def rows(history: History) -> list[Row]:
            wanted = places(history.length, start, stop)
            return list(history.rows(wanted.start, wanted.stop))

        return self._entries(rows)

    def find(self, seqs: Sequence[int]) -> list[Entry]:
        """The entries of these seqs."""
        return self._entries(lambda history: history.find_rows(seqs))

    def _entries(self, rows: Callable[[History], list[Row]]) -> list[Entry]:
        wanted = self.sound(rows)
        found, damaged = self.history().read(iter(wanted))
        if damaged:
            self._mend(frozenset(row.place for row in damaged))
            seqs = [row.seq for row in damaged]
            left, _ = self.history().read(iter(self.sound(lambda history: history.find_rows(seqs))))
            mended = {entry.seq: entry for entry in left if entry is not None}
            found = [entry or mended.get(row.seq) for entry, row in zip(found, wanted, strict=True)]
        return [entry for entry in found if entry is not None]

    def sound(self, ask: Callable[[History], _Answer]) -> _Answer:
        """Ask the history; if its index turns out to be damaged, mend it and ask again."""
        for _ in range(_TRIES):
            try:
                return ask(self.history())
            except IndexDamaged:
                self._mend()
        raise StoreError(f"session {self.files.session_id!r}: its index is damaged again and again; see to the disk")

    def archived(self) -> list[Entry]:
        """What the archive holds."""
        self._catch_up()
        return self._archive.entries()

    def load_checkpoint(self) -> Saved | None:
        """The checkpoint, if it is whole and stands for what the history holds; otherwise it is put aside."""
        self._catch_up()
        path = self.files.path("checkpoint")
        try:
            saved = load(path)
            if saved is None or self.sound(lambda history: stands(saved, history)):
                return saved
            why = "stands for messages that are not there any more"
        except CheckpointDamaged:
            why = "is damaged"
        with reading(path) as descriptor:
            data = b"" if descriptor is None else read_at(descriptor, 0, size_of(descriptor))
        kept = put_aside(self.files, self._disk, os.path.basename(path), [(0, data)])
        remove(path)
        self._tell(Repair(self.files.session_id, f"the checkpoint {why}; put aside", 0, kept))
        return None

    # -- changing ---------------------------------------------------------------------------------------------------

    def write(self, batches: Sequence[Sequence[Entry]]) -> None:
        """The first half of an append; it is synced and settled at the tail."""
        self._catch_up()
        self.tail.write(batches)

    def replace(self, keep: int, entries: Sequence[Entry]) -> None:
        """Keep the first entries, archive the others, and go on with these."""

        def steps(history: History) -> list[Step]:
            check_within(self.files.session_id, keep, history.length)
            if keep == history.length:
                return []
            self.tail.check_alone()
            return self._edits.replacing(history, keep, entries, self.tail.last_seq, self._spoilt)

        made = self.sound(steps)
        if made:
            self._edit(made)
        elif entries:
            self.write([entries])
            self.tail.settle(self.tail.sync())

    def rewrite(self, entries: Sequence[Entry]) -> None:
        """Put entries in place of those of the same seqs, here and in the archive."""
        new = {entry.seq: entry for entry in entries}

        def steps(history: History) -> list[Step]:
            self.tail.check_alone()
            return self._edits.rewriting(history, new)

        self._edit(self.sound(steps))

    def save_checkpoint(self, covered: int, data: bytes) -> None:
        """Put a checkpoint in the place of the one before."""

        def row(history: History) -> Row | None:
            check_within(self.files.session_id, covered, history.length)
            return history.row(covered - 1) if covered else None

        saved = saved_at(self.sound(row), data)
        self._disk.sync(self.tail.make()[1].descriptor)
        self._disk.write_new(self.files.path("checkpoint"), encode(saved))
        self._edit([Step("move", "checkpoint")])

    def begin_as(self, history: History, count: int, last_seq: int, checkpoint: Saved | None) -> None:
        """Begin, with nothing there yet, as another session did.

        Raises:
            IndexDamaged: the other is damaged.
        """
        self._edit(self._edits.beginning(history, count, last_seq, checkpoint))

    def _spoilt(self, row: Row, span: bytes) -> None:
        kept = put_aside(self.files, self._disk, self.files.name, [(row.offset, span)])
        self._tell(Repair(self.files.session_id, f"m{row.seq} is damaged, and was to be archived; put aside", 1, kept))

    def _edit(self, steps: Sequence[Step]) -> None:
        """Do all of this. From the moment it is written down it is done, even if carrying it out has to wait."""
        if not steps:
            return
        edit = Edit(steps)
        try:
            self.tail.begin_pending(edit)
        except BaseException:
            for take_back in (self._archive.cut, lambda: erase_leftovers(self.files)):
                with suppress(OSError):
                    take_back()
            raise
        self._unfinished = edit
        try:
            self._catch_up()
        except OSError as problem:
            log.warning(
                "session %r: an edit is written down but cannot be carried out yet (%s); the next call does that",
                self.files.session_id,
                problem.strerror,
            )

    def _catch_up(self) -> None:
        """Do first what could not be done before."""
        self.tail.take_back()
        if self._unfinished is not None:
            self._pending.carry_out(self._unfinished)
            self._pending.end(surely=True)
            self._unfinished = None
            self._load()

    # -- opening and mending ----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        edit = self._pending.found()
        if edit is not None:
            self._pending.carry_out(edit)
            self._pending.end(surely=True)
        erase_leftovers(self.files)
        self._load()

    def _load(self) -> None:
        """Open the files, and learn from them where the history goes on."""
        for _ in range(_TRIES):
            self.tail.open()
            if self.tail.learn(self._archive.committed()[1]):
                return
            self._mend_files()
        raise StoreError(f"session {self.files.session_id!r} cannot be mended; see to the disk, and copy it elsewhere")

    def _mend(self, bad: frozenset[int] = frozenset()) -> None:
        """Make the files right, of which some places cannot be read; trust nothing they say."""
        self.tail.open()
        self._mend_files(bad, all_of_it=True)
        self._load()

    def _mend_files(self, bad: frozenset[int] = frozenset(), *, all_of_it: bool = False) -> None:
        main, index = self.tail.main, self.tail.index
        last_seq = max(self.tail.last_seq, self._archive.committed()[1])
        session_id = self.files.session_id
        found = examine(
            main, size_of(main), index, session_id=session_id, last_seq=last_seq, bad=bad, all_of_it=all_of_it
        )
        pieces = iter(()) if main is None else pieces_of(main, found.cuts)
        kept = put_aside(self.files, self._disk, self.files.name, pieces)
        edit = Edit(Mending(self.files, self._disk, self._archive, found).steps(main))
        self._pending.begin(edit)
        self._pending.carry_out(edit)
        self._pending.end(surely=True)
        for repair in repairs_of(self.files.session_id, self.files, found, kept):
            self._tell(repair)

    # -- the end ----------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Write everything, and give the claim back.

        Raises:
            OSError: what was kept back cannot be written; the session is still claimed.
        """
        with suppress(OSError):  # what is left undone is done when the session is opened next
            self._catch_up()
        try:
            self.tail.write_held()
        except StoreError as problem:
            log.warning("%s; messages that were not on disk yet are lost", problem)
        if self.tail.index is not None:
            with suppress(OSError):  # it can be made anew
                self._disk.sync(self.tail.index.descriptor)
        if self._unfinished is None:
            with suppress(OSError):  # it is empty
                self._pending.remove()
        self.tail.close()
        self._give_back()

    def abandon(self) -> None:
        """Give the claim back, whatever is left undone."""
        with suppress(OSError, StoreError):
            self._catch_up()
            self.tail.write_held()
        self.tail.close()
        with suppress(OSError):
            erase_leftovers(self.files)
        with suppress(OSError):
            self._give_back()

    def delete(self) -> None:
        """Erase all of it, and give the claim back."""
        self.tail.close()
        edit = Edit([Step("drop", part) for part in ERASED])
        with suppress(OSError):  # on a full disk this cannot be written down, and makes room all the same
            self._pending.begin(edit)
        self._pending.carry_out(edit)
        erase_leftovers(self.files)
        self._pending.remove()
        self._disk.sync_folder(self.files.folder)
        self._give_back()

    def _give_back(self) -> None:
        empty = not os.path.lexists(self.files.main)
        self._claim.release(forget=empty)
        if empty and self.files.own_folder:
            with suppress(OSError):  # something else is in it
                os.rmdir(self.files.folder)


def _claimed(files: SessionFiles, disk: Disk) -> Claim:
    """The claim on a session; its folder is made for the lock."""
    for _ in range(_TRIES):
        disk.make_folder(files.folder)
        with suppress(FileNotFoundError):  # whoever had an empty session gives it back, folder and all
            return Claim(files)
    raise StoreError(f"session {files.session_id!r}: {files.folder} is removed again and again; see who does that")
