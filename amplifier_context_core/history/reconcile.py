"""Reconciliation of the entries in memory with the entries in the store, where the two may differ.

They differ after an interrupted change, after damage, and after another program deleted entries of the store. An entry
in memory is never given up. An entry that is only in the store is inserted into the part of a resumed history that was
not loaded, or after the entry that it follows. Entries are identified by seq, never by index, so no entry comes twice.
Pure: no I/O, no clock.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class _Memory:
    """The entries in memory, before and after a gap of entries that were not loaded."""

    head: list[Entry]
    gap: int = 0
    tail: list[Entry] = field(default_factory=list[Entry])


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
    memory = _in_memory(snapshot)
    by_seq = {entry.seq: entry for entry in stored}
    if change is not None:
        memory = _after_change(memory, change, snapshot.gap, by_seq)
    order, loaded = _merged(memory, by_seq.values(), [entry for seq, entry in single.items() if seq not in by_seq])
    common = 0
    for ours, theirs in zip(order, stored, strict=False):
        if ours.seq != theirs.seq:
            break
        common += 1
    unstored = sum(1 for entry in order if entry.seq not in by_seq)
    return Reconciled(order, max(0, memory.gap - loaded), unstored, common)


def _in_memory(snapshot: Snapshot) -> _Memory:
    gap = snapshot.gap
    return _Memory(snapshot[: gap.start], len(gap), snapshot[gap.stop :]) if gap else _Memory(snapshot[:])


def _after_change(memory: _Memory, change: Change, gap: range, by_seq: dict[int, Entry]) -> _Memory:
    """Return the entries of memory with the change, if the store made it; else without."""
    if change.rewritten:  # the former message may be a secret, so the store decides which of the two remains
        head, tail = (
            [by_seq.get(entry.seq, entry) if entry.seq in change.rewritten else entry for entry in part]
            for part in (memory.head, memory.tail)
        )
        return _Memory(head, memory.gap, tail)
    cuts_tail = bool(gap) and change.keep >= gap.stop
    part, keep = (memory.tail, change.keep - gap.stop) if cuts_tail else (memory.head, change.keep)
    leaving = part[keep:] if cuts_tail else [*part[keep:], *memory.tail]
    entries = change.entries
    if not leaving:  # an append: after a crash the store may hold only its beginning
        entries = [entry for entry in entries if _is_stored(entry, by_seq)]
    elif not _was_made(leaving, entries, by_seq):
        return memory
    changed = [*part[:keep], *entries]
    return _Memory(memory.head, memory.gap, changed) if cuts_tail else _Memory(changed)


def _was_made(leaving: Sequence[Entry], entries: Sequence[Entry], by_seq: dict[int, Entry]) -> bool:
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


def _is_stored(entry: Entry, by_seq: dict[int, Entry]) -> bool:
    stored = by_seq.get(entry.seq)
    return stored is not None and stored.message == entry.message


def _merged(memory: _Memory, stored: Iterable[Entry], single: Sequence[Entry]) -> tuple[list[Entry], int]:
    """Return the entries of memory and store in order, and how many entries of the gap the store holds."""
    in_head = {entry.seq for entry in memory.head}
    in_tail = {entry.seq for entry in memory.tail}
    inner: list[Entry] = []
    following: dict[int | None, list[Entry]] = {}  # by the seq of the entry in memory that they follow
    last: int | None = None
    for entry in stored:
        if entry.seq in in_head or entry.seq in in_tail:
            last = entry.seq
        elif memory.gap and last not in in_tail:
            inner.append(entry)
        else:
            following.setdefault(last, []).append(entry)
    if memory.gap:
        for entry in single:
            if entry.seq not in in_head and entry.seq not in in_tail:  # its index is unknown, its seq orders it
                insort(inner, entry, key=lambda one: one.seq)
    order = following.pop(None, [])
    for part, after in ((memory.head, inner), (memory.tail, ())):
        for entry in part:
            order.append(entry)
            order.extend(following.pop(entry.seq, ()))
        order.extend(after)
    return order, len(inner)
