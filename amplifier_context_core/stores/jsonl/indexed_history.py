"""A history as main file and index tell it: read by place or by seq, without holding more of it than was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ...errors import StoreError
from ...transcript.transcript import Entry
from ..codec import decode_entry
from .file_ops import read_at, yield_gil
from .index import Index, IndexDamaged, IndexRecord, crc_of, read_spans

_MAX_BISECTED_SEQS = 500  # seqs looked for: reading the whole index once is cheaper than halving it so often


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
    indexed_count: int = 0
    unindexed: list[IndexRecord] = field(default_factory=list[IndexRecord])
    max_seq: int = 0
    seqs_ascend: bool = True

    @property
    def length(self) -> int:
        """Entries of the history."""
        return self.indexed_count + len(self.unindexed)

    def record(self, entry_index: int) -> IndexRecord:
        """The row of a place there is."""
        for record in self.records(entry_index, entry_index + 1):
            return record
        raise IndexDamaged

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[IndexRecord]:
        """The rows of these places, in order.

        Raises:
            IndexDamaged: the index does not have them as it should.
        """
        stop = self.length if stop is None else min(stop, self.length)
        if start < min(stop, self.indexed_count):
            if self.index is None:
                raise IndexDamaged
            indexed_stop = min(stop, self.indexed_count)
            entry_index = start
            for _, record in islice(self.index.records(self.index.offset_of(start)), indexed_stop - start):
                if record.entry_index != entry_index:
                    raise IndexDamaged
                yield record
                entry_index += 1
            if entry_index != indexed_stop:
                raise IndexDamaged
        yield from self.unindexed[max(0, start - self.indexed_count) : max(0, stop - self.indexed_count)]

    def read(self, records: Iterator[IndexRecord]) -> tuple[list[Entry | None], list[IndexRecord]]:
        """The entries of some rows, None for what is damaged; and the rows of those."""
        found: list[Entry | None] = []
        damaged: list[IndexRecord] = []
        if self.main is None:
            return found, damaged
        for record, span in read_spans(self.main, self.size, records):
            entry = self._decode(record, span)
            if entry is None:
                damaged.append(record)
            found.append(entry)
            yield_gil()
        return found, damaged

    def find_records(self, seqs: Sequence[int]) -> list[IndexRecord]:
        """The rows of these seqs, in the order of the history."""
        wanted = {seq for seq in seqs if 0 < seq <= self.max_seq}
        if not wanted:
            return []
        found = [record for record in self.unindexed if record.seq in wanted]
        if self.index is not None and len(wanted) <= _MAX_BISECTED_SEQS:
            for seq in wanted.difference(record.seq for record in found):
                begin = self.index.bisect(lambda record, seq=seq: record.seq >= seq)
                found.extend(record for _, record in islice(self.index.records(begin), 1) if record.seq == seq)
            if self.seqs_ascend or len(found) == len(wanted):
                return sorted(found)
        return [record for record in self.records() if record.seq in wanted]

    def index_offset_of(self, entry_index: int) -> int:
        """Where in the index the row of a place begins, or its end."""
        return 0 if self.index is None else self.index.offset_of(entry_index)

    def _decode(self, record: IndexRecord, span: bytes) -> Entry | None:
        if not span or crc_of(span) != record.crc:
            return None
        try:
            return decode_entry(self.session_id, record.seq, record.turn, record.tokens, span, record.extra)
        except StoreError:
            return None


def open_if_consistent(
    main: int | None, size: int, index: Index | None
) -> tuple[IndexedHistory, IndexRecord | None] | None:
    """What the index says of the main file, and its last row, if it says all as far as that row tells; None if not.

    Costs the same however long the history is: damage further up is found when that is read.
    """
    last = index.last_record() if index is not None else None
    if index is None or last is None:
        return (IndexedHistory("", main), None) if size == 0 and (index is None or index.size == 0) else None
    record, end = last
    if main is None or record.end != size or crc_of(read_at(main, record.offset, record.length)) != record.crc:
        return None
    intact = Index(index.descriptor, end)
    return IndexedHistory(
        "",
        main,
        size,
        intact,
        record.entry_index + 1,
        max_seq=record.max_seq,
        seqs_ascend=record.stated_max_seq is None,
    ), record
