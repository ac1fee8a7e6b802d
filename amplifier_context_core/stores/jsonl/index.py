"""The index beside the main file: a short line for every message, in order.

``[place, seq, offset, length, crc32, turn, tokens, check]``, then perhaps what the entry knows beside its message, then
perhaps the highest seq so far. ``crc32`` is of the message, ``check`` of the line itself: a seq nobody can vouch for is
not given to anybody. The highest seq stands in every line from the first one on whose seq is not higher than all before
it: where it is missing, seqs rise, and a seq can be looked for as one looks for a place.

Lines are found by halving the file, so nothing of it is held in memory. All it says can be had from the main file
again, but for seqs, tokens and what stands in `extra`.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...transcript.transcript import Entry
from ..codec import encode_extra, loads, message_json
from ..protocol import UNCOUNTED
from .file_ops import CHUNK, breathe, read_at

BLANK = b" \t\r\n"
_NEAR = 4096  # bytes: closer than that, reading on is cheaper than halving


class IndexDamaged(Exception):
    """A line of the index is not what it has to be; it is made anew from the main file."""


class IndexRecord(NamedTuple):
    """One line of the index: where a message stands, and what the store knows beside it."""

    place: int
    seq: int
    offset: int
    length: int
    crc: int
    turn: int
    tokens: int
    extra: dict[str, Any] | None = None
    high: int | None = None

    @property
    def end(self) -> int:
        """Where in the main file the next message may begin."""
        return self.offset + self.length

    @property
    def top(self) -> int:
        """The highest seq up to here."""
        return self.seq if self.high is None else self.high

    def encode(self) -> bytes:
        """The line, with its end."""
        figures = b"%d,%d,%d,%d,%d,%d,%d" % self[:7]
        more = b""
        if self.extra or self.high is not None:
            more = b"," + (message_json(self.extra) if self.extra else b"null")
        if self.high is not None:
            more += b",%d" % self.high
        data = b"[%s,%d%s]" % (figures, _check(figures + more), more)
        # Room for the tokens that its reader is going to count, so that the line need not move.
        return data + b"          \n" if self.tokens == UNCOUNTED else data + b"\n"


def decode(line: bytes) -> IndexRecord | None:
    """The row a line stands for; None if it stands for none, or any of it is not as it was written."""
    text = line.rstrip()
    figures, _, check = text[1:-1].rpartition(b",")
    if text[:1] == b"[" and check == b"%d" % _check(figures):  # nothing but figures, as nearly always
        parts = figures.split(b",")
        if len(parts) != 7:
            return None
        place, seq, offset, length, crc, turn, tokens = map(int, parts)
        return IndexRecord(place, seq, offset, length, crc, turn, tokens)
    try:
        read: Any = loads(text)
        row = IndexRecord(*read[:7], *read[8:])
        return row if row.encode().rstrip() == text else None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return None


def _sound(line: bytes) -> IndexRecord:
    row = decode(line)
    if row is None:
        raise IndexDamaged
    return row


def _check(figures: bytes) -> int:
    """The checksum of an index line, in five digits."""
    return 10_000 + zlib.crc32(figures) % 90_000


def crc_of(span: bytes) -> int:
    """The checksum of a message: of its JSON, however its line ends."""
    return zlib.crc32(span.strip(BLANK))


@dataclass(slots=True)
class RecordWriter:
    """Lines of the main file and of the index, being made for entries that follow one another."""

    session_id: str
    place: int = 0
    offset: int = 0
    top: int = 0
    rising: bool = True
    main: list[bytes] = field(default_factory=list[bytes])
    index: list[bytes] = field(default_factory=list[bytes])
    crcs: list[int] = field(default_factory=list[int])

    @classmethod
    def after(cls, session_id: str, row: IndexRecord | None) -> RecordWriter:
        """To go on after a row, or to begin."""
        if row is None:
            return cls(session_id)
        return cls(session_id, row.place + 1, row.end, row.top, row.high is None)

    def continued(self) -> RecordWriter:
        """Lines to come after these."""
        return RecordWriter(self.session_id, self.place, self.offset, self.top, self.rising)

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        data = message_json(entry.message)
        extra = encode_extra(entry, self.session_id) or None
        self.add_line(data, entry.seq, entry.turn, entry.tokens, extra)

    def add_line(self, data: bytes, seq: int, turn: int, tokens: int, extra: dict[str, Any] | None) -> None:
        """Add a message as JSON."""
        row = self.placed(
            IndexRecord(self.place, seq, self.offset, len(data) + 1, zlib.crc32(data), turn, tokens, extra)
        )
        self.main.append(data + b"\n")
        self.index.append(row.encode())
        self.crcs.append(row.crc)

    def placed(self, row: IndexRecord) -> IndexRecord:
        """A row as the next one: with its place, and the highest seq if it needs to say it."""
        _, seq, offset, length, crc, turn, tokens, extra, _ = row
        self.rising = self.rising and seq > self.top
        self.top = max(self.top, seq)
        self.place += 1
        self.offset = offset + length
        high = None if self.rising else self.top
        return IndexRecord(self.place - 1, seq, offset, length, crc, turn, tokens, extra, high)


class Index:
    """The index file, up to where its lines are good."""

    __slots__ = ("descriptor", "size")

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size

    def last(self) -> tuple[IndexRecord, int] | None:
        """The last line that is one, and where it ends."""
        start = self.size
        reach = _NEAR
        while start > 0:
            start = max(0, self.size - reach)
            data = read_at(self.descriptor, start, self.size - start)
            end = data.rfind(b"\n") + 1
            while end > 0:
                begin = data.rfind(b"\n", 0, end - 1) + 1
                if begin == 0 and start > 0:
                    break  # it may begin before what was read
                row = decode(data[begin:end])
                if row is not None:
                    return row, start + end
                end = begin
            reach *= 16
        return None

    def rows(self, position: int = 0) -> Iterator[tuple[int, IndexRecord]]:
        """The rows from a position on, each with where its line begins.

        Raises:
            IndexDamaged: a line is none.
        """
        left = b""
        reach = 2 * _NEAR
        begin = position
        while position < self.size:
            data = read_at(self.descriptor, position, min(reach, self.size - position))
            if not data:
                raise IndexDamaged
            position += len(data)
            lines = (left + data).split(b"\n")
            left = lines.pop()
            for line in lines:
                row = decode(line)
                if row is None:
                    raise IndexDamaged
                yield begin, row
                begin += len(line) + 1
            breathe()
            reach = min(CHUNK, reach * 4)
        if left:
            raise IndexDamaged

    def first(self, beyond: Callable[[IndexRecord], bool]) -> int:
        """Where the first row begins for which this holds, as it does for all after it; the end if for none."""
        low, high = 0, self.size
        while high - low > _NEAR:
            begin = self._line_after((low + high) // 2, high)
            if begin is None:
                break
            row, end = self.row_at(begin)
            if beyond(row):
                high = begin
            else:
                low = end
        data = read_at(self.descriptor, low, high - low)
        if len(data) < high - low:  # cut meanwhile
            raise IndexDamaged
        lines = data.splitlines(keepends=True)
        found = bisect_left(lines, True, key=lambda line: beyond(_sound(line)))
        return low + sum(map(len, lines[:found]))

    def position(self, place: int) -> int:
        """Where the row of a place begins; the end for the place after the last."""
        begin = self.first(lambda row: row.place >= place)
        if begin < self.size and self.row_at(begin)[0].place != place:
            raise IndexDamaged
        return begin

    def row(self, place: int) -> IndexRecord:
        """The row of a place there is."""
        begin = self.position(place)
        if begin >= self.size:
            raise IndexDamaged
        return self.row_at(begin)[0]

    def row_before(self, position: int) -> IndexRecord | None:
        """The row whose line ends at a position."""
        found = Index(self.descriptor, position).last()
        if found is not None and found[1] != position:
            raise IndexDamaged
        return found and found[0]

    def row_at(self, begin: int) -> tuple[IndexRecord, int]:
        """The row whose line begins here, and where it ends."""
        data, reach = b"", 256
        while b"\n" not in data:
            known, data = data, read_at(self.descriptor, begin, min(reach, self.size - begin))
            if len(data) <= len(known):
                raise IndexDamaged
            reach *= 8
        line = data[: data.index(b"\n") + 1]
        return _sound(line), begin + len(line)

    def _line_after(self, position: int, stop: int) -> int | None:
        reach = 256
        while position < stop:
            data = read_at(self.descriptor, position, min(reach, stop - position))
            found = data.find(b"\n")
            if found >= 0:
                return position + found + 1 if position + found + 1 < stop else None
            if not data:
                return None
            position += len(data)
            reach *= 8
        return None


def spans(descriptor: int, size: int, rows: Iterable[IndexRecord]) -> Iterator[tuple[IndexRecord, bytes]]:
    """Rows with the bytes they stand for; empty bytes where the main file, of that size, does not reach so far."""
    batch: list[IndexRecord] = []
    for row in rows:
        if batch and (row.offset != batch[-1].end or len(batch) == 512 or row.end - batch[0].offset > CHUNK):
            yield from _batch(descriptor, batch)
            batch = []
        if row.end <= size:
            batch.append(row)
        else:
            yield from _batch(descriptor, batch)
            batch = []
            yield row, b""
    yield from _batch(descriptor, batch)


def _batch(descriptor: int, batch: list[IndexRecord]) -> Iterator[tuple[IndexRecord, bytes]]:
    if batch:
        start = batch[0].offset
        data = read_at(descriptor, start, batch[-1].end - start)
        for row in batch:
            yield row, data[row.offset - start : row.end - start]
