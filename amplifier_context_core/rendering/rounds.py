"""Rounds: messages that must stay together.

A round is an assistant message with its tool calls and *their* results, parallel calls included, or one other
message. Strategies get rounds, never a flat list, so no strategy can separate a call from its result.

Pairing is by position, then id: a result answers the newest unanswered call of that id, because real sessions reuse
ids. A result without such a call is an orphan, and a round of its own. A result may come late, with other messages in
between; it still belongs to the round of its call. But words of a person stay in their place: a message with words of
a person and a late result is a round of its own, in which the result is an orphan.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..messages.parsing import LOADED_TOOLS, Result, metadata_of, results_of, text_of
from ..messages.reminders import is_native_context, is_summary_of_host
from ..transcript.entry import Entry
from .sendable import is_left_out

REACH = 1_000  # entries on either side of one, in which the rest of its round is looked for
_MAX_WAIT = 32  # rounds to wait for a result; no loop starts that many before it has all results of the first


@dataclass(frozen=True, slots=True)
class Round:
    """Entries that stay together, in the order of the history.

    Attributes:
        entries: the message, then, for calls, the results that came for them.
        unanswered: ids of calls without a result, in order.
    """

    entries: tuple[Entry, ...]
    unanswered: tuple[str, ...] = ()

    @property
    def head(self) -> Entry:
        """The first entry, which gives the round its position and its mark."""
        return self.entries[0]

    @property
    def first(self) -> int:
        return min(entry.seq for entry in self.entries)

    @property
    def last(self) -> int:
        return max(entry.seq for entry in self.entries)

    @property
    def tokens(self) -> int:
        """In the history."""
        return sum(entry.tokens for entry in self.entries)

    @property
    def is_tool_round(self) -> bool:
        return self.head.role == "assistant" and bool(self.head.call_ids)

    @property
    def is_human(self) -> bool:
        return any(entry.human for entry in self.entries)

    @property
    def is_pinned(self) -> bool:
        """True if one of its messages is pinned (``metadata.pinned: true``)."""
        return any(metadata_of(entry.message).get("pinned") is True for entry in self.entries)

    @property
    def holds_loaded_tools(self) -> bool:
        """True if a message has loaded-tool state, without which the model loses tools (docs/kernel.md)."""
        return any(LOADED_TOOLS in metadata_of(entry.message) for entry in self.entries)

    @property
    def is_native_context(self) -> bool:
        """True if it is a provider's own compaction of the conversation."""
        return is_native_context(metadata_of(self.head.message))

    def has_result_after(self, carriers: Iterable[int]) -> bool:
        """True if a result came after one of these messages, and its call before.

        A request that begins with a provider's own compaction shows no chapter from before that. In a chapter, such a
        result would be in no part of the request.
        """
        first, last = self.first, self.last
        return any(first < seq < last for seq in carriers)


class Results:
    """The results of a round, in order. A call takes the first one of its id that is left, in O(1)."""

    __slots__ = ("_by_call", "_left")

    def __init__(self, entries: Iterable[Entry]) -> None:
        found = ((entry, result) for entry in entries for result in results_of(entry.message))
        self._left = dict(enumerate(found))
        self._by_call: dict[str, deque[int]] = {}
        for number, (_, result) in self._left.items():
            self._by_call.setdefault(result.call_id, deque()).append(number)

    def take(self, call_id: str) -> tuple[Entry, Result] | None:
        numbers = self._by_call.get(call_id)
        return self._left.pop(numbers.popleft()) if numbers else None

    def left(self) -> Iterator[tuple[Entry, Result]]:
        """Yield the results that no call has taken."""
        yield from self._left.values()


@dataclass(slots=True)
class _Growing:
    """A round while results join it. The `Round` is built when the list is read, not for each result."""

    entries: list[Entry]
    waiting: list[str]  # ids of calls, in order
    # Number of the first calls of each id that have their result.
    answered: Counter[str] = field(default_factory=Counter[str])
    open: int = 0  # number of calls without a result

    def made(self) -> Round:
        return Round(tuple(self.entries), _without(self.waiting, self.answered))


class RoundList:
    """Rounds of a growing list of entries, updated incrementally in O(1) per entry.

    A call waits for its result until an assistant has answered a newer human message, or a host's summary of what was
    before, or for many rounds. Until then no compaction may cover its round. The limit keeps a call that is never
    answered from stopping compactions for ever. A result that comes later still joins its call.

    A result that the host put in the place of another, as of a job that runs, may be replaced again. Its round is not
    `final` for as many rounds: an edit of what a compaction covered is followed by a compaction.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._rounds: list[Round] = []
        self._growing: dict[int, _Growing] = {}  # by index, rounds that results joined since the list was last read
        self._open: dict[str, list[int]] = {}  # call id -> indices of rounds where it waits, oldest first
        self._waiting_at: set[int] = set()  # indices of rounds with open calls
        self._replaced_at: set[int] = set()  # indices of rounds with replaced results, until these have waited as long
        self._last_seq = 0  # of the entry before the next
        self._newest_human = 0  # rounds before this index are older than the newest human message
        self._closed_before = 0  # rounds before this index no longer wait for results
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._rounds)

    @property
    def rounds(self) -> list[Round]:
        """A round that nothing joined is the same object as before."""
        for index, growing in self._growing.items():
            self._rounds[index] = growing.made()
        self._growing.clear()
        return self._rounds

    def add(self, entry: Entry) -> int:
        """Add the next entry to its round; return the lowest index of a round that is new or changed."""
        changed = len(self._rounds)
        is_replaced = 0 < self._last_seq < entry.seq - 1  # seqs are never assigned again
        self._last_seq = entry.seq
        homes = self._homes(entry)
        waiting = _waiting(entry, homes)
        if homes:
            changed = self._join(entry, homes, waiting)
            if is_replaced:
                self._replaced_at.add(changed)
        else:
            self._rounds.append(Round((entry,), waiting))
        if waiting:
            self._waiting_at.add(changed)
            for call in waiting:
                self._open.setdefault(call, []).append(changed)
        if entry.human or (entry.role == "user" and is_summary_of_host(text_of(entry.message.get("content")))):
            self._newest_human = changed
        elif entry.role == "assistant":
            self._close_before(max(self._newest_human, len(self._rounds) - _MAX_WAIT))
            self._replaced_at = {index for index in self._replaced_at if index >= len(self._rounds) - _MAX_WAIT}
        return changed

    @property
    def closed(self) -> int:
        """Number of leading rounds that are complete: those before the oldest that waits for results."""
        return min(self._waiting_at, default=len(self._rounds))

    @property
    def final(self) -> int:
        """Number of leading rounds that are complete and have no result that its host may replace again."""
        return min(self._replaced_at | {self.closed})

    def _homes(self, entry: Entry) -> list[tuple[int, str]]:
        homes: list[tuple[int, str]] = []
        for call in entry.answered_ids:
            waiting = self._open.get(call)
            if waiting:
                homes.append((waiting.pop(), call))
                if not waiting:
                    del self._open[call]
        shown = [home for home in homes if not is_left_out(self._rounds[home[0]].head.message)]
        if entry.human:
            return self._on_time(shown)
        # A message that answers only calls which views leave out is left out with them. Any other is in no round of
        # such a call, which stays without a result.
        return shown if shown or len(homes) < len(entry.answered_ids) else homes

    def _on_time(self, homes: list[tuple[int, str]]) -> list[tuple[int, str]]:
        """Return the homes that no message of a person or an assistant follows, except in other homes."""
        indices = {index for index, _ in homes}
        for index in range(len(self._rounds) - 1, min(indices, default=len(self._rounds)), -1):
            later = self._rounds[index]
            if index not in indices and (later.is_human or later.head.role == "assistant"):
                return [home for home in homes if home[0] > index]
        return homes

    def _join(self, entry: Entry, homes: list[tuple[int, str]], waiting: tuple[str, ...]) -> int:
        indices = sorted({index for index, _ in homes})
        if len(indices) > 1:
            return self._merge(entry, homes, waiting, indices)
        (target,) = indices
        growing = self._growing.get(target)
        if growing is None:
            round_ = self._rounds[target]
            growing = _Growing(list(round_.entries), list(round_.unanswered), open=len(round_.unanswered))
            self._growing[target] = growing
        growing.entries.append(entry)
        growing.waiting.extend(waiting)
        growing.answered.update(call for _, call in homes)
        growing.open += len(waiting) - len(homes)
        if not growing.open:
            self._waiting_at.discard(target)
            self._rounds[target] = self._growing.pop(target).made()
        return target

    def _merge(
        self, entry: Entry, homes: list[tuple[int, str]], waiting: tuple[str, ...], indices: Sequence[int]
    ) -> int:
        """One message may answer calls of several rounds (Anthropic's form)."""
        rounds = self.rounds
        answered: dict[int, Counter[str]] = {index: Counter() for index in indices}
        for index, call in homes:
            answered[index][call] += 1
        target = indices[0]
        members = [member for index in indices for member in rounds[index].entries]
        left_open = [call for index in indices for call in _without(rounds[index].unanswered, answered[index])]
        rounds[target] = Round((*members, entry), (*left_open, *waiting))
        self._drop(indices[1:], target)
        if not rounds[target].unanswered:
            self._waiting_at.discard(target)
        return target

    def _drop(self, merged: Sequence[int], target: int) -> None:
        """Remove merged rounds from the list, and move the later rounds up."""
        moved: dict[int, int] = {}
        kept: list[Round] = []
        gone = frozenset(merged)
        for index in range(merged[0], len(self._rounds)):
            moved[index] = target if index in gone else merged[0] + len(kept)
            if index not in gone:
                kept.append(self._rounds[index])
        self._rounds[merged[0] :] = kept
        for waiting in self._open.values():
            waiting[:] = sorted(moved.get(index, index) for index in waiting)
        self._waiting_at = {moved.get(index, index) for index in self._waiting_at}
        self._replaced_at = {moved.get(index, index) for index in self._replaced_at}
        self._newest_human = moved.get(self._newest_human, self._newest_human)
        self._closed_before = moved.get(self._closed_before, self._closed_before)

    def _close_before(self, before: int) -> None:
        """Stop waiting for results of rounds before this index, so that a compaction may cover them."""
        if before > self._closed_before:
            self._waiting_at = {index for index in self._waiting_at if index >= before}
            self._closed_before = before


def _waiting(entry: Entry, homes: list[tuple[int, str]]) -> tuple[str, ...]:
    """Return the calls that an assistant's message makes and does not answer itself."""
    if not entry.call_ids or entry.role != "assistant":
        return ()
    own = Counter(entry.answered_ids)
    own.subtract(call for _, call in homes)
    return _without(entry.call_ids, own)


def _without(calls: Sequence[str], answered: Counter[str]) -> tuple[str, ...]:
    """Return ids without the first ones of each id, as many as are answered."""
    if not answered:
        return tuple(calls)
    left = Counter(answered)
    kept: list[str] = []
    for call in calls:
        if left[call] > 0:
            left[call] -= 1
        else:
            kept.append(call)
    return tuple(kept)


def rounds_of(entries: Iterable[Entry]) -> list[Round]:
    return RoundList(entries).rounds


def rounds_with(seqs: Collection[int], history: Sequence[Entry]) -> dict[int, Round]:
    """Return the rounds of entries, by seq; calls and results are searched for within `REACH` entries.

    No entry is paired twice, however many rounds are asked for.
    """
    found: dict[int, Round] = {}
    for start, stop in _near([place for place, entry in enumerate(history) if entry.seq in seqs]):
        for round_ in RoundList(history[start:stop]).rounds:
            found.update((entry.seq, round_) for entry in round_.entries if entry.seq in seqs)
    return found


def _near(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges, from and to, within `REACH` of ascending places; ranges that overlap are one."""
    start = stop = 0
    for place in places:
        if place - REACH > stop:
            if stop:
                yield start, stop
            start = place - REACH
        stop = place + REACH
    if stop:
        yield start, stop
