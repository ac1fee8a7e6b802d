"""Records: the state of a session as it was at certain places of the history, each bound to what it was made from.

A record holds for exactly the entries that it was made from. If one of them was edited, taken out or erased, the record
and all later ones are dropped: a later state derives from the earlier one. So text about an erased message is erased
with it, whatever its words are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from amplifier_context_core.futures import in_thread
from amplifier_context_core.history.history import History
from amplifier_context_core.messages.hashing import chain_hash, content_hash
from amplifier_context_core.transcript.transcript import Entry

from .state import State

_KEPT = 3  # the newest, and what is gone back to when it does not hold any more
VERSION = 1  # of what is saved; another one is not read


@dataclass(frozen=True, slots=True)
class Record:
    """The state after a range of the history.

    Attributes:
        start: index of the first entry of the range, counted from the first after the leading instructions.
        covered: index behind its last entry.
        upto: highest seq of the range.
        digest: hash of the entries of the range by seq and content, in hexadecimal.
        state: after it.
    """

    start: int
    covered: int
    upto: int
    digest: str
    state: State


@dataclass(frozen=True, slots=True)
class _SavedRecords:
    records: tuple[Record, ...] = ()
    version: int = VERSION


_ADAPTER = TypeAdapter(_SavedRecords)


@dataclass(slots=True)
class Records:
    """The records of one session, the oldest first."""

    _records: list[Record] = field(default_factory=list[Record])
    _revision: int = 0  # of the history that they were last compared with
    _unverified: bool = False  # they were restored, and not compared with the entries yet

    def valid(self, history: History) -> list[Record]:
        """Return the records that hold for the history as it is now; the others are dropped."""
        same = history.unchanged_since(self._revision)
        self._records = [record for record in self._records if record.covered <= same]
        self._revision = history.revision
        return self._records

    async def verified(self, history: History) -> list[Record]:
        """Return the records that hold, restored ones compared with the entries that are loaded."""
        found = self.valid(history)
        if not self._unverified:
            return found
        snapshot = history.snapshot()
        held: list[Record] = []
        for record in found:
            first = snapshot.leading_count + record.start
            behind = snapshot.leading_count + record.covered
            if behind > len(snapshot):
                break
            if not any(index in snapshot.gap for index in (first, behind - 1)):
                entries = snapshot[first:behind]
                if await in_thread(digest_of, entries) != record.digest:
                    break
            held.append(record)
        self._records = held
        self._unverified = False
        return held

    def add(self, record: Record, history: History) -> None:
        """Add a record of the history as it is now."""
        kept = [one for one in self.valid(history) if one.covered < record.covered]
        self._records = [*kept, record][-_KEPT:]

    def drop_newest(self, history: History, before: int) -> None:
        """Drop the records that reach up to a seq or beyond it."""
        self._records = [record for record in self.valid(history) if record.upto < before]

    def clear(self) -> None:
        """Drop all records."""
        self._records = []

    def dump(self, history: History) -> dict[str, Any]:
        """Return the valid records as JSON."""
        return _ADAPTER.dump_python(_SavedRecords(tuple(self.valid(history))), mode="json")

    def restore(self, saved: object, history: History) -> bool:
        """Continue from what `dump` returned; return False if it cannot be read, and then begin without records."""
        self._revision = history.revision
        try:
            read = _ADAPTER.validate_python(saved)
        except ValidationError:
            return False
        if read.version != VERSION:
            return False
        self._records = list(read.records)
        self._unverified = True
        return True


def digest_of(entries: Iterable[Entry] | Sequence[Entry]) -> str:
    """Return the hash of entries by seq and content, in hexadecimal."""
    digest = b""
    for entry in entries:
        digest = chain_hash(digest, entry.seq, content_hash(entry.message))
    return digest.hex()
