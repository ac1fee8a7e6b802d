"""The index beside the main file: one short line for every message, in order.

``[entry index, seq, offset, length, crc32, turn, tokens, check]``, then optionally the extra fields of the entry, then
optionally the highest seq so far. ``crc32`` covers the message, ``check`` the line itself, so that a damaged seq is
never assigned again. The highest seq is stated from the first line on whose seq is not higher than all before it. While
it is missing, seqs ascend, and a seq can be found by bisection like an entry index.

Lookups bisect the file, so none of it is held in memory. Seqs, tokens and extra fields are only here; all the rest can
be rebuilt from the main file.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...transcript.entry import Entry
from ..codec import encode_extra, loads, message_json
from ..protocol import UNCOUNTED
from .file_ops import CHUNK_BYTES, read_at, yield_gil

BLANK = b" \t\r\n"
_LINEAR_SCAN_BYTES = 4096  # bytes; below that, reading on costs less than another bisection step


class IndexDamaged(Exception):
    """A line of the index is invalid. The index must be rebuilt from the main file."""


class IndexRecord(NamedTuple):
    """One line of the index: the location of a message in the main file, and what the store knows beside it."""

    entry_index: int
    seq: int
    offset: int
    length: int
    crc: int
    turn: int
    tokens: int
    extra: dict[str, Any] | None = None
    stated_max_seq: int | None = None

    @property
    def end(self) -> int:
        """The offset in the main file at which the next message may begin."""
        return self.offset + self.length

    @property
    def max_seq(self) -> int:
        """The highest seq up to this record."""
        return self.seq if self.stated_max_seq is None else self.stated_max_seq

    def encode(self) -> bytes:
        """Return the line, with its line end."""
        figures = b"%d,%d,%d,%d,%d,%d,%d" % self[:7]
        more = b""
        if self.extra or self.stated_max_seq is not None:
            more = b"," + (message_json(self.extra) if self.extra else b"null")
        if self.stated_max_seq is not None:
            more += b",%d" % self.stated_max_seq
        data = b"[%s,%d%s]" % (figures, _checksum(figures + more), more)
        # Padding for the token count that a reader will fill in, so that the line can be patched in place.
        return data + b"          \n" if self.tokens == UNCOUNTED else data + b"\n"


def decode_record(line: bytes) -> IndexRecord | None:
    """Return the record of a line; None if any part of the line is invalid."""
    text = line.rstrip()
    figures, _, check = text[1:-1].rpartition(b",")
    if text[:1] == b"[" and check == b"%d" % _checksum(figures):  # the common case: no extra fields
        parts = figures.split(b",")
        if len(parts) != 7:
            return None
        entry_index, seq, offset, length, crc, turn, tokens = map(int, parts)
        return IndexRecord(entry_index, seq, offset, length, crc, turn, tokens)
    try:
        values: Any = loads(text)
        record = IndexRecord(*values[:7], *values[8:])
        return record if record.encode().rstrip() == text else None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return None


def _decoded_or_damaged(line: bytes) -> IndexRecord:
    record = decode_record(line)
    if record is None:
        raise IndexDamaged
    return record


def _checksum(figures: bytes) -> int:
    """Return the checksum of an index line, in five digits."""
    return 10_000 + zlib.crc32(figures) % 90_000


def crc_of(span: bytes) -> int:
    """Return the checksum of a message's JSON, without blanks and line end."""
    return zlib.crc32(span.strip(BLANK))


@dataclass(slots=True)
class RecordWriter:
    """Collects main-file lines and index lines for consecutive entries."""

    session_id: str
    entry_index: int = 0
    offset: int = 0
    max_seq: int = 0
    seqs_ascend: bool = True
    main_lines: list[bytes] = field(default_factory=list[bytes])
    index_lines: list[bytes] = field(default_factory=list[bytes])
    crcs: list[int] = field(default_factory=list[int])

    @classmethod
    def after(cls, session_id: str, record: IndexRecord | None) -> RecordWriter:
        """Return a writer that continues after a record, or begins a history."""
        if record is None:
            return cls(session_id)
        return cls(session_id, record.entry_index + 1, record.end, record.max_seq, record.stated_max_seq is None)

    def successor(self) -> RecordWriter:
        """Return an empty writer that continues after this one."""
        return RecordWriter(self.session_id, self.entry_index, self.offset, self.max_seq, self.seqs_ascend)

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        data = message_json(entry.message)
        extra = encode_extra(entry, self.session_id) or None
        self.add_json(data, entry.seq, entry.turn, entry.tokens, extra)

    def add_json(self, data: bytes, seq: int, turn: int, tokens: int, extra: dict[str, Any] | None) -> None:
        """Add a message as JSON."""
        record = self.numbered(
            IndexRecord(self.entry_index, seq, self.offset, len(data) + 1, zlib.crc32(data), turn, tokens, extra)
        )
        self.main_lines.append(data + b"\n")
        self.index_lines.append(record.encode())
        self.crcs.append(record.crc)

    def numbered(self, record: IndexRecord) -> IndexRecord:
        """Return a record as the next one: with its entry index, and with the highest seq where it must be stated."""
        _, seq, offset, length, crc, turn, tokens, extra, _ = record
        self.seqs_ascend = self.seqs_ascend and seq > self.max_seq
        self.max_seq = max(self.max_seq, seq)
        self.entry_index += 1
        self.offset = offset + length
        stated_max_seq = None if self.seqs_ascend else self.max_seq
        return IndexRecord(self.entry_index - 1, seq, offset, length, crc, turn, tokens, extra, stated_max_seq)


class Index:
    """The index file, up to the end of its valid lines."""

    __slots__ = ("descriptor", "size")

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size

    def last_record(self) -> tuple[IndexRecord, int] | None:
        """Return the last valid record and the offset after its line."""
        start = self.size
        reach = _LINEAR_SCAN_BYTES
        while start > 0:
            start = max(0, self.size - reach)
            data = read_at(self.descriptor, start, self.size - start)
            end = data.rfind(b"\n") + 1
            while end > 0:
                begin = data.rfind(b"\n", 0, end - 1) + 1
                if begin == 0 and start > 0:
                    break  # the line may begin before the bytes that were read
                record = decode_record(data[begin:end])
                if record is not None:
                    return record, start + end
                end = begin
            reach *= 16
        return None

    def records(self, offset: int = 0) -> Iterator[tuple[int, IndexRecord]]:
        """Yield the records from an offset on, each with the offset of its line.

        Raises:
            IndexDamaged: A line is invalid.
        """
        rest = b""
        reach = 2 * _LINEAR_SCAN_BYTES
        begin = offset
        while offset < self.size:
            data = read_at(self.descriptor, offset, min(reach, self.size - offset))
            if not data:
                raise IndexDamaged
            offset += len(data)
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for line in lines:
                record = decode_record(line)
                if record is None:
                    raise IndexDamaged
                yield begin, record
                begin += len(line) + 1
            yield_gil()
            reach = min(CHUNK_BYTES, reach * 4)
        if rest:
            raise IndexDamaged

    def bisect(self, is_after: Callable[[IndexRecord], bool]) -> int:
        """Return the offset of the first record for which a monotonic predicate is true; the end if there is none."""
        low, high = 0, self.size
        while high - low > _LINEAR_SCAN_BYTES:
            start = self._line_after((low + high) // 2, high)
            if start is None:
                break
            record, end = self.record_at(start)
            if is_after(record):
                high = start
            else:
                low = end
        data = read_at(self.descriptor, low, high - low)
        if len(data) < high - low:  # the file was truncated during the search
            raise IndexDamaged
        lines = data.splitlines(keepends=True)
        count = bisect_left(lines, True, key=lambda line: is_after(_decoded_or_damaged(line)))
        return low + sum(map(len, lines[:count]))

    def offset_of(self, entry_index: int) -> int:
        """Return the offset of the record of an entry; the end for the index after the last entry."""
        offset = self.bisect(lambda record: record.entry_index >= entry_index)
        if offset < self.size and self.record_at(offset)[0].entry_index != entry_index:
            raise IndexDamaged
        return offset

    def record(self, entry_index: int) -> IndexRecord:
        """Return the record of an existing entry."""
        offset = self.offset_of(entry_index)
        if offset >= self.size:
            raise IndexDamaged
        return self.record_at(offset)[0]

    def record_before(self, offset: int) -> IndexRecord | None:
        """Return the record whose line ends at an offset."""
        found = Index(self.descriptor, offset).last_record()
        if found is not None and found[1] != offset:
            raise IndexDamaged
        return found and found[0]

    def record_at(self, offset: int) -> tuple[IndexRecord, int]:
        """Return the record whose line begins at an offset, and the offset after the line."""
        data, reach = b"", 256
        while b"\n" not in data:
            previous, data = data, read_at(self.descriptor, offset, min(reach, self.size - offset))
            if len(data) <= len(previous):
                raise IndexDamaged
            reach *= 8
        line = data[: data.index(b"\n") + 1]
        return _decoded_or_damaged(line), offset + len(line)

    def _line_after(self, offset: int, stop: int) -> int | None:
        reach = 256
        while offset < stop:
            data = read_at(self.descriptor, offset, min(reach, stop - offset))
            found = data.find(b"\n")
            if found >= 0:
                return offset + found + 1 if offset + found + 1 < stop else None
            if not data:
                return None
            offset += len(data)
            reach *= 8
        return None


def read_spans(descriptor: int, size: int, records: Iterable[IndexRecord]) -> Iterator[tuple[IndexRecord, bytes]]:
    """Yield records with their bytes; empty bytes for a record beyond the end of the main file."""
    batch: list[IndexRecord] = []
    for record in records:
        if batch and (
            record.offset != batch[-1].end or len(batch) == 512 or record.end - batch[0].offset > CHUNK_BYTES
        ):
            yield from _read_batch(descriptor, batch)
            batch = []
        if record.end <= size:
            batch.append(record)
        else:
            yield from _read_batch(descriptor, batch)
            batch = []
            yield record, b""
    yield from _read_batch(descriptor, batch)


def _read_batch(descriptor: int, batch: list[IndexRecord]) -> Iterator[tuple[IndexRecord, bytes]]:
    if batch:
        start = batch[0].offset
        data = read_at(descriptor, start, batch[-1].end - start)
        for record in batch:
            yield record, data[record.offset - start : record.end - start]
