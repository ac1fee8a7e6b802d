"""History: entries are only ever appended.

The order is the index in the list. A change (an interrupt, an edit by the host) makes a new list of the same immutable
entries. So an older `Snapshot` does not change, and a mark never names another message.

Pure: no I/O, no clock, no lock. Appending to one transcript from several threads needs the history's lock. Reading a
snapshot needs none.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from ..errors import NotLoaded
from ..messages.parsing import SYSTEM_ROLES, Message, MessageInfo, copy_message
from ..messages.usage import Response
from .entry import Entry


def count_leading(entries: Sequence[Entry], length: int) -> int:
    """Count leading instructions (system, developer): the system prompt, which is outside every view."""
    count = 0
    while count < length and entries[count].role in SYSTEM_ROLES:
        count += 1
    return count


class Snapshot(Sequence[Entry]):
    """The history at one moment. It takes O(1) to make and never changes.

    Of a resumed session it may hold only a part of the entries. Access to one of the others (`gap`, their indices)
    raises `NotLoaded`.
    """

    __slots__ = ("_count", "_entries", "_length", "gap", "revision")

    def __init__(self, entries: list[Entry], count: int, revision: int, gap: range = range(0)) -> None:
        self._entries = entries  # without the entries of the gap
        self._count = count  # how many of them
        self._length = count + len(gap)
        self.revision = revision
        self.gap = gap

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        if isinstance(index, slice):
            positions = range(*index.indices(self._length))
            if positions.step != 1:
                return [self[position] for position in positions]
            if self.gap and positions and positions.start < self.gap.stop and positions.stop > self.gap.start:
                raise NotLoaded(max(positions.start, self.gap.start))
            moved = len(self.gap) if self.gap and positions.start >= self.gap.stop else 0
            return self._entries[positions.start - moved : positions.stop - moved]
        if not -self._length <= index < self._length:
            raise IndexError("snapshot index out of range")
        position = index if index >= 0 else index + self._length
        if self.gap:
            if position in self.gap:
                raise NotLoaded(position)
            position -= len(self.gap) if position >= self.gap.stop else 0
        return self._entries[position]

    def __iter__(self) -> Iterator[Entry]:
        entries = self._entries
        for index in range(self.gap.start if self.gap else self._length):
            yield entries[index]
        if self.gap:
            raise NotLoaded(self.gap.start)

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Snapshot:
        if isinstance(entries, Snapshot):
            return entries
        copied = list(entries)
        return cls(copied, len(copied), 0)

    def begins_with(self, earlier: Sequence[Entry]) -> bool:
        """True if all entries of an earlier history are the first of this one, unchanged."""
        if isinstance(earlier, Snapshot) and earlier._entries is self._entries and earlier.gap == self.gap:
            return earlier._count <= self._count  # a list of entries only grows
        return len(earlier) <= len(self) and all(map(operator.is_, earlier, self))

    def find(self, seq: int) -> Entry | None:
        """Return the entry with this seq, or None. A binary search: seqs rise except where a host inserted messages."""
        low, high = self.gap.start if self.gap else 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._entries[middle].seq < seq:
                low = middle + 1
            else:
                high = middle
        if low < self._count and self._entries[low].seq == seq:
            return self._entries[low]
        found = next((position for position in range(self._count) if self._entries[position].seq == seq), None)
        if found is None and self.gap:
            raise NotLoaded(self.gap.start)
        return None if found is None else self._entries[found]

    @property
    def leading_count(self) -> int:
        """Number of instructions (system, developer) before the first other message."""
        return count_leading(self._entries, self._count)


class CopyingSnapshot(Snapshot):
    """A snapshot for callers that may change what they get: each entry that is read has a copy of its message."""

    __slots__ = ()

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot._entries, snapshot._count, snapshot.revision, snapshot.gap)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        found = super().__getitem__(index)
        return copy_entry(found) if isinstance(found, Entry) else [copy_entry(entry) for entry in found]

    def __iter__(self) -> Iterator[Entry]:
        return (copy_entry(entry) for entry in super().__iter__())

    def find(self, seq: int) -> Entry | None:
        found = super().find(seq)
        return None if found is None else copy_entry(found)


class Transcript:
    """The history of one session.

    Attributes:
        session_id: written into new entries.
        turn_count: turns so far.
    """

    __slots__ = ("_edits", "_next_seq", "_state", "session_id", "turn", "turn_count")

    def __init__(self, session_id: str = "") -> None:
        self.session_id = session_id
        self.turn_count = 0
        # Entries, the number of them that are the history, the revision, and the indices that are only in the store
        # (their entries are not in the list). They are one tuple, so that a reader in another thread never sees a mix
        # of the values before and after a change.
        self._state: tuple[list[Entry], int, int, range] = ([], 0, 0, range(0))
        self._edits: list[tuple[int, int]] = []  # (revision, entries left as they were, see unchanged_since)
        self._next_seq = 1
        self.turn = 0  # number of the current one; 0 before the first

    @classmethod
    def resumed(
        cls,
        session_id: str,
        head: Sequence[Entry],
        tail: Sequence[Entry],
        *,
        length: int,
        last_seq: int,
        turns_before: int = 0,
    ) -> Transcript:
        """Return a transcript of which the beginning and the end are loaded, and the middle is not.

        `head` holds the first entries; if some are not loaded, at least the leading instructions and one more.
        `turns_before` counts the turns that begin before the `tail`.
        """
        made = cls(session_id)
        gap = range(len(head), length - len(tail))
        made._state = ([*head, *tail], len(head) + len(tail), 0, gap)
        made._next_seq = last_seq + 1
        made.turn = max((entry.turn for entry in (*head, *tail)), default=0)
        made.turn_count = turns_before + sum(1 for entry in tail if entry.human)
        return made

    def take_place_of(self, former: Transcript) -> None:
        """Continue the revisions of a transcript; at none of them was any entry the same."""
        loaded, length, _, gap = self._state
        self._edits = [(former.revision + 1, 0)]
        self._state = (loaded, length, former.revision + 1, gap)

    def fill_gap(self, entries: Sequence[Entry]) -> None:
        loaded, length, revision, gap = self._state
        if len(entries) != len(gap):
            raise ValueError(f"the gap has {len(gap)} places, not {len(entries)}")
        whole = [*loaded[: gap.start], *entries, *loaded[gap.start : length]]
        self._state = (whole, len(whole), revision, range(0))

    def __len__(self) -> int:
        return self._state[1] + len(self._state[3])

    @property
    def gap(self) -> range:
        """Indices of the entries that are only in the store."""
        return self._state[3]

    @property
    def revision(self) -> int:
        """Rises with every change that is not an append."""
        return self._state[2]

    @property
    def last(self) -> Entry | None:
        entries, length, _, _ = self._state
        return entries[length - 1] if length else None

    @property
    def last_seq(self) -> int:
        """The highest seq ever given, also to entries that are gone; 0 before the first."""
        return self._next_seq - 1

    def snapshot(self) -> Snapshot:
        return Snapshot(*self._state)

    def draft(
        self,
        message: Message,
        info: MessageInfo,
        tokens: int,
        *,
        created: str,
        completed: str | None = None,
        response: Response | None = None,
        turn: int | None = None,
    ) -> Entry:
        """Return a new entry with the next seq, not yet part of the history.

        Args:
            message: a checked copy, owned by the transcript from now on.
            created: ISO 8601, UTC.
            completed: ISO 8601, UTC; `created` when not given.
            turn: by default the current one, or the next for a human message.
        """
        if turn is None:
            turn = self.turn + 1 if info.human else self.turn
        entry = Entry.of(
            self._next_seq,
            message,
            info,
            turn=turn,
            tokens=tokens,
            session_id=self.session_id,
            created=created,
            completed=completed or None,
            response=response,
        )
        self._next_seq += 1
        return entry

    def append(self, entry: Entry) -> None:
        self.extend((entry,))

    def extend(self, added: Sequence[Entry]) -> None:
        entries, length, revision, gap = self._state
        entries.extend(added)
        self._state = (entries, length + len(added), revision, gap)
        turns = [entry.turn for entry in added if entry.human]
        self.turn_count += len(turns)
        self.turn = max((self.turn, *turns))

    def replace(self, keep: int, entries: Sequence[Entry] = ()) -> None:
        """Keep the first `keep` entries, followed by these entries (old or drafted).

        Snapshots still show the old history. Raises `NotLoaded`: an entry that is replaced is only in the store.
        """
        before, length, _, gap = self._state
        if gap and keep <= gap.stop:
            raise NotLoaded(keep)
        keep -= len(gap)
        after = [*before[:keep], *entries]
        start = count_leading(before, length)
        if count_leading(after, len(after)) == start <= keep:
            same = keep - start + len(gap) + common_prefix_length(before[keep:length], entries)
        else:
            same = common_prefix_length(before[start:length], after[count_leading(after, len(after)) :])
        gone = sum(1 for entry in before[keep:length] if entry.human)
        self._change(after, same, gap)
        self.turn_count += sum(1 for entry in entries if entry.human) - gone
        if after:
            self.turn = max(after[keep - 1].turn if keep else 0, *(entry.turn for entry in after[keep:]), 0)

    def reload(self, entries: Sequence[Entry]) -> None:
        """Make these entries the history, after it was compared with the store.

        Entries in memory that keep their index do not count as changed.
        """
        before, length, _, gap = self._state
        outer = [*entries[: gap.start], *entries[gap.stop :]]
        if len(entries) == len(self) and common_prefix_length(before, outer) == length:
            self.fill_gap(entries[gap.start : gap.stop])
            return
        spoken = entries[count_leading(entries, len(entries)) :]
        self._change([*entries], common_prefix_length(before[count_leading(before, length) : length], spoken))
        self._next_seq = max(self._next_seq, *(entry.seq + 1 for entry in entries), 0)
        self.turn = max((entry.turn for entry in entries), default=0)
        self.turn_count = sum(1 for entry in entries if entry.human)

    def unchanged_since(self, revision: int) -> int:
        """Count entries after the leading instructions that are the same, in order, as at a revision."""
        if revision == self.revision:
            return len(self)
        if not self._edits or revision < self._edits[0][0] - 1:
            return 0
        return min(same for edit, same in self._edits if edit > revision)

    def clear(self) -> None:
        """Remove all entries. Seqs continue where they were."""
        self._change([], 0)
        self.turn = self.turn_count = 0

    def _change(self, entries: list[Entry], same: int, gap: range = range(0)) -> None:
        """Make a list the history; `same` of its entries after the leading instructions are as they were."""
        self._edits = [*self._edits[-63:], (self.revision + 1, same)]
        self._state = (entries, len(entries), self.revision + 1, gap)

    def current_turn(self) -> list[Entry]:
        """Return the entries of the newest turn: its human message and all that follow.

        Before the first human message these are all but the leading instructions (system, developer).
        """
        history = self.snapshot()
        start = len(history)
        while start > 0 and not history[start - 1].human:
            start -= 1
        return history[start - 1 if start else history.leading_count :]


def common_prefix_length(before: Sequence[object], after: Sequence[object]) -> int:
    same = 0
    for old, new in zip(before, after, strict=False):
        if old is not new:
            break
        same += 1
    return same


def copy_entry(entry: Entry) -> Entry:
    return entry._replace(message=copy_message(entry.message))
