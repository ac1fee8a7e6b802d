"""Reconciliation of the entries in memory with the entries in the store, where the two may differ.

They differ after an interrupted change, after damage, and after another program deleted entries of the store. An entry
in memory is never given up. An entry that is only in the store is inserted into the part of a resumed history that was
not loaded, or after the entry that it follows. Entries are identified by seq, never by index, so no entry comes twice.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType

from ..transcript.entry import Entry
from ..transcript.transcript import Snapshot


@dataclass(frozen=True, slots=True)
class Change:
    """A change that was sent to a store, and neither acknowledged nor refused yet."""

    keep: int  # number of leading entries that stay
    entries: Sequence[Entry] = ()  # the entries after them
    rewritten: frozenset[int] = frozenset()  # seqs of the entries whose messages it replaces; `entries` is then empty


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The history after memory and store were reconciled."""

    entries: list[Entry]
    missing: int  # number of entries that were not loaded and that the store does not hold any more
    unstored: int  # number of entries that the store does not hold
    common: int  # number of leading entries that the store holds at the same indices


def reconcile(
    snapshot: Snapshot,
    stored: Sequence[Entry],
    change: Change | None = None,
    single: Mapping[int, Entry] = MappingProxyType({}),
) -> Reconciled:
    """Reconcile a history with all entries of its store.

    Args:
        snapshot: the history before the change.
        change: the last change, if its outcome is unknown. The stored entries show whether it was made.
        single: entries of the snapshot's gap that memory holds, by seq.
    """
    gap, not_loaded = snapshot.gap, len(snapshot.gap)
    head, tail = snapshot[: gap.start], snapshot[gap.stop :]  # without a gap all is tail
    by_seq = {entry.seq: entry for entry in stored}
    if change is not None and change.rewritten:
        # The former message may be a secret, so the store decides which of the two remains.
        head, tail = (
            [by_seq.get(entry.seq, entry) if entry.seq in change.rewritten else entry for entry in part]
            for part in (head, tail)
        )
    elif change is not None and change.keep < gap.stop:  # a history that is not loaded was cleared
        if _was_made([*head, *tail], (), by_seq):
            head, tail, not_loaded = [], [], 0
    elif change is not None:
        tail = _after_change(tail, change.keep - gap.stop, change.entries, by_seq)
    in_head, in_tail = ({entry.seq for entry in part} for part in (head, tail))
    inner: list[Entry] = []  # what only the store holds before the tail
    following: dict[int, list[Entry]] = {}  # and after an entry of the tail, by its seq
    place = inner
    for entry in by_seq.values():
        if entry.seq in in_tail:
            place = following.setdefault(entry.seq, [])
        elif entry.seq not in in_head:
            place.append(entry)
    for seq, entry in single.items() if not_loaded else ():
        if seq not in by_seq and seq not in in_head and seq not in in_tail:
            insort(inner, entry, key=lambda one: one.seq)  # its index is unknown, its seq orders it
    order = [*head, *inner]
    for entry in tail:
        order += (entry, *following.get(entry.seq, ()))
    pairs = zip(order, stored, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0].seq == pair[1].seq, pairs))
    unstored = sum(1 for entry in order if entry.seq not in by_seq)
    return Reconciled(order, max(0, not_loaded - len(inner)), unstored, common)


def _after_change(entries: list[Entry], keep: int, new: Sequence[Entry], by_seq: Mapping[int, Entry]) -> list[Entry]:
    if keep == len(entries):  # an append: after a crash the store may hold only its beginning
        return [*entries, *(entry for entry in new if _is_stored(entry, by_seq))]
    return [*entries[:keep], *new] if _was_made(entries[keep:], new, by_seq) else entries


def _was_made(leaving: Sequence[Entry], entries: Sequence[Entry], by_seq: Mapping[int, Entry]) -> bool:
    """True if the stored entries show the change: a new entry, no removed entry, or the new order."""
    before = {entry.seq for entry in leaving}
    fresh = [entry for entry in entries if entry.seq not in before]
    if fresh:
        return any(_is_stored(entry, by_seq) for entry in fresh)
    left = before - {entry.seq for entry in entries}
    if left:
        return left.isdisjoint(by_seq)
    order = [entry.seq for entry in entries if entry.seq in by_seq]
    return order == [seq for seq in by_seq if seq in before]


def _is_stored(entry: Entry, by_seq: Mapping[int, Entry]) -> bool:
    stored = by_seq.get(entry.seq)
    return stored is not None and stored.message == entry.message
