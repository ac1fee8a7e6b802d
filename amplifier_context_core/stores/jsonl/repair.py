"""Mending what `scan` found: damaged bytes are put aside, the files made right, and all of it said."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain

import orjson

from ..protocol import Repair
from .archive import Archive, ArchiveContents, record_of
from .checkpoint import covered_by
from .file_ops import FileOps, chunks, open_file, read_at, size_of, write_all
from .index import BLANK, RecordWriter, spans
from .journal import Operation
from .paths import SessionFiles
from .scan import BadRange, Cause, ScanReport


def put_aside(files: SessionFiles, disk: FileOps, source: str, pieces: Iterable[tuple[int, bytes]]) -> str:
    """Keep damaged bytes, each with a line that says when and where they were found; gives where. Nothing: empty."""
    rest = iter(pieces)
    first = next(rest, None)
    if first is None:
        return ""
    path = files.path("damaged")
    descriptor = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    size = size_of(descriptor)
    try:
        for offset, data in chain([first], rest):
            head = {"found": datetime.now(UTC).isoformat(), "file": source, "offset": offset, "bytes": len(data)}
            write_all(descriptor, orjson.dumps(head) + b"\n" + data + b"\n")
        disk.sync(descriptor)
    except BaseException:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)
    disk.sync_folder(files.folder)
    return path


def pieces_of(main: int, cuts: Sequence[BadRange]) -> Iterator[tuple[int, bytes]]:
    """The bytes of cuts, with where they begin."""
    for cut in cuts:
        yield cut.offset, read_at(main, cut.offset, cut.length)


class RepairPlan:
    """The steps that make a session's files right again."""

    def __init__(self, files: SessionFiles, disk: FileOps, archive: Archive, findings: ScanReport) -> None:
        self._files, self._disk, self._archive, self._found = files, disk, archive, findings

    def steps(self, main: int | None) -> list[Operation]:
        """What is to be done; large files are written beside the old ones first."""
        found = self._found
        lines = RecordWriter("", found.kept, found.kept_end)
        steps: list[Operation] = []
        if main is None or self._only_at_the_end():
            end = found.rows[-1].end if found.rows else found.kept_end
            unended = bool(found.rows) and found.rows[-1].offset in found.unended
            for row in found.rows[:-1]:
                lines.index.append(row.encode())
            if found.rows:
                lines.index.append(found.rows[-1]._replace(length=found.rows[-1].length + unended).encode())
            if main is not None and (unended or end != size_of(main)):
                steps.append(Operation("put", "main", end, b"\n" if unended else b""))
        else:
            self._disk.write_new(self._files.main, self._rewritten(main, lines))
            steps.append(Operation("move", "main"))
        return [*steps, *self._index_steps(lines), *self._other_steps()]

    def _only_at_the_end(self) -> bool:
        """Does everything that is wrong with the main file come after its last message?"""
        found = self._found
        end = found.rows[-1].end if found.rows else found.kept_end
        inner = found.unended - ({found.rows[-1].offset} if found.rows else set())
        return not inner and all(cut.offset >= end for cut in found.cuts)

    def _rewritten(self, main: int, lines: RecordWriter) -> Iterator[bytes]:
        """The main file without what belongs to no message; `lines` gets its index."""
        found = self._found
        yield from chunks(main, 0, found.kept_end)
        size = size_of(main)
        for row, span in spans(main, size, found.rows):
            line = span.strip(BLANK) + b"\n"
            row = row._replace(offset=lines.offset, length=len(line))
            lines.index.append(row.encode())
            lines.offset = row.end
            yield line

    def _index_steps(self, lines: RecordWriter) -> list[Operation]:
        if self._found.kept:
            return [Operation("put", "index", self._found.kept_position, b"".join(lines.index))]
        self._disk.write_new(self._files.path("index"), lines.index)
        return [Operation("move", "index")]

    def _other_steps(self) -> list[Operation]:
        found = self._found
        steps: list[Operation] = []
        archive = self._archive.committed()
        if found.top > max(archive.last_seq, found.held):  # or the highest seq would be given again
            record = record_of(found.kept + len(found.rows), found.top, 0)
            steps.append(Operation("put", "archive", archive.end, record))
        # Without an index nobody knows what changed: then the checkpoint is held against the line it was saved at.
        if found.indexed and covered_by(self._files.path("checkpoint")) > found.unchanged:
            steps.append(Operation("drop", "checkpoint"))
        return steps


ADOPTED = "adopted"  # what is done with messages that no index knows


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: what was found, what mending does about it, and what it costs."""

    found: str
    done: str
    lost: int = 0
    aside: bool = False


def notes_of(name: str, found: ScanReport) -> list[Finding]:
    """What is wrong with the main file of this name, or its index."""
    notes = [*_notes_of_bytes(name, found), *_notes_of_messages(name, found)]
    if found.lost:
        # Told once: with the first damage that can have cost messages.
        for place, note in enumerate(notes):
            if note.lost:
                notes[place] = replace(note, lost=found.lost)
                notes[place + 1 :] = [replace(other, lost=0) for other in notes[place + 1 :]]
                break
        else:
            gone = f"{_number(found.lost, 'message')} that the index knows ({_marks(found.gone)})"
            notes.append(Finding(f"{gone} {_are(found.lost)} not in {name}", "gone on without", found.lost))
    else:
        notes = [replace(note, lost=0) for note in notes]
    return notes


def _notes_of_bytes(name: str, found: ScanReport) -> Iterator[Finding]:
    def cuts(*kinds: Cause) -> tuple[int, str]:
        chosen = [cut for cut in found.cuts if cut.why in kinds]
        first = min((cut.offset for cut in chosen), default=0)
        return len(chosen), f"{sum(cut.length for cut in chosen):,} bytes of {name}, from byte {first:,} on,"

    count, where = cuts("unreadable", "zeros")
    if count:
        yield Finding(f"{where} are damaged", "put aside", 1, aside=True)
    count, where = cuts("unfinished")
    if count:
        yield Finding(f"{where} are a line that was not finished", "put aside", 1, aside=True)
    count, where = cuts("twice")
    if count:
        yield Finding(f"{where} repeat what is before them", "put aside", aside=True)
    count, where = cuts("line end")
    if count:
        yield Finding(f"{_number(count, 'line end')} of {name} {_are(count)} damaged", "mended", aside=True)


def _notes_of_messages(name: str, found: ScanReport) -> Iterator[Finding]:
    count = len(found.changed)
    if count:
        which = f"{_number(count, 'message')} of {name} ({_marks(found.changed)})"
        yield Finding(f"{which} {_are(count)} not as written", "kept as read")
    if found.garbled:
        yield Finding(f"{_number(found.garbled, 'line')} of the index of {name} cannot be read", "made anew")
    count = len(found.adopted)
    if count:
        how = "that its index does not know" if found.indexed else "without an index"
        yield Finding(f"{name} holds {_number(count, 'message')} {how}", ADOPTED)


def misfit(name: str) -> Finding:
    """What is wrong where all messages are there, and not where the index has them."""
    return Finding(f"the index of {name} does not fit it", "made anew")


def damaged_lines(contents: ArchiveContents) -> str:
    """What is wrong with an archive, in words; empty if nothing is."""
    count = len(contents.damaged)
    return f"{_number(count, 'line')} of the archive {_are(count)} damaged" if count else ""


def repairs_of(session_id: str, files: SessionFiles, found: ScanReport, kept: str) -> list[Repair]:
    """What was found and done, a line each."""
    notes = notes_of(files.name, found) or [misfit(files.name)]
    return [Repair(session_id, f"{note.found}; {note.done}", note.lost, kept if note.aside else "") for note in notes]


def erase_leftovers(files: SessionFiles) -> None:
    """Remove files that were written beside others and never got their place."""
    for part in ("main", "index", "archive", "checkpoint", "owner"):
        with suppress(FileNotFoundError):
            os.unlink(f"{files.path(part)}.new")


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _marks(seqs: Iterable[int]) -> str:
    first = sorted(seqs)
    return ", ".join([f"m{seq}" for seq in first[:5]] + ["…"] * (len(first) > 5))


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
