"""The steps of edits: replacing the end of a history, rewriting entries of it, beginning as another one did.

What is large is written beside the files it shall replace; the rest stands in the steps. Nothing that is in place is
touched here, but for the archive, whose new lines count only once a step has put their record after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...transcript.transcript import Entry
from ..codec import encode_extra, message_json
from .appender import encode_entries, end_of
from .archive import Archive, ArchiveContents, archived_line, record_of, rewritten_line
from .checkpoint import SavedCheckpoint, covered_by, encode, saved_at
from .file_ops import FileOps, exists
from .index import BLANK, Index, IndexDamaged, IndexRecord, RecordWriter, crc_of, decode, spans
from .indexed_history import IndexedHistory
from .journal import Operation
from .paths import SessionFiles

OnDamaged = Callable[[IndexRecord, bytes], None]


class EditPlanner:
    """Makes the steps of edits of one session."""

    def __init__(self, files: SessionFiles, disk: FileOps, archive: Archive, *, archives: bool) -> None:
        self._files, self._disk, self._archive, self._archives = files, disk, archive, archives

    # -- replacing --------------------------------------------------------------------------------------------------

    def replacing(
        self, history: IndexedHistory, keep: int, entries: Sequence[Entry], last_seq: int, spoilt: OnDamaged
    ) -> list[Operation]:
        """Keep the first entries, archive the others, and go on with these.

        Args:
            history: what there is.
            keep: how many stay as they are.
            entries: what comes then.
            last_seq: the highest seq ever given.
            spoilt: told of entries that are damaged and cannot be archived.
        """
        before = history.row(keep - 1) if keep else None
        lines = RecordWriter.after(history.session_id, before)
        encode_entries(lines, entries)
        old, position = list(history.rows(keep)), history.position(keep)
        staying = {entry.seq for entry in entries}
        leaving = [row for row in old if row.seq not in staying]
        last_seq = max(last_seq, lines.top)
        end = self._archive.add(_archive_lines(history, leaving, spoilt) if self._archives else ())
        steps = [
            Operation("put", "archive", end, record_of(keep, last_seq, len(leaving))),
            Operation("put", "main", end_of(before), b"".join(lines.main)),
            Operation("put", "index", position, b"".join(lines.index)),
        ]
        if covered_by(self._files.path("checkpoint")) > keep:
            steps.append(Operation("drop", "checkpoint"))
        return steps

    # -- rewriting --------------------------------------------------------------------------------------------------

    def rewriting(self, history: IndexedHistory, new: dict[int, Entry]) -> list[Operation]:
        """Put entries in place of those of the same seqs, in the history and in the archive.

        Counts are written over the old ones where they fit. Damaged bytes that were put aside go with what is erased:
        what they say cannot be told. So they do where a seq is not found, or none is given: it may be among them.
        """
        rows = history.find_rows(list(new))
        contents = self._archive.read()
        archived = {entry.seq: entry for entry in contents.entries if entry.seq in new}
        anew, differs = _compared(history, rows, new)
        differs = differs or any(entry.message != new[seq].message for seq, entry in archived.items())
        if not new or new.keys() - archived.keys() - {row.seq for row in rows}:
            differs = differs or exists(self._files.path("damaged"))
        steps: list[Operation] = []
        if archived or (differs and contents.size > contents.end):
            self._disk.write_new(self._files.path("archive"), self._archive_anew(contents, new))
            steps.append(Operation("move", "archive"))
        if anew:
            steps += self._all_anew(history, new)
        elif rows and history.index is not None:
            fitting = self._in_place(history.index, rows, new)
            if fitting is None:
                self._disk.write_new(self._files.path("index"), self._index_anew(history, new))
            steps += [Operation("move", "index")] if fitting is None else fitting
        if differs:
            steps += [Operation("drop", "checkpoint"), Operation("drop", "damaged")]
        return steps

    def _archive_anew(self, contents: ArchiveContents, new: dict[int, Entry]) -> Iterator[bytes]:
        for line, entry in contents.lines:
            changes = entry is not None and entry.seq in new
            yield rewritten_line(line, new[entry.seq], self._files.session_id) if entry and changes else line

    def _all_anew(self, history: IndexedHistory, new: dict[int, Entry]) -> list[Operation]:
        lines = RecordWriter(history.session_id)
        self._disk.write_new(self._files.main, _main_anew(history, new, lines))
        self._disk.write_new(self._files.path("index"), lines.index)
        return [Operation("move", "main"), Operation("move", "index")]

    def _index_anew(self, history: IndexedHistory, new: dict[int, Entry]) -> Iterator[bytes]:
        for row in history.rows():
            yield (self._row_of(new[row.seq], row) if row.seq in new else row).encode()

    def _row_of(self, entry: Entry, row: IndexRecord) -> IndexRecord:
        extra = encode_extra(entry, self._files.session_id) or None
        return row._replace(turn=entry.turn, tokens=entry.tokens, extra=extra)

    def _in_place(self, index: Index, rows: Sequence[IndexRecord], new: dict[int, Entry]) -> list[Operation] | None:
        """Index lines to be written over the old ones; None if one does not fit."""
        wanted = {row.place for row in rows}
        begin = index.position(min(wanted))
        runs: list[tuple[int, list[bytes]]] = []  # lines that follow one another, and where the first begins
        follows = False
        for place in range(min(wanted), max(wanted) + 1):
            row, end = index.row_at(begin)
            if place in wanted:
                line = self._row_of(new[row.seq], row).encode().rstrip()
                if len(line) >= end - begin:
                    return None
                if not follows:
                    runs.append((begin, []))
                runs[-1][1].append(line.ljust(end - begin - 1) + b"\n")
            follows = place in wanted
            begin = end
        return [Operation("patch", "index", start, b"".join(lines)) for start, lines in runs]

    # -- beginning --------------------------------------------------------------------------------------------------

    def beginning(
        self, history: IndexedHistory, count: int, last_seq: int, checkpoint: SavedCheckpoint | None
    ) -> list[Operation]:
        """Begin, with nothing there yet, as another session did.

        Args:
            history: the other's.
            count: how much of it.
            last_seq: the highest seq ever given there.
            checkpoint: the other's; taken over if what it stands for is.
        """
        lines = RecordWriter(self._files.session_id)
        self._disk.write_new(self._files.main, _copied(history, count, lines))
        self._disk.write_new(self._files.path("index"), lines.index)
        steps = [Operation("move", "index")]
        if last_seq > lines.top:
            steps.append(Operation("put", "archive", 0, record_of(count, last_seq, 0)))
        if checkpoint is not None and checkpoint.covered <= lines.place:
            row = decode(lines.index[checkpoint.covered - 1]) if checkpoint.covered else None
            self._disk.write_new(self._files.path("checkpoint"), encode(saved_at(row, checkpoint.data)))
            steps.append(Operation("move", "checkpoint"))
        return [*steps, Operation("move", "main")]  # last: once that is there, the session is


def _archive_lines(history: IndexedHistory, leaving: Sequence[IndexRecord], spoilt: OnDamaged) -> Iterator[bytes]:
    for row, span in _spans(history, iter(leaving)):
        if crc_of(span) == row.crc:
            yield archived_line(row, span.strip(BLANK))
        else:
            spoilt(row, span)


def _compared(history: IndexedHistory, rows: Sequence[IndexRecord], new: dict[int, Entry]) -> tuple[bool, bool]:
    """Must the main file be written anew? And does any message say something else than before?"""
    found, _ = history.read(iter(rows))
    anew = differs = False
    for row, old in zip(rows, found, strict=True):
        entry = new[row.seq]
        differs = differs or old is None or old.message != entry.message
        anew = anew or old is None or message_json(old.message) != message_json(entry.message)
    return anew, differs


def _main_anew(history: IndexedHistory, new: dict[int, Entry], lines: RecordWriter) -> Iterator[bytes]:
    """The lines of the main file with these entries in it; `lines` gets their index."""
    for row, span in _spans(history, history.rows()):
        if row.seq in new:
            encode_entries(lines, [new[row.seq]])
        else:
            _add_sound(lines, row, span, row.extra)
        yield lines.main.pop()


def _copied(history: IndexedHistory, count: int, lines: RecordWriter) -> Iterator[bytes]:
    """The lines of the first entries for another session; `lines` gets their index."""
    own: dict[str, Any] = {"session_id": history.session_id}
    for row, span in _spans(history, history.rows(0, count)):
        _add_sound(lines, row, span, own if row.extra is None else {**own, **row.extra})
        yield lines.main.pop()


def _add_sound(lines: RecordWriter, row: IndexRecord, span: bytes, extra: dict[str, Any] | None) -> None:
    if crc_of(span) != row.crc:
        raise IndexDamaged  # to be mended before it is copied, or nobody could tell any more
    lines.add_line(span.strip(BLANK), row.seq, row.turn, row.tokens, extra)


def _spans(history: IndexedHistory, rows: Iterator[IndexRecord]) -> Iterator[tuple[IndexRecord, bytes]]:
    return iter(()) if history.main is None else spans(history.main, history.size, rows)
