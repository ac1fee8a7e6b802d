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
from .archive import Archive, ArchiveContents, record_of
from .checkpoint import CheckpointDamaged, SavedCheckpoint, encode, load, saved_at
from .edits import EditPlanner
from .file_ops import FileOps, exists, read_at, reading, remove, size_of
from .index import IndexDamaged, IndexRecord
from .indexed_history import IndexedHistory
from .journal import Operation, RedoJournal, Transaction
from .lock import SessionLock
from .paths import ERASED, SessionFiles
from .read_only_session import stands
from .repair import RepairPlan, damaged_lines, erase_leftovers, pieces_of, put_aside, repairs_of
from .scan import examine

log = logging.getLogger(__name__)

_TRIES = 4  # repairs of one session in one call; more than one is rare, endless ones are a bug
_Answer = TypeVar("_Answer")


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
        self._disk = FileOps(durability == "fsync")
        self._tell = tell
        self._archive = Archive(files.session_id, files.path("archive"), self._disk)
        self._pending = RedoJournal(files, self._disk)
        self._edits = EditPlanner(files, self._disk, self._archive, archives=archive)
        self._holds = durability == "none"
        self._tail: Appender | None = None  # None: the files must be loaded
        self._unfinished: Transaction | None = None  # done but not carried out yet; then there is no tail
        self._last_seq = 0  # the highest seq ever given, as far as is known while there is no tail
        self._claim = _claimed(files, self._disk)
        try:
            if not to_delete:
                self._unfinished = self._pending.found()
                self._loaded()
                if self._archive.committed().damaged:
                    self._sound_archive()
        except BaseException:
            self._unload()
            self._give_back()
            raise

    # -- asking -----------------------------------------------------------------------------------------------------

    @property
    def is_there(self) -> bool:
        """True if there is anything of it.

        Raises:
            OSError: it must be loaded to know that, and cannot be.
        """
        return self._loaded().is_there

    @property
    def is_unfinished(self) -> bool:
        """True if the last edit is written down, and is not carried out yet."""
        return self._unfinished is not None

    def extent(self) -> Extent:
        """How long it is."""
        tail = self._loaded()
        return Extent(tail.lines.place, tail.last_seq)

    def history(self) -> IndexedHistory:
        """What there is, everything written."""
        tail = self._loaded()
        tail.write_held()
        return tail.history()

    def read(self, start: int, stop: int | None) -> list[Entry]:
        """The entries of these places; damage among them is mended, and they are fewer."""

        def rows(history: IndexedHistory) -> list[IndexRecord]:
            wanted = index_range(history.length, start, stop)
            return list(history.rows(wanted.start, wanted.stop))

        return self._entries(rows)

    def find(self, seqs: Sequence[int]) -> list[Entry]:
        """The entries of these seqs."""
        return self._entries(lambda history: history.find_rows(seqs))

    def _entries(self, rows: Callable[[IndexedHistory], list[IndexRecord]]) -> list[Entry]:
        wanted = self.sound(rows)
        found, damaged = self.history().read(iter(wanted))
        if damaged:
            self._mend(frozenset(row.place for row in damaged))
            seqs = [row.seq for row in damaged]
            left, _ = self.history().read(iter(self.sound(lambda history: history.find_rows(seqs))))
            mended = {entry.seq: entry for entry in left if entry is not None}
            found = [entry or mended.get(row.seq) for entry, row in zip(found, wanted, strict=True)]
        return [entry for entry in found if entry is not None]

    def sound(self, ask: Callable[[IndexedHistory], _Answer]) -> _Answer:
        """Ask the history; if its index turns out to be damaged, mend it and ask again."""
        for _ in range(_TRIES):
            try:
                return ask(self.history())
            except IndexDamaged:
                self._mend()
        raise StoreError(f"session {self.files.session_id!r}: its index is damaged again and again; see to the disk")

    def archived(self) -> list[Entry]:
        """What the archive holds; damage in it is mended first."""
        return self._sound_archive().entries

    def _sound_archive(self) -> ArchiveContents:
        tail = self._loaded()
        contents = self._archive.read()
        if contents.damaged:
            path = self.files.path("archive")
            kept = put_aside(self.files, self._disk, os.path.basename(path), contents.damaged)
            record = record_of(tail.lines.place, max(tail.last_seq, contents.last_seq), 0)
            self._disk.write_new(path, [*(line.data for line in contents.lines), record])
            self._edit([Operation("move", "archive")])
            self._tell(Repair(self.files.session_id, f"{damaged_lines(contents)}; put aside", 0, kept))
            self._loaded()
            contents = self._archive.read()
        return contents

    def load_checkpoint(self) -> SavedCheckpoint | None:
        """The checkpoint, if it is whole and stands for what the history holds; otherwise it is put aside."""
        self._loaded()
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

    def write(self, batches: Sequence[Sequence[Entry]]) -> Appender:
        """The first half of an append; it is synced and settled at the tail that this returns."""
        tail = self._loaded()
        tail.write(batches)
        return tail

    def write_held(self) -> None:
        """Write what was kept back."""
        self._loaded().write_held()

    def replace(self, keep: int, entries: Sequence[Entry]) -> None:
        """Keep the first entries, archive the others, and go on with these."""

        def steps(history: IndexedHistory) -> list[Operation]:
            check_index(self.files.session_id, keep, history.length)
            if keep == history.length:
                return []
            tail = self._loaded()
            tail.check_alone()
            return self._edits.replacing(history, keep, entries, tail.last_seq, self._spoilt)

        made = self.sound(steps)
        if made:
            self._edit(made)
        elif entries:
            tail = self.write([entries])
            tail.settle(tail.sync())

    def rewrite(self, entries: Sequence[Entry]) -> None:
        """Put entries in place of those of the same seqs, here and in the archive.

        Raises:
            NotErased: they are in place, but what they replace is not erased from every file yet.
        """
        new = {entry.seq: entry for entry in entries}

        def steps(history: IndexedHistory) -> list[Operation]:
            self._loaded().check_alone()
            return self._edits.rewriting(history, new)

        self._sound_archive()
        made = self.sound(steps)
        had_damage = exists(self.files.path("damaged"))
        self._edit(made)
        erases = any(step.part == "damaged" for step in made)
        if erases and had_damage:
            what = "the damaged bytes that were put aside are erased: what they say cannot be told"
            self._tell(Repair(self.files.session_id, what))
        if erases and self._unfinished is not None:
            raise NotErased(
                f"session {self.files.session_id!r}: the messages were replaced, but what they said is not erased from "
                "every file yet; see that its folder can be written, and make the same call again"
            )

    def save_checkpoint(self, covered: int, data: bytes) -> None:
        """Put a checkpoint in the place of the one before."""

        def row(history: IndexedHistory) -> IndexRecord | None:
            check_index(self.files.session_id, covered, history.length)
            return history.row(covered - 1) if covered else None

        saved = saved_at(self.sound(row), data)
        self._disk.sync(self._loaded().make()[1].descriptor)
        self._disk.write_new(self.files.path("checkpoint"), encode(saved))
        self._edit([Operation("move", "checkpoint")])

    def begin_as(self, history: IndexedHistory, count: int, last_seq: int, checkpoint: SavedCheckpoint | None) -> None:
        """Begin, with nothing there yet, as another session did.

        Raises:
            IndexDamaged: the other is damaged.
        """
        self._edit(self._edits.beginning(history, count, last_seq, checkpoint))

    def _spoilt(self, row: IndexRecord, span: bytes) -> None:
        kept = put_aside(self.files, self._disk, self.files.name, [(row.offset, span)])
        self._tell(Repair(self.files.session_id, f"m{row.seq} is damaged, and was to be archived; put aside", 1, kept))

    def _edit(self, steps: Sequence[Operation]) -> None:
        """Do all of this. From the moment it is written down it is done, even if carrying it out has to wait."""
        if not steps:
            return
        edit = Transaction(steps)
        try:
            self._pending.begin(edit)
        except BaseException:
            for take_back in (self._archive.cut, lambda: erase_leftovers(self.files)):
                with suppress(OSError):
                    take_back()
            raise
        self._unload()
        self._unfinished = edit
        try:
            self._loaded()
        except (OSError, StoreError) as problem:
            log.warning(
                "session %r: an edit is written down but cannot be carried out yet (%s); the next call does that",
                self.files.session_id,
                problem.strerror if isinstance(problem, OSError) else problem,
            )

    # -- loading and mending ----------------------------------------------------------------------------------------

    def _loaded(self) -> Appender:
        """Return the tail, after all that an earlier call left undone. The only way to it.

        Raises:
            OSError: something is still undone, or the files cannot be opened; the next call tries again.
            StoreError: another program changed the files, or they cannot be mended.
        """
        if self._tail is not None:
            self._tail.take_back()
            return self._tail
        self._pending.strike_out()
        self._carry_out()
        self._tail = self._load()
        return self._tail

    def _unload(self) -> None:
        """Close the files; they must be loaded before anything else is asked."""
        tail, self._tail = self._tail, None
        if tail is not None:
            self._last_seq = max(self._last_seq, tail.last_seq)
            tail.close()

    def _carry_out(self) -> None:
        """Carry out the edit that is written down, if there is one."""
        if self._unfinished is not None:
            self._pending.carry_out(self._unfinished)
            self._pending.end(surely=True)
            self._unfinished = None

    def _load(self, bad: frozenset[int] = frozenset(), *, trusting: bool = True) -> Appender:
        """Open the files, and learn from them where the history goes on.

        Args:
            bad: places that cannot be read.
            trusting: what the ends of the files say is enough where it fits; otherwise they are examined and mended.
        """
        erase_leftovers(self.files)
        for _ in range(_TRIES):
            tail = Appender(self.files, self._disk, self._pending, holds=self._holds)
            try:
                last_seq = max(self._last_seq, self._archive.committed().last_seq)
                if trusting and tail.learn(last_seq):
                    return tail
                self._mend_files(tail, last_seq, bad, all_of_it=not trusting)
            except BaseException:
                tail.close()
                raise
            tail.close()
            bad, trusting = frozenset(), True
        raise StoreError(f"session {self.files.session_id!r} cannot be mended; see to the disk, and copy it elsewhere")

    def _mend(self, bad: frozenset[int] = frozenset()) -> None:
        """Make the files right, of which some places cannot be read; trust nothing they say."""
        self._unload()
        self._tail = self._load(bad, trusting=False)

    def _mend_files(self, tail: Appender, last_seq: int, bad: frozenset[int], *, all_of_it: bool) -> None:
        main, session_id = tail.main, self.files.session_id
        found = examine(
            main, size_of(main), tail.index, session_id=session_id, last_seq=last_seq, bad=bad, all_of_it=all_of_it
        )
        pieces = iter(()) if main is None else pieces_of(main, found.cuts)
        kept = put_aside(self.files, self._disk, self.files.name, pieces)
        edit = Transaction(RepairPlan(self.files, self._disk, self._archive, found).steps(main))
        self._pending.begin(edit)
        self._unfinished = edit
        for repair in repairs_of(session_id, self.files, found, kept):
            self._tell(repair)
        self._carry_out()

    # -- the end ----------------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Write everything, and give the claim back.

        Raises:
            OSError: what was kept back cannot be written, or what was refused cannot be cut off; the session is still
                claimed. So a session that was released holds what was acknowledged, and nothing else.
        """
        with suppress(OSError, StoreError):  # an edit that is written down is carried out by the next opening, too
            self._loaded()
        try:
            self._pending.strike_out()
            if self._tail is not None:
                self._tail.take_back()
                self._tail.write_held()
                self._tail.sync_index()
        except StoreError as problem:
            log.warning("%s; messages that were not on disk yet are lost", problem)
        if self._unfinished is None:
            with suppress(OSError):  # it is empty
                self._pending.remove()
        self._unload()
        self._give_back()

    def abandon(self) -> None:
        """Give the claim back, whatever is left undone."""
        with suppress(OSError, StoreError):
            self._loaded().write_held()
        self._unload()
        with suppress(OSError):
            self._give_back()

    def delete(self) -> None:
        """Erase all of it, and give the claim back. What fails half way is carried on by the next call."""
        self._unload()
        self._unfinished = Transaction([Operation("drop", part) for part in ERASED])
        with suppress(OSError):  # on a full disk this cannot be written down, and makes room all the same
            self._pending.begin(self._unfinished)
        self._pending.carry_out(self._unfinished)
        erase_leftovers(self.files)
        self._pending.remove()
        self._disk.sync_folder(self.files.folder)
        self._unfinished = None
        self._give_back()

    def _give_back(self) -> None:
        empty = False
        with suppress(OSError):
            empty = not exists(self.files.main)
        self._claim.release(forget=empty)
        if empty and self.files.own_folder:
            with suppress(OSError):  # something else is in it
                os.rmdir(self.files.folder)


def _claimed(files: SessionFiles, disk: FileOps) -> SessionLock:
    """The claim on a session; its folder is made for the lock."""
    for _ in range(_TRIES):
        disk.make_folder(files.folder)
        with suppress(FileNotFoundError):  # whoever had an empty session gives it back, folder and all
            return SessionLock(files)
    raise StoreError(f"session {files.session_id!r}: {files.folder} is removed again and again; see who does that")
