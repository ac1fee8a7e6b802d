"""Joining what memory holds of a history with what its store holds, where the two may differ.

They differ after a change that was broken off, after damage, and after somebody else deleted what the store kept.
An entry that memory holds is never given up. What only the store holds goes to its place: into the part of a resumed
history that was not loaded, or behind the entry it follows. Entries are identified by their seqs, never by their
places, so none can come twice.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ..transcript.transcript import Entry, Snapshot


@dataclass(frozen=True, slots=True)
class Change:
    """A change that was given to a store, and neither acknowledged nor refused yet.

    Attributes:
        keep: entries at the beginning that stay.
        entries: what comes after them.
        rewritten: seqs whose messages it puts in place of others; with these, `entries` is empty.
    """

    keep: int
    entries: Sequence[Entry] = ()
    rewritten: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The history after memory and store were joined.

    Attributes:
        entries: all of it, in order.
        missing: entries that were not loaded, and that the store does not hold any more.
        unstored: entries that the store does not hold.
        common: entries at the beginning that the store holds at the same places.
    """

    entries: list[Entry]
    missing: int
    unstored: int
    common: int


@dataclass(slots=True)
class _Memory:
    """What memory holds: the entries before and after a number of them that were not loaded."""

    head: list[Entry]
    gap: int = 0
    tail: list[Entry] = field(default_factory=list[Entry])


def reconcile(
    snapshot: Snapshot,
    stored: Sequence[Entry],
    change: Change | None = None,
    single: Mapping[int, Entry] = MappingProxyType({}),
) -> Reconciled:
    """Join a history with all that its store holds.

    Args:
        snapshot: the history before the change.
        stored: the entries in the store, in order.
        change: the last change, if its end is not known. Whether it was made is read off what is stored.
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
    """What memory would hold now, if a change was made; what it held, if not."""
    if change.rewritten:  # the former message may be a secret: the store says which of the two it is now
        head, tail = (
            [by_seq.get(entry.seq, entry) if entry.seq in change.rewritten else entry for entry in part]
            for part in (memory.head, memory.tail)
        )
        return _Memory(head, memory.gap, tail)
    cuts_tail = bool(gap) and change.keep >= gap.stop
    part, keep = (memory.tail, change.keep - gap.stop) if cuts_tail else (memory.head, change.keep)
    leaving = part[keep:] if cuts_tail else [*part[keep:], *memory.tail]
    entries = change.entries
    if not leaving:  # an append: a crash may have left a beginning of it
        entries = [entry for entry in entries if _is_stored(entry, by_seq)]
    elif not _was_made(leaving, entries, by_seq):
        return memory
    changed = [*part[:keep], *entries]
    return _Memory(memory.head, memory.gap, changed) if cuts_tail else _Memory(changed)


def _was_made(leaving: Sequence[Entry], entries: Sequence[Entry], by_seq: dict[int, Entry]) -> bool:
    """True if a store holds what a change leaves behind: a new entry, none that left, or the new order."""
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
    """What memory holds and in between what only the store holds; how many of these were not loaded."""
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
            if entry.seq not in in_head and entry.seq not in in_tail:  # its place is not known, its age is
                insort(inner, entry, key=_seq)
    order = following.pop(None, [])
    for part, after in ((memory.head, inner), (memory.tail, ())):
        for entry in part:
            order.append(entry)
            order.extend(following.pop(entry.seq, ()))
        order.extend(after)
    return order, len(inner)


def _seq(entry: Entry) -> int:
    return entry.seq
