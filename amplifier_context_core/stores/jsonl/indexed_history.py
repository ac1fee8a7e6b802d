"""A history as main file and index tell it: read by place or by seq, without holding more of it than was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ...errors import StoreError
from ...transcript.transcript import Entry
from ..codec import decode_entry
from .file_ops import breathe, read_at
from .index import Index, IndexDamaged, IndexRecord, crc_of, spans

_MANY = 500  # seqs looked for: reading the whole index once is cheaper than halving it so often


@dataclass(slots=True)
class IndexedHistory:
    """The entries of one session.

    Attributes:
        session_id: whose.
        main: descriptor of the main file; None: there is none.
        size: bytes of it that are looked at.
        index: rows of the first `kept` entries.
        kept: how many.
        more: rows of the others, where the index does not have them (yet).
        top: the highest seq of them all.
        rising: do their seqs rise?
    """

    session_id: str
    main: int | None = None
    size: int = 0
    index: Index | None = None
    kept: int = 0
    more: list[IndexRecord] = field(default_factory=list[IndexRecord])
    top: int = 0
    rising: bool = True

    @property
    def length(self) -> int:
        """Entries of the history."""
        return self.kept + len(self.more)

    def row(self, place: int) -> IndexRecord:
        """The row of a place there is."""
        for row in self.rows(place, place + 1):
            return row
        raise IndexDamaged

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[IndexRecord]:
        """The rows of these places, in order.

        Raises:
            IndexDamaged: the index does not have them as it should.
        """
        stop = self.length if stop is None else min(stop, self.length)
        if start < min(stop, self.kept):
            if self.index is None:
                raise IndexDamaged
            last = min(stop, self.kept)
            place = start
            for _, row in islice(self.index.rows(self.index.position(start)), last - start):
                if row.place != place:
                    raise IndexDamaged
                yield row
                place += 1
            if place != last:
                raise IndexDamaged
        yield from self.more[max(0, start - self.kept) : max(0, stop - self.kept)]

    def read(self, rows: Iterator[IndexRecord]) -> tuple[list[Entry | None], list[IndexRecord]]:
        """The entries of some rows, None for what is damaged; and the rows of those."""
        found: list[Entry | None] = []
        damaged: list[IndexRecord] = []
        if self.main is None:
            return found, damaged
        for row, span in spans(self.main, self.size, rows):
            entry = self._entry(row, span)
            if entry is None:
                damaged.append(row)
            found.append(entry)
            breathe()
        return found, damaged

    def find_rows(self, seqs: Sequence[int]) -> list[IndexRecord]:
        """The rows of these seqs, in the order of the history."""
        wanted = {seq for seq in seqs if 0 < seq <= self.top}
        if not wanted:
            return []
        found = [row for row in self.more if row.seq in wanted]
        if self.index is not None and len(wanted) <= _MANY:
            for seq in wanted.difference(row.seq for row in found):
                begin = self.index.first(lambda row, seq=seq: row.seq >= seq)
                found.extend(row for _, row in islice(self.index.rows(begin), 1) if row.seq == seq)
            if self.rising or len(found) == len(wanted):
                return sorted(found)
        return [row for row in self.rows() if row.seq in wanted]

    def position(self, place: int) -> int:
        """Where in the index the row of a place begins, or its end."""
        return 0 if self.index is None else self.index.position(place)

    def _entry(self, row: IndexRecord, span: bytes) -> Entry | None:
        if not span or crc_of(span) != row.crc:
            return None
        try:
            return decode_entry(self.session_id, row.seq, row.turn, row.tokens, span, row.extra)
        except StoreError:
            return None


def fits(main: int | None, size: int, index: Index | None) -> tuple[IndexedHistory, IndexRecord | None] | None:
    """What the index says of the main file, and its last row, if it says all as far as that row tells; None if not.

    Costs the same however long the history is: damage further up is found when that is read.
    """
    found = index.last() if index is not None else None
    if index is None or found is None:
        return (IndexedHistory("", main), None) if size == 0 and (index is None or index.size == 0) else None
    row, end = found
    if main is None or row.end != size or crc_of(read_at(main, row.offset, row.length)) != row.crc:
        return None
    sound = Index(index.descriptor, end)
    return IndexedHistory("", main, size, sound, row.place + 1, top=row.top, rising=row.high is None), row
