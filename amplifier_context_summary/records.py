"""Records: the summary text as it was at certain places of the history, each bound to what it was made from.

A record holds for exactly the entries that it was made from: its range, and all else that the question showed. If one
of them was edited, taken out or erased, the record and all later ones are dropped: a later text derives from the
earlier one. So text about an erased message is erased with it, whatever its words are.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from amplifier_context_core.futures import in_thread
from amplifier_context_core.history.history import History
from amplifier_context_core.messages.hashing import chain_hash, content_hash
from amplifier_context_core.messages.parsing import Message
from amplifier_context_core.transcript.entry import Entry
from amplifier_context_core.transcript.transcript import Snapshot

from .text import Text

_KEPT = 3  # the newest, and what is gone back to when it does not hold any more
VERSION = 3  # of what is saved


@dataclass(frozen=True, slots=True)
class Record:
    """The summary text after a range of the history.

    Attributes:
        start: index of the first entry of the range, counted from the first after the leading instructions.
        covered: index after its last entry.
        upto: highest seq of the range.
        digest: hash of the entries from `start` to `covered` by seq and content, in hexadecimal.
        text: after it.
        carrier: what the provider made of all up to `upto`, where it compacted the conversation itself.
        writer: name of the model, as far as it is known.
        cost: of the calls that it took, in prices of a plain input token of the session.
    """

    start: int
    covered: int
    upto: int
    digest: str
    text: Text
    carrier: Message | None = None
    writer: str = ""
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class _SavedRecords:
    records: tuple[Record, ...] = ()
    version: int = VERSION


_ADAPTER = TypeAdapter(_SavedRecords)


@dataclass(frozen=True, slots=True)
class Basis:
    """What a question is made from: a history at a revision, up to an index, and the records before `drops`."""

    revision: int
    covered: int
    drops: int


@dataclass(slots=True)
class Records:
    """The records of one session, the oldest first."""

    _records: list[Record] = field(default_factory=list[Record])
    _revision: int = 0  # of the history that they were last compared with
    _unverified: bool = False  # they were restored, and not compared with the entries yet
    _drops: int = 0  # times that records were dropped by a command: what was derived from them is out of date

    def valid(self, history: History) -> list[Record]:
        """Return the records that hold for the history as it is now; the others are dropped."""
        same = history.unchanged_since(self._revision)
        self._records = [record for record in self._records if record.covered <= same]
        self._revision = history.revision
        return self._records

    async def verified(self, history: History) -> list[Record]:
        """Return the records that hold; restored ones are compared with their entries, in memory or in the store.

        Raises:
            StoreError: the store cannot be read; the records are compared again at the next call.
        """
        if self._unverified:
            snapshot, restored = history.snapshot(), tuple(self.valid(history))
            held = [record async for record in _held(restored, history, snapshot)]
            dropped = {id(record) for record in restored} - {id(record) for record in held}
            self._records = [record for record in self.valid(history) if id(record) not in dropped]
            self._unverified = False
        return self.valid(history)

    def basis(self, revision: int, covered: int) -> Basis:
        """Return what is made from the records as they are now, and from the beginning of a history; see `Basis`."""
        return Basis(revision, covered, self._drops)

    def outdated(self, basis: Basis, history: History) -> str:
        """Return why what was made from a basis does not hold any more; empty if it does."""
        if history.unchanged_since(basis.revision) < basis.covered:
            return "the history was edited meanwhile"
        return "" if basis.drops == self._drops else "a compaction was taken back meanwhile"

    def add(self, record: Record, history: History) -> None:
        """Add a record of the history as it is now."""
        kept = [one for one in self.valid(history) if one.covered < record.covered]
        self._records = [*kept, record][-_KEPT:]

    def drop_newest(self, history: History, before: int) -> None:
        """Drop the records that reach up to a seq or beyond it, and what is being made from any."""
        self._records = [record for record in self.valid(history) if record.upto < before]
        self._drops += 1

    def clear(self) -> None:
        """Drop all records, and what is being made from them."""
        self._records = []
        self._drops += 1

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


async def _held(records: Iterable[Record], history: History, snapshot: Snapshot) -> AsyncGenerator[Record]:
    """Yield records, the oldest first, up to the first whose entries are not those that it was made from."""
    for record in records:
        first, end = (snapshot.leading_count + place for place in (record.start, record.covered))
        if end > len(snapshot):
            return
        is_loaded = first >= snapshot.gap.stop or end <= snapshot.gap.start
        entries = snapshot[first:end] if is_loaded else await history.read(first, end)
        if await in_thread(digest_of, entries) != record.digest:
            return
        yield record


def digest_of(entries: Iterable[Entry]) -> str:
    """Return the hash of entries by seq and content, in hexadecimal."""
    digest = b""
    for entry in entries:
        digest = chain_hash(digest, entry.seq, content_hash(entry.message))
    return digest.hex()
