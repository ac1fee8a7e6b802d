"""History: entries are only ever appended.

An `Entry` is one message with what was measured of it. Its identity is its `seq`, given once and never given again,
whatever happens to the history around it; printed, it is the mark `m12`. Order is position in the list. What looks
like a change (an interrupt, an edit by the host) makes a new list of the same immutable entries, so a `Snapshot`
taken before still shows what it showed, and no mark ever points at another message than it did.

Pure: no I/O, no clock, no lock. Appending to one transcript from several threads needs the manager's lock; reading
snapshots needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from .messages import INSTRUCTING, Message, Reading


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one response as its provider reported them.

    Attributes:
        input_tokens: all input, cache reads included.
        output_tokens: what the model wrote.
        cache_read_tokens: part of the input that came from the prompt cache.
        cache_write_tokens: input written to the prompt cache (Anthropic: not part of `input_tokens`).
    """

    input_tokens: int
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Response:
    """Where an assistant message came from, as far as the message or the last ``llm:response`` tells."""

    model: str | None = None
    provider: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One message in history. Immutable; `message` must never be mutated.

    Attributes:
        seq: identity inside the session, from 1, never reused.
        message: the message as it was given, with a timestamp.
        role: its role.
        turn: number of the exchange it belongs to; 0 before the first human message.
        human: a human wrote it, so it begins the exchange.
        calls: ids of the tool calls it makes.
        answers: ids of the tool calls it answers.
        tokens: what it costs in a request, counted once, when it came in.
        session_id: the session it was first added to.
        created: ISO 8601, UTC: when the message was made (for a response: when it was asked for, where known).
        completed: ISO 8601, UTC: when it was whole.
        response: model, provider, usage and outcome of an assistant message.
    """

    seq: int
    message: Message
    role: str
    turn: int
    human: bool
    calls: tuple[str, ...]
    answers: tuple[str, ...]
    tokens: int
    session_id: str
    created: str
    completed: str
    response: Response | None = None

    @property
    def mark(self) -> str:
        """How the entry is named in views, reports and commands: ``m12``."""
        return f"m{self.seq}"

    @property
    def id(self) -> str:
        """The same mark; the identity of the message inside its session."""
        return f"m{self.seq}"

    @property
    def turn_id(self) -> str:
        """``u3`` for the human message that begins exchange 3, ``a3`` for all that follows it."""
        return f"{'u' if self.human else 'a'}{self.turn}"


def seq_of(mark: str) -> int:
    """The seq a mark such as ``m12`` names.

    Raises:
        ValueError: it is no mark.
    """
    digits = mark[1:] if mark[:1] == "m" else ""
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise ValueError(f"{mark[:40]!r} is no mark: a message is named like m12")
    return int(digits)


def leading(entries: Sequence[Entry], length: int) -> int:
    """How many instructions (system, developer) lead a list: the system prompt, which stands outside every view."""
    count = 0
    while count < length and entries[count].role in INSTRUCTING:
        count += 1
    return count


class Snapshot(Sequence[Entry]):
    """The history as it was at one moment. O(1) to take; never changes."""

    __slots__ = ("_entries", "_length", "revision")

    def __init__(self, entries: list[Entry], length: int, revision: int) -> None:
        self._entries = entries
        self._length = length
        self.revision = revision

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        if isinstance(index, slice):
            places = range(*index.indices(self._length))
            if places.step != 1:
                return [self._entries[place] for place in places]
            return self._entries[places.start : places.stop]
        if not -self._length <= index < self._length:
            raise IndexError("snapshot index out of range")
        return self._entries[index if index >= 0 else index + self._length]

    def __iter__(self) -> Iterator[Entry]:
        entries = self._entries
        for index in range(self._length):
            yield entries[index]

    def find(self, seq: int) -> Entry | None:
        """The entry with this seq, or None. A few comparisons: seqs rise except where a host inserted messages."""
        low, high = 0, self._length
        while low < high:
            middle = (low + high) // 2
            if self._entries[middle].seq < seq:
                low = middle + 1
            else:
                high = middle
        if low < self._length and self._entries[low].seq == seq:
            return self._entries[low]
        return next((entry for entry in self if entry.seq == seq), None)

    @property
    def leading(self) -> int:
        """Instructions (system, developer) before the first other message."""
        return leading(self._entries, self._length)

    @property
    def turn_count(self) -> int:
        """Exchanges: a human message and what follows it count as one."""
        return sum(1 for entry in self if entry.human)


class Transcript:
    """The history of one session.

    Attributes:
        session_id: written into new entries.
        turn_count: exchanges so far.
    """

    __slots__ = ("_borrowed", "_edits", "_live", "_next_seq", "_turn", "session_id", "turn_count")

    def __init__(self, session_id: str = "") -> None:
        self.session_id = session_id
        self.turn_count = 0
        # Entries, how many of them are the history, and the revision: one tuple, so that a reader in another thread
        # never sees the one of before a change with the other of after it.
        self._live: tuple[list[Entry], int, int] = ([], 0, 0)
        self._borrowed = False  # the list belongs to the transcript this one was forked from
        self._edits: list[tuple[int, int]] = []  # (revision, entries left as they were, see unchanged_since)
        self._next_seq = 1
        self._turn = 0

    def __len__(self) -> int:
        return self._live[1]

    @property
    def revision(self) -> int:
        """Rises with every change that is not an append."""
        return self._live[2]

    @property
    def last(self) -> Entry | None:
        """The newest entry."""
        entries, length, _ = self._live
        return entries[length - 1] if length else None

    @property
    def last_seq(self) -> int:
        """The highest seq ever given, also to entries that are gone; 0 before the first."""
        return self._next_seq - 1

    def snapshot(self) -> Snapshot:
        """The history as it is now."""
        return Snapshot(*self._live)

    def draft(
        self,
        message: Message,
        reading: Reading,
        tokens: int,
        *,
        created: str,
        completed: str | None = None,
        response: Response | None = None,
        turn: int | None = None,
    ) -> Entry:
        """A new entry with the next seq, not yet part of the history.

        Args:
            message: a checked copy, from now on owned by the transcript.
            reading: what `read_message` said of it.
            tokens: its cost in a request.
            created: ISO 8601, UTC.
            completed: ISO 8601, UTC; `created` when not given.
            response: provenance of an assistant message.
            turn: the exchange it belongs to; by default the current one, or the next for a human message.
        """
        if turn is None:
            turn = self._turn + 1 if reading.human else self._turn
        entry = Entry(
            self._next_seq,
            message,
            reading.role,
            turn,
            reading.human,
            reading.calls,
            reading.answers,
            tokens,
            self.session_id,
            created,
            completed or created,
            response,
        )
        self._next_seq += 1
        return entry

    def append(self, entry: Entry) -> None:
        """Make a drafted entry the newest of the history."""
        self.extend((entry,))

    def extend(self, added: Sequence[Entry]) -> None:
        """Make drafted entries the newest of the history, in their order."""
        entries, length, revision = self._live
        if self._borrowed:
            entries, self._borrowed = entries[:length], False
        entries.extend(added)
        self._live = (entries, length + len(added), revision)
        turns = [entry.turn for entry in added if entry.human]
        self.turn_count += len(turns)
        self._turn = max((self._turn, *turns))

    def fork(self, session_id: str = "") -> Transcript:
        """A transcript that begins with this history and goes its own way; the prefix is shared, not copied."""
        child = Transcript(session_id or self.session_id)
        child._live = self._live
        child._borrowed = True
        child._next_seq = self._next_seq
        child._turn = self._turn
        child.turn_count = self.turn_count
        return child

    def replace(self, entries: Iterable[Entry]) -> None:
        """Make these entries (old ones and drafted ones) the history. Snapshots keep showing the old one."""
        before, length, revision = self._live
        after = list(entries)
        same = 0
        for old, new in zip(
            before[leading(before, length) : length], after[leading(after, len(after)) :], strict=False
        ):
            if old is not new:
                break
            same += 1
        self._borrowed = False
        self._edits = [*self._edits[-63:], (revision + 1, same)]
        self._live = (after, len(after), revision + 1)
        self.turn_count = sum(1 for entry in after if entry.human)
        self._turn = max((entry.turn for entry in after), default=self._turn)

    def unchanged_since(self, revision: int) -> int:
        """How many entries after the leading instructions are the same ones, in order, as they were at a revision."""
        if revision == self.revision:
            return len(self)
        if not self._edits or revision < self._edits[0][0] - 1:
            return 0
        return min(same for edit, same in self._edits if edit > revision)

    def clear(self) -> None:
        """Forget the history; seqs go on where they were."""
        self.replace(())
        self._turn = 0

    def current_turn(self) -> list[Entry]:
        """The entries of the newest exchange: its human message and all that follows.

        Before the first human message that is everything but the leading instructions (system, developer).
        """
        history = self.snapshot()
        start = len(history)
        while start > 0 and not history[start - 1].human:
            start -= 1
        if start > 0:
            return history[start - 1 :]
        while start < len(history) and history[start].role in INSTRUCTING:
            start += 1
        return history[start:]

    def interrupt(self, *, finished_too: bool = False) -> list[Entry]:
        """Take the current exchange out of the history if it is unfinished; returns what was taken.

        It is finished when its newest message is an assistant's without tool calls.

        Args:
            finished_too: take it also when finished (a cancelled loop may still add a closing answer, see KERNEL.md).
        """
        turn = self.current_turn()
        if not turn or (turn[-1].role == "assistant" and not turn[-1].calls and not finished_too):
            return []
        self.replace(self.snapshot()[: -len(turn)])
        return turn
