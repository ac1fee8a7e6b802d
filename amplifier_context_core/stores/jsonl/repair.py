"""Repair what `scan` found: quarantine damaged bytes, correct the files, report what was done."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain

import orjson

from ..protocol import Repair
from .archive import Archive, ArchiveContents, edit_record
from .checkpoint import covered_count
from .file_ops import FileOps, chunks, open_file, read_at, size_of, write_all
from .index import BLANK, RecordWriter, read_spans
from .journal import Operation
from .paths import SessionFiles
from .scan import BadRange, Cause, ScanReport


def quarantine(files: SessionFiles, file_ops: FileOps, source: str, pieces: Iterable[tuple[int, bytes]]) -> str:
    """Append damaged bytes to the quarantine file, each with a header line of time, file and offset.

    Returns:
        The path of the quarantine file; empty if there were no bytes.
    """
    rest = iter(pieces)
    first = next(rest, None)
    if first is None:
        return ""
    path = files.path("damaged")
    descriptor = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    size = size_of(descriptor)
    try:
        for offset, data in chain([first], rest):
            header = {"found": datetime.now(UTC).isoformat(), "file": source, "offset": offset, "bytes": len(data)}
            write_all(descriptor, orjson.dumps(header) + b"\n" + data + b"\n")
        file_ops.sync(descriptor)
    except BaseException:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)
    file_ops.sync_folder(files.folder)
    return path


def bad_bytes(main: int, bad_ranges: Sequence[BadRange]) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of bad ranges with their offsets."""
    for bad_range in bad_ranges:
        yield bad_range.offset, read_at(main, bad_range.offset, bad_range.length)


class RepairPlan:
    """Plans the operations that repair a session's files."""

    def __init__(self, files: SessionFiles, file_ops: FileOps, archive: Archive, findings: ScanReport) -> None:
        self._files, self._file_ops, self._archive, self._report = files, file_ops, archive, findings

    def operations(self, main: int | None) -> list[Operation]:
        """Return the operations. Large files are written beside the old ones first."""
        report = self._report
        writer = RecordWriter("", report.trusted, report.trusted_main_end)
        operations: list[Operation] = []
        if main is None or self._damage_is_at_end():
            end = report.records[-1].end if report.records else report.trusted_main_end
            ends_unterminated = bool(report.records) and report.records[-1].offset in report.unterminated
            for record in report.records[:-1]:
                writer.index_lines.append(record.encode())
            if report.records:
                writer.index_lines.append(
                    report.records[-1]._replace(length=report.records[-1].length + ends_unterminated).encode()
                )
            if main is not None and (ends_unterminated or end != size_of(main)):
                operations.append(Operation("write", "main", end, b"\n" if ends_unterminated else b""))
        else:
            self._file_ops.write_new(self._files.main, self._rewritten_main(main, writer))
            operations.append(Operation("rename", "main"))
        return [*operations, *self._index_operations(writer), *self._other_operations()]

    def _damage_is_at_end(self) -> bool:
        """True if all damage of the main file comes after its last message."""
        report = self._report
        end = report.records[-1].end if report.records else report.trusted_main_end
        inner = report.unterminated - ({report.records[-1].offset} if report.records else set())
        return not inner and all(bad_range.offset >= end for bad_range in report.bad_ranges)

    def _rewritten_main(self, main: int, writer: RecordWriter) -> Iterator[bytes]:
        """Yield the main file without its bad ranges, and add the index lines to `writer`."""
        report = self._report
        yield from chunks(main, 0, report.trusted_main_end)
        size = size_of(main)
        for record, span in read_spans(main, size, report.records):
            line = span.strip(BLANK) + b"\n"
            record = record._replace(offset=writer.offset, length=len(line))
            writer.index_lines.append(record.encode())
            writer.offset = record.end
            yield line

    def _index_operations(self, writer: RecordWriter) -> list[Operation]:
        if self._report.trusted:
            return [Operation("write", "index", self._report.trusted_index_end, b"".join(writer.index_lines))]
        self._file_ops.write_new(self._files.path("index"), writer.index_lines)
        return [Operation("rename", "index")]

    def _other_operations(self) -> list[Operation]:
        report = self._report
        operations: list[Operation] = []
        archive = self._archive.committed()
        if report.max_seq > max(
            archive.last_seq, report.history_max_seq
        ):  # otherwise the highest seq would be assigned again
            record = edit_record(report.trusted + len(report.records), report.max_seq, 0)
            operations.append(Operation("write", "archive", archive.end, record))
        # Without an index the changes are unknown. Then loading compares the checkpoint with the record it was saved
        # at.
        if report.has_index and covered_count(self._files.path("checkpoint")) > report.unchanged_count:
            operations.append(Operation("delete", "checkpoint"))
        return operations


ADOPTED = "adopted"  # the action for messages that the index does not know


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, the action that repairs it, and the number of messages lost."""

    problem: str
    action: str
    lost: int = 0
    quarantined: bool = False


def findings_of(name: str, report: ScanReport) -> list[Finding]:
    """Return what is wrong with a main file or its index."""
    findings = [*_byte_findings(name, report), *_message_findings(name, report)]
    if report.lost:
        # The loss is reported once: with the first damage that can have cost messages.
        for number, finding in enumerate(findings):
            if finding.lost:
                findings[number] = replace(finding, lost=report.lost)
                findings[number + 1 :] = [replace(other, lost=0) for other in findings[number + 1 :]]
                break
        else:
            gone = f"{_number(report.lost, 'message')} that the index knows ({_marks(report.missing_seqs)})"
            findings.append(Finding(f"{gone} {_are(report.lost)} not in {name}", "continuing without", report.lost))
    else:
        findings = [replace(note, lost=0) for note in findings]
    return findings


def _byte_findings(name: str, report: ScanReport) -> Iterator[Finding]:
    def ranges(*kinds: Cause) -> tuple[int, str]:
        chosen = [bad_range for bad_range in report.bad_ranges if bad_range.cause in kinds]
        first = min((cut.offset for cut in chosen), default=0)
        return len(chosen), f"{sum(cut.length for cut in chosen):,} bytes of {name}, from byte {first:,} on,"

    count, where = ranges("unreadable", "zeros")
    if count:
        yield Finding(f"{where} are damaged", "quarantined", 1, quarantined=True)
    count, where = ranges("unfinished")
    if count:
        yield Finding(f"{where} are an unfinished line", "quarantined", 1, quarantined=True)
    count, where = ranges("twice")
    if count:
        yield Finding(f"{where} repeat what is before them", "quarantined", quarantined=True)
    count, where = ranges("line end")
    if count:
        yield Finding(f"{_number(count, 'line end')} of {name} {_are(count)} damaged", "repaired", quarantined=True)


def _message_findings(name: str, report: ScanReport) -> Iterator[Finding]:
    count = len(report.changed)
    if count:
        which = f"{_number(count, 'message')} of {name} ({_marks(report.changed)})"
        yield Finding(f"{which} {_are(count)} not as written", "kept as read")
    if report.unreadable_index_lines:
        yield Finding(
            f"{_number(report.unreadable_index_lines, 'line')} of the index of {name} cannot be read", "rebuilt"
        )
    count = len(report.adopted)
    if count:
        how = "that its index does not know" if report.has_index else "without an index"
        yield Finding(f"{name} holds {_number(count, 'message')} {how}", ADOPTED)


def index_mismatch(name: str) -> Finding:
    """Return the finding for an index that does not match an otherwise intact main file."""
    return Finding(f"the index of {name} does not match it", "rebuilt")


def describe_damage(contents: ArchiveContents) -> str:
    """Describe the damage of an archive; empty if there is none."""
    count = len(contents.damaged)
    return f"{_number(count, 'line')} of the archive {_are(count)} damaged" if count else ""


def repairs_made(session_id: str, files: SessionFiles, report: ScanReport, quarantined_at: str) -> list[Repair]:
    """Return one repair for each finding."""
    findings = findings_of(files.name, report) or [index_mismatch(files.name)]
    return [
        Repair(
            session_id,
            f"{finding.problem}; {finding.action}",
            finding.lost,
            quarantined_at if finding.quarantined else "",
        )
        for finding in findings
    ]


def remove_leftovers(files: SessionFiles) -> None:
    """Remove files that were written beside others and never renamed."""
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
