"""Scan a damaged session: find every readable message of the main file and its seq.

The index says where messages were and what their checksums are; the main file says what is there now. Where both agree,
nothing is examined further. The gaps are read line by line:

- A line whose checksum the index knows is that message, moved.
- A message at the exact location of another is that message, changed.
- Any other message was written by another program and is adopted.
- Bytes that are no message are cut out and quarantined.

Scanning writes nothing.
"""

from __future__ import annotations

import logging
import zlib
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from ...errors import InvalidMessage
from ...messages.parsing import Message, parse_message
from ..codec import loads, message_json
from ..protocol import UNCOUNTED
from .file_ops import chunks, read_at, yield_gil
from .index import BLANK, Index, IndexDamaged, IndexRecord, RecordWriter, crc_of, decode_record, read_spans
from .indexed_history import IndexedHistory

log = logging.getLogger(__name__)

_LOG_EVERY = 50_000  # lines between two progress messages in the log
RECENT_RECORDS = 256  # records at the end that are compared, to recognise a tail that a crashed file system wrote twice
_MAX_REPEATED_BYTES = 64 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Cause = Literal["unreadable", "unfinished", "zeros", "twice", "line end"]


@dataclass(frozen=True, slots=True)
class BadRange:
    """Bytes of the main file that belong to no message."""

    offset: int
    length: int
    cause: Cause


@dataclass(slots=True)
class ScanReport:
    """What a scan found.

    Attributes:
        trusted: Number of records at the beginning of the index that are valid as they are.
        trusted_index_end: Offset in the index after those records.
        trusted_main_end: Offset in the main file after their messages.
        records: All records after those, as the main file has them.
        indexed_records: All records after those, as the index had them.
        bad_ranges: Bytes that belong to no message.
        unterminated: Offsets of messages whose line has no end.
        changed: Seqs of messages that differ from what was written.
        adopted: Seqs assigned to messages that the index did not know.
        unreadable_index_lines: Number of invalid index lines.
        missing_seqs: Seqs of messages that the index knows and the main file does not hold.
        lost: Number of lost messages, the missing ones included.
        max_seq: The highest seq ever assigned.
        history_max_seq: The highest seq of the current history.
        seqs_ascend: True if the seqs of the history ascend.
        has_index: True if there is an index.
    """

    trusted: int = 0
    trusted_index_end: int = 0
    trusted_main_end: int = 0
    records: list[IndexRecord] = field(default_factory=list[IndexRecord])
    indexed_records: list[IndexRecord] = field(default_factory=list[IndexRecord])
    bad_ranges: list[BadRange] = field(default_factory=list[BadRange])
    unterminated: set[int] = field(default_factory=set[int])
    changed: set[int] = field(default_factory=set[int])
    adopted: set[int] = field(default_factory=set[int])
    unreadable_index_lines: int = 0
    missing_seqs: list[int] = field(default_factory=list[int])
    lost: int = 0
    max_seq: int = 0
    history_max_seq: int = 0
    seqs_ascend: bool = True
    has_index: bool = False

    @property
    def unchanged_count(self) -> int:
        """Number of entries at the beginning that are unchanged."""
        count = 0
        for record, old in zip(self.records, self.indexed_records, strict=False):
            if record.seq != old.seq or record.seq in self.changed:
                break
            count += 1
        return self.trusted + count

    def history(self, session_id: str, main: int | None, size: int, index: Index | None) -> IndexedHistory:
        """Return the history, for a reader that must not repair it."""
        trusted_index = Index(index.descriptor, self.trusted_index_end) if index is not None else None
        return IndexedHistory(
            session_id, main, size, trusted_index, self.trusted, self.records, self.history_max_seq, self.seqs_ascend
        )


def scan(
    main: int | None,
    size: int,
    index: Index | None,
    *,
    session_id: str,
    last_seq: int = 0,
    bad_indexes: frozenset[int] = frozenset(),
    full: bool = False,
) -> ScanReport:
    """Scan a main file and its index.

    Args:
        main: Descriptor of the main file, if it exists.
        size: Its bytes.
        index: Its index, if it exists.
        session_id: The session, for the log.
        last_seq: The highest seq ever assigned, as far as the caller knows.
        bad_indexes: Entry indexes that cannot be read though their checksums are right.
        full: Trust nothing, even if the end is consistent.
    """
    state = _Scan(session_id, main, size if main is not None else 0, index, bad_indexes)
    if index is not None:
        state.load_index(index, trust_end=not bad_indexes and not full)
    state.report.max_seq = max(
        last_seq, state.report.max_seq, *(record.max_seq for record in state.report.indexed_records), 0
    )
    state.run()
    return state.report


class _Scan:
    """The state of one scan."""

    def __init__(
        self, session_id: str, main: int | None, size: int, index: Index | None, bad_indexes: frozenset[int]
    ) -> None:
        self.session_id = session_id
        self.main, self.size, self.index, self.bad_indexes = main, size, index, bad_indexes
        self.report = ScanReport(has_index=index is not None and index.size > 0)
        self.writer = RecordWriter("")
        self.turn = 0
        self.lines_read = 0
        self.unmatched_by_crc: dict[
            int, deque[IndexRecord]
        ] = {}  # indexed records that are not at their offset, by checksum
        self.unmatched_by_offset: dict[int, IndexRecord] = {}  # the same, by offset
        self.missing_records: dict[int, IndexRecord] = {}  # the same, by identity
        self.damaged_line_ends: set[int] = set()  # offsets of damaged line ends

    # -- reading the index ------------------------------------------------------------------------------------------

    def load_index(self, index: Index, *, trust_end: bool) -> None:
        """Read the index: how far it can be trusted, and the records after that."""
        if trust_end and self.main is not None:
            with suppress(IndexDamaged):
                self._trust_end(index, self.main)
        for _, line in _lines(index.descriptor, self.report.trusted_index_end, index.size):
            record = decode_record(line) if line.endswith(b"\n") else None
            if record is None:
                self.report.unreadable_index_lines += 1
            else:
                self.report.indexed_records.append(record)
            yield_gil()

    def _trust_end(self, index: Index, main: int) -> None:
        """Trust all records up to the last one that the main file reaches, if that one is intact."""
        last = index.last_record()
        if last is None:
            return
        record, end = last
        if record.end > self.size:
            end = index.bisect(lambda record: record.end > self.size)
            before = index.record_before(end) if end else None
            if before is None:
                return
            record = before
        if crc_of(read_at(main, record.offset, record.length)) == record.crc:
            self.report.trusted, self.report.trusted_index_end, self.report.trusted_main_end = (
                record.entry_index + 1,
                end,
                record.end,
            )
            self.report.max_seq = record.max_seq
            self.writer = RecordWriter.after("", record)
            self.turn = record.turn

    # -- comparing with the main file -------------------------------------------------------------------------------

    def run(self) -> None:
        """Compare the index with the main file."""
        intact = list(self._intact())
        offset = self.report.trusted_main_end
        for record in intact:
            self._scan_gap(offset, record.offset)
            self._add(record)
            offset = record.end
        self._scan_gap(offset, self.size, at_end=True)
        self._count_lost()
        self.report.records = [self.writer.numbered(record) for record in self.report.records]
        self.report.history_max_seq, self.report.seqs_ascend = self.writer.max_seq, self.writer.seqs_ascend

    def _intact(self) -> Iterator[IndexRecord]:
        """Yield the indexed records whose messages are at their offset; keep the others for matching."""
        offset = self.report.trusted_main_end
        if self.main is None:
            pairs = iter([(record, b"") for record in self.report.indexed_records])
        else:
            pairs = read_spans(self.main, self.size, self.report.indexed_records)
        for record, span in pairs:
            yield_gil()
            if span and record.offset >= offset:
                if crc_of(span) == record.crc and record.entry_index not in self.bad_indexes:
                    offset = record.end
                    yield record
                    continue
                if zlib.crc32(span[:-1]) == record.crc:  # only the line end is damaged
                    self.report.bad_ranges.append(BadRange(record.end - 1, 1, "line end"))
                    self.report.unterminated.add(record.offset)
                    self.damaged_line_ends.add(record.end - 1)
                    offset = record.end
                    yield record._replace(length=record.length - 1)
                    continue
            self.unmatched_by_crc.setdefault(record.crc, deque()).append(record)
            self.unmatched_by_offset.setdefault(record.offset, record)
            self.missing_records[id(record)] = record

    def _scan_gap(self, start: int, stop: int, *, at_end: bool = False) -> None:
        """Read, line by line, a part of the main file that the index does not account for."""
        if self.main is None or start >= stop:
            return
        start += start in self.damaged_line_ends
        if at_end and not self.missing_records:
            start = self._skip_repeated_tail(start)
        for offset, raw in _lines(self.main, start, stop):
            self._scan_line(offset, raw, last=at_end and offset + len(raw) == self.size)
            self.lines_read += 1
            if self.lines_read % _LOG_EVERY == 0:
                progress = (self.session_id, self.lines_read, 100 * offset // self.size)
                log.info("session %s: %d lines read that the index does not know, %d %% of the file", *progress)
            yield_gil()

    def _scan_line(self, offset: int, raw: bytes, *, last: bool) -> None:
        bom_length = len(_BYTE_ORDER_MARK) if offset == 0 and raw.startswith(_BYTE_ORDER_MARK) else 0
        zeros = b"\0" in raw
        lead = bom_length + len(raw[bom_length:]) - len(raw[bom_length:].lstrip(b"\0" + BLANK))
        content = raw[lead:].rstrip(b"\0" + BLANK)
        if not content:
            if zeros:
                self.report.bad_ranges.append(BadRange(offset, len(raw), "zeros"))
            elif last and self.report.records:
                record = self.report.records[-1]  # blank lines at the end belong to the last message
                if record.offset not in self.report.unterminated and not self.report.bad_ranges:
                    self.report.records[-1] = record._replace(length=self.size - record.offset)
            return
        start, end = offset + lead, offset + len(raw)
        if not self._take_message(start, end - start, content):
            why: Cause = "unfinished" if last and not raw.endswith(b"\n") else "unreadable"
            self.report.bad_ranges.append(BadRange(offset, len(raw), why))
            return
        if b"\0" in raw[:lead]:
            self.report.bad_ranges.append(BadRange(offset, lead, "zeros"))
        after = raw[lead + len(content) :]
        if b"\0" in after:
            self.report.records[-1] = self.report.records[-1]._replace(length=len(content))
            self.report.bad_ranges.append(BadRange(start + len(content), len(after), "zeros"))
        if b"\0" in after or not raw.endswith(b"\n"):
            self.report.unterminated.add(start)

    def _take_message(self, offset: int, length: int, content: bytes) -> bool:
        """Take a line as a message. Return False if it is none."""
        crc = zlib.crc32(content)
        read = _parse(content)
        if read is None:
            return False
        message, human = read
        record = self._match(crc) or self._match(zlib.crc32(message_json(message)))
        if record is not None:
            self._add(record._replace(offset=offset, length=length, crc=crc))
            return True
        old = self.unmatched_by_offset.get(offset)
        if old is not None and id(old) in self.missing_records and old.length == length:
            del self.missing_records[id(old)]
            self.report.changed.add(old.seq)
            self._add(old._replace(crc=crc, tokens=UNCOUNTED))
            return True
        self.report.max_seq += 1
        self.report.adopted.add(self.report.max_seq)
        self._add(IndexRecord(0, self.report.max_seq, offset, length, crc, self.turn + human, UNCOUNTED))
        return True

    def _match(self, crc: int) -> IndexRecord | None:
        """Return an unmatched indexed record with this checksum."""
        unmatched_by_crc = self.unmatched_by_crc.get(crc)
        while unmatched_by_crc:
            record = unmatched_by_crc.popleft()
            if self.missing_records.pop(id(record), None) is not None:
                return record
        return None

    def _add(self, record: IndexRecord) -> None:
        self.turn = record.turn
        self.report.records.append(record)

    def _skip_repeated_tail(self, start: int) -> int:
        """Return the offset after a repetition of the file's own last lines, which no append of ours wrote."""
        if self.main is None or self.size - start > _MAX_REPEATED_BYTES:
            return start
        extra = read_at(self.main, start, self.size - start)
        first = crc_of(extra[: extra.find(b"\n") + 1])
        for record in reversed(self._recent_records() if b"\n" in extra else []):
            again = read_at(self.main, record.offset, start - record.offset) if record.crc == first else b""
            while again and extra:
                torn = again.startswith(extra) and not extra.endswith(b"\n")
                if not torn and not extra.startswith(again):
                    break
                length = min(len(again), len(extra))
                self.report.bad_ranges.append(BadRange(start, length, "twice"))
                start, extra = start + length, extra[length:]
            if self.report.bad_ranges and self.report.bad_ranges[-1].cause == "twice":
                break
        return start

    def _recent_records(self) -> list[IndexRecord]:
        records = self.report.records[-RECENT_RECORDS:]
        if len(records) < RECENT_RECORDS and self.index is not None and self.report.trusted:
            head = IndexedHistory("", self.main, self.size, Index(self.index.descriptor, self.report.trusted_index_end))
            head.indexed_count = self.report.trusted
            try:
                records = [*head.records(max(0, head.indexed_count - RECENT_RECORDS + len(records))), *records]
            except IndexDamaged:
                return records
        return records

    def _count_lost(self) -> None:
        """Count indexed messages that were not found, and lines that are unreadable.

        An index of which nothing was found while the file holds other messages belongs to another file: it proves no
        loss.
        """
        report = self.report
        damaged = [cut for cut in report.bad_ranges if cut.cause in ("unreadable", "zeros", "unfinished")]
        is_foreign_index = (
            bool(report.adopted)
            and not damaged
            and not report.trusted
            and len(self.missing_records) == len(report.indexed_records)
        )
        if not is_foreign_index:
            report.lost = len(self.missing_records)
            report.missing_seqs = sorted(record.seq for record in self.missing_records.values())
        missing = sorted(self.missing_records.values(), key=_offset)
        for cut in damaged:
            before = bisect_left(missing, cut.offset + cut.length, key=_offset)
            known = before > 0 and missing[before - 1].end > cut.offset
            counts = cut.cause == "unreadable" or (cut.cause == "unfinished" and not report.has_index)
            report.lost += counts and not known


def _offset(record: IndexRecord) -> int:
    return record.offset


def _lines(descriptor: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a part of a file with their offsets. The last line may lack its line end."""
    left: list[bytes] = []
    for data in chunks(descriptor, start, stop):
        lines = data.split(b"\n")
        for line in lines[:-1]:
            whole = b"".join([*left, line, b"\n"])
            left = []
            yield start, whole
            start += len(whole)
        left.append(lines[-1])
    if rest := b"".join(left):
        yield start, rest


def _parse(content: bytes) -> tuple[Message, bool] | None:
    """Return the message of a line and whether a human wrote it; None if it is no message."""
    try:
        message, info = parse_message(loads(content))
    except (ValueError, InvalidMessage, RecursionError):
        return None
    return message, info.human
