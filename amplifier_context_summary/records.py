"""Records: the summary text as it was at certain places of the history, each bound to what it was made from.

A record holds for exactly the entries that it was made from: its range, and all else that the question showed. If one
of them was edited, taken out or erased, the record and all later ones are dropped: a later text derives from the
earlier one. So text about an erased message is erased with it, whatever its words are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from amplifier_context_core.compaction.checkpoint import content_digest
from amplifier_context_core.futures import in_thread
from amplifier_context_core.history.history import History
from amplifier_context_core.messages.parsing import Message
from amplifier_context_core.transcript.entry import Entry

from .text import Text

_KEPT = 3  # the newest, and what is gone back to when it does not hold any more


@dataclass(frozen=True, slots=True)
class Record:
    """The summary text after a range of the history.

    Attributes:
        start: index of the first entry of the range, counted from the first after the leading instructions.
        covered: index after its last entry.
        digest: hash of the entries from `start` to `covered` by seq and content, in hexadecimal.
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
    version: Literal[3] = 3


_ADAPTER = TypeAdapter(_SavedRecords)


@dataclass(slots=True)
class Records:
    """The records of one session, the oldest first; `history` is set before the first use."""

    history: History = field(init=False, repr=False)
    _records: list[Record] = field(default_factory=list[Record])
    _revision: int = 0  # of the history that they were last compared with
    _unverified: bool = False  # they were restored, and not compared with the entries yet
    _drops: int = 0  # times that records were dropped by a command: what was derived from them is out of date

    def valid(self) -> list[Record]:
        """Return the records that hold for the history as it is now; the others are dropped."""
        same = self.history.unchanged_since(self._revision)
        self._records = [record for record in self._records if record.covered <= same]
        self._revision = self.history.revision
        return self._records

    async def verified(self) -> list[Record]:
        """Return the records that hold; restored ones are compared with their entries, in memory or in the store.

        Raises:
            StoreError: the store cannot be read; the records are compared again at the next call.
        """
        if self._unverified:
            restored = tuple(self.valid())
            held = await self._held(restored)
            self._records = [one for one in self.valid() if one in held or one not in restored]
            self._unverified = False
        return self.valid()

    async def _held(self, records: Iterable[Record]) -> list[Record]:
        """Return records, the oldest first, up to the first whose entries are not those that it was made from."""
        history, held = self.history.snapshot(), list[Record]()
        for record in records:
            first, end = (history.leading_count + place for place in (record.start, record.covered))
            if end > len(history):
                break
            is_loaded = first >= history.gap.stop or end <= history.gap.start
            entries = history[first:end] if is_loaded else await self.history.read(first, end)
            if await in_thread(digest_of, entries) != record.digest:
                break
            held.append(record)
        return held

    def watch(self, revision: int, covered: int) -> Callable[[], str]:
        """Return a function that says why what is made now does not hold any more; it returns "" while it does.

        It is made from the present records and the entries before `covered` of the history at a revision.
        """
        drops = self._drops

        def outdated() -> str:
            if self.history.unchanged_since(revision) < covered:
                return "the history was edited meanwhile"
            return "" if drops == self._drops else "a compaction was taken back meanwhile"

        return outdated

    def add(self, record: Record) -> None:
        """Add a record of the history as it is now."""
        kept = [one for one in self.valid() if one.covered < record.covered]
        self._records = [*kept, record][-_KEPT:]

    def drop_from(self, seq: int) -> None:
        """Drop the records that reach up to a seq or beyond it, and what is being made from any."""
        self._records = [record for record in self.valid() if record.upto < seq]
        self._drops += 1

    def dump(self) -> dict[str, Any]:
        """Return the valid records as JSON."""
        return _ADAPTER.dump_python(_SavedRecords(tuple(self.valid())), mode="json")

    def restore(self, saved: object) -> bool:
        """Continue from what `dump` returned; return False if it cannot be read, and then begin without records."""
        self._revision = self.history.revision
        try:
            self._records = list(_ADAPTER.validate_python(saved).records)
        except ValidationError:
            return False
        self._unverified = True
        return True


def digest_of(entries: Iterable[Entry]) -> str:
    """Return the hash of entries by seq and content, in hexadecimal."""
    return content_digest(entries).hex()
