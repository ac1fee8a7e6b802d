"""How the loss of single keys of a session is detected.

Redis evicts and expires keys one by one, and any client may delete one. The script that acquires a lease also counts
the rows in each key, which costs a few lookups. What is lost is repaired before the session is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import StoreError
from ..protocol import Extent


class IntegrityError(StoreError):
    """A part of the session is lost or damaged; it must be repaired first."""


class KeyCounts(NamedTuple):
    """Rows in each key of a session, and what its `meta` says there should be; None if `meta` does not say.

    Attributes:
        checkpoint: 1 if there is one.
        updated: None if, as far as `meta` says, nothing was ever written.
    """

    entries: int
    places: int
    archive: int
    checkpoint: int
    damaged: int
    updated: bytes | None
    length: bytes | None
    archived: bytes | None
    covered: bytes | None

    @property
    def has_no_meta(self) -> bool:
        """True if the session has keys although `meta` is gone."""
        return self.updated is None and any(self[:5])

    @property
    def expected(self) -> int:
        """Entries that should be there, as far as that is known."""
        return max(self.entries, self.places) if self.length is None else int(self.length)

    @property
    def expected_archive(self) -> int:
        """Archived entries that should be there, as far as that is known."""
        return max(self.archive, int(self.archived or 0))

    def problems(self) -> list[str]:
        """Return what is wrong, one line each."""
        problems: list[str] = []
        if self.has_no_meta:
            covering = ", and with it how much the checkpoint covers" if self.checkpoint else ""
            problems.append(f"the session's own record (its key meta) is gone{covering}")
        if self.entries < self.expected:
            problems.append(f"{self.expected - self.entries:,} of {self.expected:,} messages are gone from the server")
        elif self.entries > self.expected:
            problems.append(f"it has {self.entries:,} messages, and should have {self.expected:,}")
        elif self.entries != self.places:
            problems.append(f"it has {self.entries:,} messages, and indices of {self.places:,}")
        if self.archive < self.expected_archive:
            gone = self.expected_archive - self.archive
            problems.append(f"{gone:,} of {self.expected_archive:,} archived messages are gone from the server")
        if self.covered is not None and not self.checkpoint:
            problems.append("the checkpoint is gone from the server")
        return problems


class StateReply(NamedTuple):
    """The reply of the script that returns the state of a session's lease and history."""

    exists: int
    revision: bytes
    last_seq: bytes | int
    token: bytes
    holder: bytes
    updated: bytes
    size: bytes
    is_leased: int
    shape: bytes
    counts: KeyCounts

    @classmethod
    def parse(cls, reply: Sequence[Any]) -> StateReply:
        """Return the script's reply as a value."""
        *fields, counts = reply
        return cls._make([*fields, KeyCounts._make(counts)])

    @property
    def extent(self) -> Extent:
        """How much of the session there is."""
        return Extent(self.counts.entries, int(self.last_seq))
