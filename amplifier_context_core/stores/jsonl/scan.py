"""What a damaged session still holds: every message of the main file that can be read, and whose it is.

The index says where messages stood and what their checksums were; the main file says what is there now. Where both
agree nothing is looked at twice. Between what agrees, the file is read line by line: a line whose checksum the index
knows is that message, moved; a message in the very place of another reads differently now; any other message was
written by another program and is adopted; what is no message is cut out and put aside.

Nothing here writes.
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
from ...messages.parsing import Message, read_message
from ..codec import loads, message_json
from ..protocol import UNCOUNTED
from .file_ops import breathe, chunks, read_at
from .index import BLANK, Index, IndexDamaged, IndexRecord, RecordWriter, crc_of, decode, spans
from .indexed_history import IndexedHistory

log = logging.getLogger(__name__)

_TOLD = 50_000  # lines read in between two words in the log
RECENT = 256  # lines at the end that are known again when a crashed file system wrote them twice
_LARGEST_TWICE = 64 << 20
_MARK = b"\xef\xbb\xbf"

Cause = Literal["unreadable", "unfinished", "zeros", "twice", "line end"]


@dataclass(frozen=True, slots=True)
class BadRange:
    """Bytes of the main file that belong to no message."""

    offset: int
    length: int
    why: Cause


@dataclass(slots=True)
class ScanReport:
    """What was found in a session.

    Attributes:
        kept: rows at the head of the index that stand as they are.
        kept_position: where in the index they end.
        kept_end: where in the main file what they stand for ends.
        rows: all after those, as the main file has them.
        known: all after those, as the index had them.
        cuts: what belongs to no message.
        unended: offsets of messages whose line has no end.
        changed: seqs of messages that read differently than they were written.
        adopted: seqs given to messages the index did not know.
        garbled: index lines that are none.
        gone: seqs of messages that the index knows and the main file does not hold.
        lost: messages that are gone, those among them.
        top: the highest seq ever given.
        held: the highest of the history as it is now.
        rising: do the seqs of the history rise?
        indexed: is there an index?
    """

    kept: int = 0
    kept_position: int = 0
    kept_end: int = 0
    rows: list[IndexRecord] = field(default_factory=list[IndexRecord])
    known: list[IndexRecord] = field(default_factory=list[IndexRecord])
    cuts: list[BadRange] = field(default_factory=list[BadRange])
    unended: set[int] = field(default_factory=set[int])
    changed: set[int] = field(default_factory=set[int])
    adopted: set[int] = field(default_factory=set[int])
    garbled: int = 0
    gone: list[int] = field(default_factory=list[int])
    lost: int = 0
    top: int = 0
    held: int = 0
    rising: bool = True
    indexed: bool = False

    @property
    def unchanged(self) -> int:
        """Places before this one hold what they held."""
        count = 0
        for row, old in zip(self.rows, self.known, strict=False):
            if row.seq != old.seq or row.seq in self.changed:
                break
            count += 1
        return self.kept + count

    def history(self, session_id: str, main: int | None, size: int, index: Index | None) -> IndexedHistory:
        """The history, for a reader who must not mend it."""
        head = Index(index.descriptor, self.kept_position) if index is not None else None
        return IndexedHistory(session_id, main, size, head, self.kept, self.rows, self.held, self.rising)


def examine(
    main: int | None,
    size: int,
    index: Index | None,
    *,
    session_id: str,
    last_seq: int = 0,
    bad: frozenset[int] = frozenset(),
    all_of_it: bool = False,
) -> ScanReport:
    """Look at a main file of this size and its index.

    Args:
        main: descriptor of the main file, if there is one.
        size: bytes of it.
        index: its index, if there is one.
        session_id: whose they are, for the log.
        last_seq: the highest seq ever given, as far as others know.
        bad: places that cannot be read though their checksums are right.
        all_of_it: trust nothing, even if the end is in order.
    """
    look = _Scan(session_id, main, size if main is not None else 0, index, bad)
    if index is not None:
        look.begin(index, trusting=not bad and not all_of_it)
    look.found.top = max(last_seq, look.found.top, *(row.top for row in look.found.known), 0)
    look.run()
    return look.found


class _Scan:
    """One examination."""

    def __init__(self, session_id: str, main: int | None, size: int, index: Index | None, bad: frozenset[int]) -> None:
        self.session_id = session_id
        self.main, self.size, self.index, self.bad = main, size, index, bad
        self.found = ScanReport(indexed=index is not None and index.size > 0)
        self.lines = RecordWriter("")
        self.turn = 0
        self.lines_read = 0
        self.waiting: dict[int, deque[IndexRecord]] = {}  # known rows that are not where they were, by checksum
        self.there: dict[int, IndexRecord] = {}  # the same, by where they were
        self.gone: dict[int, IndexRecord] = {}  # the same, by identity
        self.line_ends: set[int] = set()  # where one was hit

    # -- what the index knows ---------------------------------------------------------------------------------------

    def begin(self, index: Index, *, trusting: bool) -> None:
        """Read the index: up to where it need not be looked at, and what it knows beyond."""
        if trusting and self.main is not None:
            with suppress(IndexDamaged):
                self._trust(index, self.main)
        for _, line in _lines(index.descriptor, self.found.kept_position, index.size):
            row = decode(line) if line.endswith(b"\n") else None
            if row is None:
                self.found.garbled += 1
            else:
                self.found.known.append(row)
            breathe()

    def _trust(self, index: Index, main: int) -> None:
        """All up to the last row the main file holds is as it was, if that row is."""
        last = index.last()
        if last is None:
            return
        row, end = last
        if row.end > self.size:
            end = index.first(lambda row: row.end > self.size)
            before = index.row_before(end) if end else None
            if before is None:
                return
            row = before
        if crc_of(read_at(main, row.offset, row.length)) == row.crc:
            self.found.kept, self.found.kept_position, self.found.kept_end = row.place + 1, end, row.end
            self.found.top = row.top
            self.lines = RecordWriter.after("", row)
            self.turn = row.turn

    # -- what the main file holds -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Compare the two."""
        intact = list(self._intact())
        position = self.found.kept_end
        for row in intact:
            self._between(position, row.offset)
            self._emit(row)
            position = row.end
        self._between(position, self.size, at_end=True)
        self._count_lost()
        self.found.rows = [self.lines.placed(row) for row in self.found.rows]
        self.found.held, self.found.rising = self.lines.top, self.lines.rising

    def _intact(self) -> Iterator[IndexRecord]:
        """Known rows that stand where they stood; the others are waiting to be found elsewhere."""
        position = self.found.kept_end
        if self.main is None:
            pairs = iter([(row, b"") for row in self.found.known])
        else:
            pairs = spans(self.main, self.size, self.found.known)
        for row, span in pairs:
            breathe()
            if span and row.offset >= position:
                if crc_of(span) == row.crc and row.place not in self.bad:
                    position = row.end
                    yield row
                    continue
                if zlib.crc32(span[:-1]) == row.crc:  # only its end was hit
                    self.found.cuts.append(BadRange(row.end - 1, 1, "line end"))
                    self.found.unended.add(row.offset)
                    self.line_ends.add(row.end - 1)
                    position = row.end
                    yield row._replace(length=row.length - 1)
                    continue
            self.waiting.setdefault(row.crc, deque()).append(row)
            self.there.setdefault(row.offset, row)
            self.gone[id(row)] = row

    def _between(self, start: int, stop: int, *, at_end: bool = False) -> None:
        """Read, line by line, a part of the main file that the index does not account for."""
        if self.main is None or start >= stop:
            return
        start += start in self.line_ends
        if at_end and not self.gone:
            start = self._past_what_came_twice(start)
        for offset, raw in _lines(self.main, start, stop):
            self._line(offset, raw, last=at_end and offset + len(raw) == self.size)
            self.lines_read += 1
            if self.lines_read % _TOLD == 0:
                told = (self.session_id, self.lines_read, 100 * offset // self.size)
                log.info("session %s: %d lines read that no index tells of, %d %% of the file", *told)
            breathe()

    def _line(self, offset: int, raw: bytes, *, last: bool) -> None:
        mark = len(_MARK) if offset == 0 and raw.startswith(_MARK) else 0
        zeros = b"\0" in raw
        lead = mark + len(raw[mark:]) - len(raw[mark:].lstrip(b"\0" + BLANK))
        content = raw[lead:].rstrip(b"\0" + BLANK)
        if not content:
            if zeros:
                self.found.cuts.append(BadRange(offset, len(raw), "zeros"))
            elif last and self.found.rows:
                row = self.found.rows[-1]  # blank lines at the end belong to the last message
                if row.offset not in self.found.unended and not self.found.cuts:
                    self.found.rows[-1] = row._replace(length=self.size - row.offset)
            return
        start, end = offset + lead, offset + len(raw)
        if not self._message(start, end - start, content):
            why: Cause = "unfinished" if last and not raw.endswith(b"\n") else "unreadable"
            self.found.cuts.append(BadRange(offset, len(raw), why))
            return
        if b"\0" in raw[:lead]:
            self.found.cuts.append(BadRange(offset, lead, "zeros"))
        after = raw[lead + len(content) :]
        if b"\0" in after:
            self.found.rows[-1] = self.found.rows[-1]._replace(length=len(content))
            self.found.cuts.append(BadRange(start + len(content), len(after), "zeros"))
        if b"\0" in after or not raw.endswith(b"\n"):
            self.found.unended.add(start)

    def _message(self, offset: int, length: int, content: bytes) -> bool:
        """Take a line as a message, whosever it is; False if it is none."""
        crc = zlib.crc32(content)
        read = _read(content)
        if read is None:
            return False
        message, human = read
        row = self._taken(crc) or self._taken(zlib.crc32(message_json(message)))
        if row is not None:
            self._emit(row._replace(offset=offset, length=length, crc=crc))
            return True
        old = self.there.get(offset)
        if old is not None and id(old) in self.gone and old.length == length:
            del self.gone[id(old)]
            self.found.changed.add(old.seq)
            self._emit(old._replace(crc=crc, tokens=UNCOUNTED))
            return True
        self.found.top += 1
        self.found.adopted.add(self.found.top)
        self._emit(IndexRecord(0, self.found.top, offset, length, crc, self.turn + human, UNCOUNTED))
        return True

    def _taken(self, crc: int) -> IndexRecord | None:
        """A known message with this checksum that was not found yet."""
        waiting = self.waiting.get(crc)
        while waiting:
            row = waiting.popleft()
            if self.gone.pop(id(row), None) is not None:
                return row
        return None

    def _emit(self, row: IndexRecord) -> None:
        self.turn = row.turn
        self.found.rows.append(row)

    def _past_what_came_twice(self, start: int) -> int:
        """Where the file goes on after a repetition of its own last lines, that no append of ours wrote."""
        if self.main is None or self.size - start > _LARGEST_TWICE:
            return start
        extra = read_at(self.main, start, self.size - start)
        first = crc_of(extra[: extra.find(b"\n") + 1])
        for row in reversed(self._recent() if b"\n" in extra else []):
            again = read_at(self.main, row.offset, start - row.offset) if row.crc == first else b""
            while again and extra:
                torn = again.startswith(extra) and not extra.endswith(b"\n")
                if not torn and not extra.startswith(again):
                    break
                length = min(len(again), len(extra))
                self.found.cuts.append(BadRange(start, length, "twice"))
                start, extra = start + length, extra[length:]
            if self.found.cuts and self.found.cuts[-1].why == "twice":
                break
        return start

    def _recent(self) -> list[IndexRecord]:
        rows = self.found.rows[-RECENT:]
        if len(rows) < RECENT and self.index is not None and self.found.kept:
            head = IndexedHistory("", self.main, self.size, Index(self.index.descriptor, self.found.kept_position))
            head.kept = self.found.kept
            try:
                rows = [*head.rows(max(0, head.kept - RECENT + len(rows))), *rows]
            except IndexDamaged:
                return rows
        return rows

    def _count_lost(self) -> None:
        """Known messages that are nowhere, and lines nobody can read any more.

        An index of which nothing is found, where there is something else, is another file's: it knows of no loss.
        """
        found = self.found
        damaged = [cut for cut in found.cuts if cut.why in ("unreadable", "zeros", "unfinished")]
        foreign = bool(found.adopted) and not damaged and not found.kept and len(self.gone) == len(found.known)
        if not foreign:
            found.lost = len(self.gone)
            found.gone = sorted(row.seq for row in self.gone.values())
        gone = sorted(self.gone.values(), key=_offset)
        for cut in damaged:
            before = bisect_left(gone, cut.offset + cut.length, key=_offset)
            known = before > 0 and gone[before - 1].end > cut.offset
            told = cut.why == "unreadable" or (cut.why == "unfinished" and not found.indexed)
            found.lost += told and not known


def _offset(row: IndexRecord) -> int:
    return row.offset


def _lines(descriptor: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a part of a file, with where they begin; the last one may have no end."""
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


def _read(content: bytes) -> tuple[Message, bool] | None:
    """The message a line is, and whether a human wrote it; None if it is none."""
    try:
        message, reading = read_message(loads(content))
    except (ValueError, InvalidMessage, RecursionError):
        return None
    return message, reading.human
