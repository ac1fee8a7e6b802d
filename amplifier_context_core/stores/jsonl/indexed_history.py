"""A history read through its index: by entry index or by seq, holding in memory only what was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ...errors import StoreError
from ...transcript.entry import Entry
from ..codec import decode_entry
from .file_ops import read_at, yield_gil
from .index import Index, IndexDamaged, IndexRecord, crc_of, read_spans

_MAX_BISECTED_SEQS = 500  # seqs; above that, reading the whole index once costs less than bisecting for each


@dataclass(slots=True)
class IndexedHistory:
    """The entries of one session.

    Attributes:
        session_id: The session.
        main: Descriptor of the main file; None if it does not exist.
        size: Bytes of the main file that belong to this history.
        index: The index, with the records of the first `indexed_count` entries.
        indexed_count: Number of entries with a record in the index.
        unindexed: Records of the entries after those.
        max_seq: The highest seq of all entries.
        seqs_ascend: True if every seq is higher than all before it.
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
        """Number of entries."""
        return self.indexed_count + len(self.unindexed)

    def record(self, entry_index: int) -> IndexRecord:
        """Return the record of an existing entry."""
        for record in self.records(entry_index, entry_index + 1):
            return record
        raise IndexDamaged

    def records(self, start: int = 0, stop: int | None = None) -> Iterator[IndexRecord]:
        """Yield the records of a range of entries, in order.

        Raises:
            IndexDamaged: The index does not hold them as it should.
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
        """Return the entries of some records, None for each damaged one; and the records of the damaged ones."""
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
        """Return the records with these seqs, in the order of the history."""
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
        """Return the offset in the index of the record of an entry, or its end."""
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
    """Return the history and its last record if the last index record matches the end of the main file; None otherwise.

    The cost does not depend on the length of the history. Damage before the last record is found when it is read.
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
