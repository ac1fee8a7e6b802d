"""What the keys of a session hold beside what they should: how it is known that some were lost.

Redis evicts, expires and forgets keys one by one, and whoever has a client may delete one. Sizes are asked for with the
claim, in the same script, at the cost of some lookups; what is lost is mended before anything is built on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..protocol import Extent


class Sizes(NamedTuple):
    """Rows in each key of a session, and what its `meta` says there should be; None where it does not say.

    Attributes:
        checkpoint: 1 if there is one.
        updated: None: as far as `meta` says, nothing was ever written.
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
    def orphaned(self) -> bool:
        """Are there keys of a session that `meta` knows nothing of?"""
        return self.updated is None and any(self[:5])

    @property
    def wanted(self) -> int:
        """Entries that should be there, as far as that is known."""
        return max(self.entries, self.places) if self.length is None else int(self.length)

    @property
    def wanted_archive(self) -> int:
        """Archived ones that should be there, as far as that is known."""
        return max(self.archive, int(self.archived or 0))

    def problems(self) -> list[str]:
        """What is wrong, a line each."""
        wrong: list[str] = []
        if self.orphaned:
            covering = ", and with it what the checkpoint stands for" if self.checkpoint else ""
            wrong.append(f"the session's own record (its key meta) is gone{covering}")
        if self.entries < self.wanted:
            wrong.append(f"{self.wanted - self.entries:,} of {self.wanted:,} messages are gone from the server")
        elif self.entries > self.wanted:
            wrong.append(f"{self.entries:,} messages are there, and should be {self.wanted:,}")
        elif self.entries != self.places:
            wrong.append(f"{self.entries:,} messages are there, and places of {self.places:,}")
        if self.archive < self.wanted_archive:
            gone = self.wanted_archive - self.archive
            wrong.append(f"{gone:,} of {self.wanted_archive:,} archived messages are gone from the server")
        if self.covered is not None and not self.checkpoint:
            wrong.append("the checkpoint is gone from the server")
        return wrong


class Said(NamedTuple):
    """What is said of a session when its state is asked for."""

    there: int
    change: bytes
    last_seq: bytes | int
    fence: bytes
    holder: bytes
    updated: bytes
    size: bytes
    live: int
    shape: bytes
    sizes: Sizes

    @classmethod
    def of(cls, reply: Sequence[Any]) -> Said:
        """As the script answered."""
        *said, sizes = reply
        return cls._make([*said, Sizes._make(sizes)])

    @property
    def extent(self) -> Extent:
        """How much there is."""
        return Extent(self.sizes.entries, int(self.last_seq))
