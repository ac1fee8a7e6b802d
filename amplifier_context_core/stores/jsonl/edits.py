"""Plan edits: replace the end of a history, rewrite entries, begin as a fork of another session.

A plan is a list of operations for the redo journal. Large files are written beside the files that they will replace.
Planning changes no existing file except the archive, whose new lines count only once an operation adds the edit record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...transcript.entry import Entry
from ..codec import encode_extra, message_json
from .appender import encode_entries, end_offset
from .archive import Archive, ArchiveContents, archived_line, edit_record, rewritten_line
from .checkpoint import SavedCheckpoint, checkpoint_at, covered_count, encode_checkpoint
from .file_ops import FileOps, exists
from .index import BLANK, Index, IndexDamaged, IndexRecord, RecordWriter, crc_of, decode_record, read_spans
from .indexed_history import IndexedHistory
from .journal import Operation
from .paths import SessionFiles

OnDamaged = Callable[[IndexRecord, bytes], None]


class EditPlanner:
    """Plans the edits of one session."""

    def __init__(self, files: SessionFiles, file_ops: FileOps, archive: Archive, *, keeps_archive: bool) -> None:
        self._files, self._file_ops, self._archive, self._keeps_archive = files, file_ops, archive, keeps_archive

    # -- replacing --------------------------------------------------------------------------------------------------

    def plan_replace(
        self, history: IndexedHistory, keep: int, entries: Sequence[Entry], last_seq: int, on_damaged: OnDamaged
    ) -> list[Operation]:
        """Keep the first entries, archive the others, and continue with new ones.

        Args:
            history: The current history.
            keep: Number of entries to keep.
            entries: The new entries.
            last_seq: The highest seq ever assigned.
            on_damaged: Called with each damaged entry, which cannot be archived.
        """
        last_kept = history.record(keep - 1) if keep else None
        writer = RecordWriter.after(history.session_id, last_kept)
        encode_entries(writer, entries)
        replaced, index_offset = list(history.records(keep)), history.index_offset_of(keep)
        retained_seqs = {entry.seq for entry in entries}
        removed = [record for record in replaced if record.seq not in retained_seqs]
        last_seq = max(last_seq, writer.max_seq)
        archive_end = self._archive.stage(_archive_lines(history, removed, on_damaged) if self._keeps_archive else ())
        operations = [
            Operation("write", "archive", archive_end, edit_record(keep, last_seq, len(removed))),
            Operation("write", "main", end_offset(last_kept), b"".join(writer.main_lines)),
            Operation("write", "index", index_offset, b"".join(writer.index_lines)),
        ]
        if covered_count(self._files.path("checkpoint")) > keep:
            operations.append(Operation("delete", "checkpoint"))
        return operations

    # -- rewriting --------------------------------------------------------------------------------------------------

    def plan_rewrite(self, history: IndexedHistory, replacements: dict[int, Entry]) -> list[Operation]:
        """Replace entries by new ones with the same seqs, in the history and in the archive.

        Token counts are patched in place where they fit. Quarantined bytes are deleted with every erased message,
        because their content is unknown. They are deleted as well if a seq is not found, or none is given: the message
        may be among them.
        """
        records = history.find_records(list(replacements))
        contents = self._archive.read()
        archived_entries = {entry.seq: entry for entry in contents.entries if entry.seq in replacements}
        rewrites_main, differs = _compared(history, records, replacements)
        differs = differs or any(entry.message != replacements[seq].message for seq, entry in archived_entries.items())
        if not replacements or replacements.keys() - archived_entries.keys() - {record.seq for record in records}:
            differs = differs or exists(self._files.path("damaged"))
        operations: list[Operation] = []
        if archived_entries or (differs and contents.size > contents.end):
            self._file_ops.write_new(self._files.path("archive"), self._rewritten_archive(contents, replacements))
            operations.append(Operation("rename", "archive"))
        if rewrites_main:
            operations += self._rewrite_main_and_index(history, replacements)
        elif records and history.index is not None:
            patches = self._patch_index(history.index, records, replacements)
            if patches is None:
                self._file_ops.write_new(self._files.path("index"), self._rewritten_index(history, replacements))
            operations += [Operation("rename", "index")] if patches is None else patches
        if differs:
            operations += [Operation("delete", "checkpoint"), Operation("delete", "damaged")]
        return operations

    def _rewritten_archive(self, contents: ArchiveContents, replacements: dict[int, Entry]) -> Iterator[bytes]:
        for line, entry in contents.lines:
            changes = entry is not None and entry.seq in replacements
            yield rewritten_line(line, replacements[entry.seq], self._files.session_id) if entry and changes else line

    def _rewrite_main_and_index(self, history: IndexedHistory, replacements: dict[int, Entry]) -> list[Operation]:
        writer = RecordWriter(history.session_id)
        self._file_ops.write_new(self._files.main, _rewritten_main(history, replacements, writer))
        self._file_ops.write_new(self._files.path("index"), writer.index_lines)
        return [Operation("rename", "main"), Operation("rename", "index")]

    def _rewritten_index(self, history: IndexedHistory, replacements: dict[int, Entry]) -> Iterator[bytes]:
        for record in history.records():
            yield (
                self._updated_record(replacements[record.seq], record) if record.seq in replacements else record
            ).encode()

    def _updated_record(self, entry: Entry, record: IndexRecord) -> IndexRecord:
        extra = encode_extra(entry, self._files.session_id) or None
        return record._replace(turn=entry.turn, tokens=entry.tokens, extra=extra)

    def _patch_index(
        self, index: Index, records: Sequence[IndexRecord], replacements: dict[int, Entry]
    ) -> list[Operation] | None:
        """Return patches for index lines; None if a new line is longer than the old one."""
        wanted = {record.entry_index for record in records}
        offset = index.offset_of(min(wanted))
        runs: list[tuple[int, list[bytes]]] = []  # adjacent lines, with the offset of the first
        is_adjacent = False
        for entry_index in range(min(wanted), max(wanted) + 1):
            record, end = index.record_at(offset)
            if entry_index in wanted:
                line = self._updated_record(replacements[record.seq], record).encode().rstrip()
                if len(line) >= end - offset:
                    return None
                if not is_adjacent:
                    runs.append((offset, []))
                runs[-1][1].append(line.ljust(end - offset - 1) + b"\n")
            is_adjacent = entry_index in wanted
            offset = end
        return [Operation("patch", "index", start, b"".join(lines)) for start, lines in runs]

    # -- forking ----------------------------------------------------------------------------------------------------

    def plan_fork(
        self, history: IndexedHistory, count: int, last_seq: int, checkpoint: SavedCheckpoint | None
    ) -> list[Operation]:
        """Begin a new session with the entries of another one.

        Args:
            history: The history of the other session.
            count: Number of entries to copy.
            last_seq: The highest seq ever assigned in the other session.
            checkpoint: The checkpoint of the other session; copied if it covers no more than `count` entries.
        """
        writer = RecordWriter(self._files.session_id)
        self._file_ops.write_new(self._files.main, _copied_main(history, count, writer))
        self._file_ops.write_new(self._files.path("index"), writer.index_lines)
        operations = [Operation("rename", "index")]
        if last_seq > writer.max_seq:
            operations.append(Operation("write", "archive", 0, edit_record(count, last_seq, 0)))
        if checkpoint is not None and checkpoint.covered <= writer.entry_index:
            record = decode_record(writer.index_lines[checkpoint.covered - 1]) if checkpoint.covered else None
            self._file_ops.write_new(
                self._files.path("checkpoint"), encode_checkpoint(checkpoint_at(record, checkpoint.data))
            )
            operations.append(Operation("rename", "checkpoint"))
        return [*operations, Operation("rename", "main")]  # last: the session exists once its main file does


def _archive_lines(history: IndexedHistory, removed: Sequence[IndexRecord], on_damaged: OnDamaged) -> Iterator[bytes]:
    for record, span in _read_spans(history, iter(removed)):
        if crc_of(span) == record.crc:
            yield archived_line(record, span.strip(BLANK))
        else:
            on_damaged(record, span)


def _compared(
    history: IndexedHistory, records: Sequence[IndexRecord], replacements: dict[int, Entry]
) -> tuple[bool, bool]:
    """Return whether the main file must be rewritten, and whether the content of any message changes."""
    found, _ = history.read(iter(records))
    rewrites_main = differs = False
    for record, old in zip(records, found, strict=True):
        entry = replacements[record.seq]
        differs = differs or old is None or old.message != entry.message
        rewrites_main = rewrites_main or old is None or message_json(old.message) != message_json(entry.message)
    return rewrites_main, differs


def _rewritten_main(history: IndexedHistory, replacements: dict[int, Entry], writer: RecordWriter) -> Iterator[bytes]:
    """Yield the lines of the main file with the replacements, and add their index lines to `writer`."""
    for record, span in _read_spans(history, history.records()):
        if record.seq in replacements:
            encode_entries(writer, [replacements[record.seq]])
        else:
            _add_intact(writer, record, span, record.extra)
        yield writer.main_lines.pop()


def _copied_main(history: IndexedHistory, count: int, writer: RecordWriter) -> Iterator[bytes]:
    """Yield the first lines of the main file for a fork, and add their index lines to `writer`."""
    origin: dict[str, Any] = {"session_id": history.session_id}
    for record, span in _read_spans(history, history.records(0, count)):
        _add_intact(writer, record, span, origin if record.extra is None else {**origin, **record.extra})
        yield writer.main_lines.pop()


def _add_intact(writer: RecordWriter, record: IndexRecord, span: bytes, extra: dict[str, Any] | None) -> None:
    if crc_of(span) != record.crc:
        raise IndexDamaged  # repair first: a copy would have a valid checksum over damaged bytes
    writer.add_json(span.strip(BLANK), record.seq, record.turn, record.tokens, extra)


def _read_spans(history: IndexedHistory, records: Iterator[IndexRecord]) -> Iterator[tuple[IndexRecord, bytes]]:
    return iter(()) if history.main is None else read_spans(history.main, history.size, records)
