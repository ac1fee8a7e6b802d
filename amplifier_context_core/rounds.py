"""Rounds: what must stay together.

A round is an assistant message with its tool calls and *their* results, parallel calls included, or one other
message. Strategies are given rounds, never a flat list, so none of them can part a call from its result.

Pairing is by position, then id: a result answers the newest call of that id that is still unanswered, because real
sessions reuse ids. A result that finds no such call is an orphan, and a round of its own. A result may come late, with
other messages in between; it still belongs to its call's round.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .messages import LOADED_TOOLS, metadata_of
from .transcript import Entry

_PATIENCE = 32  # rounds a call is waited for: far more than any loop starts before it has all results of the first


@dataclass(frozen=True, slots=True)
class Round:
    """Entries that stay together, in the order of history.

    Attributes:
        entries: the message, then, for calls, the results that came for them.
        unanswered: ids of calls without a result, in order.
    """

    entries: tuple[Entry, ...]
    unanswered: tuple[str, ...] = ()

    @property
    def head(self) -> Entry:
        """The first entry, which gives the round its place and its mark."""
        return self.entries[0]

    @property
    def first(self) -> int:
        """Lowest seq."""
        return min(entry.seq for entry in self.entries)

    @property
    def last(self) -> int:
        """Highest seq."""
        return max(entry.seq for entry in self.entries)

    @property
    def tokens(self) -> int:
        """Tokens of its messages as they stand in history."""
        return sum(entry.tokens for entry in self.entries)

    @property
    def is_tool_round(self) -> bool:
        """Does it make tool calls (as an assistant)?"""
        return self.head.role == "assistant" and bool(self.head.calls)

    @property
    def is_human(self) -> bool:
        """Did a human write any of it?"""
        return any(entry.human for entry in self.entries)

    @property
    def is_pinned(self) -> bool:
        """Does a message ask to survive (``metadata.pinned: true``)?"""
        return any(metadata_of(entry.message).get("pinned") is True for entry in self.entries)

    @property
    def holds_loaded_tools(self) -> bool:
        """Does a message carry loaded-tool state, without which tools vanish for the model (KERNEL.md)?"""
        return any(LOADED_TOOLS in metadata_of(entry.message) for entry in self.entries)


class RoundList:
    """Rounds of a growing list of entries, kept up as entries come; O(1) an entry.

    A call is waited for until a newer human message has itself been answered by an assistant, or for many rounds:
    so long no compaction may cover its round, but a call that nobody answers must not stop compactions for ever. A
    result that comes later still finds its call.
    """

    __slots__ = ("_asked", "_at", "_open", "_settled", "rounds")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.rounds: list[Round] = []
        self._open: dict[str, list[int]] = {}  # call id -> indices of rounds where it waits, oldest first
        self._at: set[int] = set()  # indices of rounds with open calls
        self._asked = 0  # rounds before this index are older than the newest human message
        self._settled = 0  # rounds before this index can receive no result any more
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self.rounds)

    def add(self, entry: Entry) -> int:
        """Put the next entry in its round; returns the lowest index of a round that is new or changed."""
        changed = len(self.rounds)
        homes = self._homes(entry)
        waiting = _waiting(entry, homes)
        if homes:
            changed = self._join(entry, homes, waiting)
        else:
            self.rounds.append(Round((entry,), waiting))
        if waiting:
            self._at.add(changed)
            for call in waiting:
                self._open.setdefault(call, []).append(changed)
        if entry.human:
            self._asked = changed
        elif entry.role == "assistant":
            self._settle(max(self._asked, len(self.rounds) - _PATIENCE))
        return changed

    @property
    def closed(self) -> int:
        """How many leading rounds can change no more: those before the oldest round whose calls are still open."""
        return min(self._at, default=len(self.rounds))

    def _homes(self, entry: Entry) -> list[tuple[int, str]]:
        homes: list[tuple[int, str]] = []
        for call in entry.answers:
            waiting = self._open.get(call)
            if waiting:
                homes.append((waiting.pop(), call))
                if not waiting:
                    del self._open[call]
        return homes

    def _join(self, entry: Entry, homes: list[tuple[int, str]], waiting: tuple[str, ...]) -> int:
        indices = sorted({index for index, _ in homes})
        target = indices[0]
        for index, call in homes:
            held = self.rounds[index]
            left = list(held.unanswered)
            left.remove(call)
            self.rounds[index] = Round(held.entries, tuple(left))
        # One message may answer calls of several rounds (Anthropic's form): they become one.
        members = [member for index in indices for member in self.rounds[index].entries]
        left_open = (*(call for index in indices for call in self.rounds[index].unanswered), *waiting)
        self.rounds[target] = Round((*members, entry), left_open)
        if len(indices) > 1:
            self._drop(indices[1:], target)
        if not left_open:
            self._at.discard(target)
        return target

    def _drop(self, merged: list[int], target: int) -> None:
        """Take merged rounds out of the list; everything behind the first of them moves up."""
        moved: dict[int, int] = {}
        kept: list[Round] = []
        for index in range(merged[0], len(self.rounds)):
            moved[index] = target if index in merged else merged[0] + len(kept)
            if index not in merged:
                kept.append(self.rounds[index])
        self.rounds[merged[0] :] = kept
        for waiting in self._open.values():
            waiting[:] = sorted(moved.get(index, index) for index in waiting)
        self._at = {moved.get(index, index) for index in self._at}
        self._asked = moved.get(self._asked, self._asked)
        self._settled = moved.get(self._settled, self._settled)

    def _settle(self, before: int) -> None:
        """Rounds before this index wait no longer: no compaction has to spare them. A result may still come."""
        if before > self._settled:
            self._at = {index for index in self._at if index >= before}
            self._settled = before


def _waiting(entry: Entry, homes: list[tuple[int, str]]) -> tuple[str, ...]:
    """The calls an assistant's message leaves open: those it does not answer itself."""
    if not entry.calls or entry.role != "assistant":
        return ()
    own = list(entry.answers)
    for _, call in homes:
        own.remove(call)
    left = list(entry.calls)
    for call in own:
        if call in left:
            left.remove(call)
    return tuple(left)


def rounds_of(entries: Iterable[Entry]) -> list[Round]:
    """The rounds of a finished list of entries."""
    return RoundList(entries).rounds


def task_of(rounds: Sequence[Round]) -> Round | None:
    """The task: the round of the first human message."""
    return next((held for held in rounds if held.is_human), None)
