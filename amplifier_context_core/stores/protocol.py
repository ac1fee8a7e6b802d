"""What a store is: where the histories of sessions are kept, behind a dozen methods.

A history is a list of entries. A *place* is an index into that list, from 0; a *seq* is an entry's identity, never its
place. Entries are appended, or the list is kept up to some place and goes on differently from there; what no longer
belongs to it stays in the *archive*. A *checkpoint* is opaque bytes that stand for a beginning of the list.

The contract, which `amplifier_context_testing.store_contract` holds every store to:

- What is read equals what was appended in every field, times and response included.
- The text of a `StoreError` holds the session id as ``repr`` shows it, ``'my session'``. It never quotes what a message
  says. `check_session_id`, `check_index`, `no_session` and `session_exists` (in `validation`) word these errors.
- A call does all of what it was asked or raises `StoreError` and has done nothing that a later call could see.
- What was acknowledged (the call returned) is as durable as the store promises.
- Calls for one session are made one after another; calls for different sessions may be made at the same time, from
  tasks of any event loop. No call blocks the loop it is made on.
- One writer a session: whoever opens or first changes it claims it, until it is released or its process is gone.
  Reading needs no claim.
- A cancelled call may still be carried out; the next call for that session waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from ..transcript.transcript import Entry

log = logging.getLogger(__name__)

Durability = Literal["fsync", "flush", "none"]

UNCOUNTED = -1  # `Entry.tokens` of a message another program wrote: its reader counts and rewrites it


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a session there is.

    Attributes:
        length: entries of its history.
        last_seq: highest seq ever given in it, also to entries that are archived, and in a fork also to those its
            parent had then; 0 before the first. It never falls.
    """

    length: int = 0
    last_seq: int = 0


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as lists of sessions show it.

    Attributes:
        session_id: its identity.
        length: entries of its history.
        updated: when it was last changed, ISO 8601, UTC; empty where unknown.
        size: bytes its history takes, about.
        holder: who writes to it now, e.g. ``pid 4711 on host-a``; empty when nobody does.
    """

    session_id: str
    length: int
    updated: str = ""
    size: int = 0
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """Damage that was found, and what was done about it.

    The listener that receives it logs it. Without a listener the store logs it (see `report_repair`).

    Attributes:
        session_id: where.
        description: what was found and done, as one line of text. It quotes no content of messages.
        lost: messages that can no longer be read.
        quarantined_at: where the damaged bytes were moved to; empty if there are none.
    """

    session_id: str
    description: str
    lost: int = 0
    quarantined_at: str = ""

    @property
    def summary(self) -> str:
        """All of it as one line of text."""
        lost = f"; {self.lost:,} message{'' if self.lost == 1 else 's'} lost" if self.lost else ""
        return f"{self.description}{lost}{f'; kept in {self.quarantined_at}' if self.quarantined_at else ''}"


OnRepair = Callable[[Repair], None]


@runtime_checkable
class Store(Protocol):
    """Keeps the histories of sessions. Making one opens nothing; the first call does.

    Every method raises `StoreError` when it cannot do what it was asked, `SessionInUse` when another writer has
    claimed the session, `SessionLost` when the claim was lost to another, and `ConfigError` for a session id that
    cannot be one (empty, longer than 200 bytes of UTF-8, a path, control characters).
    """

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        """Claim a session for writing and say how long it is. An unknown session is empty; it is not created yet.

        Damage that is found now, or by a later call for this session, is mended and told to `on_repair`.
        Opening a session that is open here is a no-op.
        """
        ...

    async def release(self, session_id: str) -> None:
        """Give the claim back, everything written. Releasing a session that is not open here is a no-op."""
        ...

    async def extent(self, session_id: str) -> Extent:
        """How long a session is, without claiming it."""
        ...

    async def append(self, session_id: str, entries: Sequence[Entry], *, atomic: bool = True) -> None:
        """Add entries at the end, all or none. Nothing to append is a no-op, and creates nothing.

        Args:
            session_id: whose history.
            entries: what to add.
            atomic: no crash leaves a part of them. Without it, one that comes before this returns may leave some of
                them, as of appends made at the same time; files then need one sync less.
        """
        ...

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        """The entries from place `start` up to `stop` (excluded; None: to the end), in order.

        A negative `start` counts from the end: -20 are the newest twenty. Places outside the history are empty. Fewer
        than asked for inside it means that some were damaged (see `open`); the extent has shrunk by as many.
        """
        ...

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """The entries of the history with these seqs, in its order; seqs it does not hold are left out."""
        ...

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        """Keep the first `keep` entries; what came after them goes to the archive, and these entries come in its place.

        Among them may be some that stood there (they move, and are not archived). A checkpoint that stands for more
        than `keep` entries is gone. With ``keep=0`` and no entries the session is cleared; its seqs are still not given
        again.

        Raises:
            StoreError: `keep` is more than the history is long, too.
        """
        ...

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Put these in place of the entries of the same seqs, wherever they are kept, the archive included.

        The only operation that erases: the former messages are gone from everything the store keeps, search index,
        checkpoints and damaged bytes put aside included. (Where only tokens differ, checkpoints stay.) Seqs that are
        kept nowhere are left out. Where that is so of one, or none is given, damaged bytes that were put aside are
        erased all the same: the message may be among them.

        Raises:
            NotErased: the entries are in place, but the former messages are not gone from everything yet.
        """
        ...

    async def archived(self, session_id: str) -> list[Entry]:
        """Entries that once belonged to the history, oldest replacement first; empty where no archive is kept."""
        ...

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        """Keep bytes that stand for the first `covered` entries; those saved before are replaced.

        For 0 entries of a session that is not there yet, that creates it.

        Raises:
            StoreError: `covered` is more than the history is long, too.
        """
        ...

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        """What was saved last and still stands; None when there is none, or it is damaged (told to `on_repair`)."""
        ...

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        """Make a new session of the first `length` entries (None: of all) of this one.

        Seqs, and the session ids inside the entries, stay. The archive is not copied; the checkpoint is, when the
        new session holds what it stands for. The `last_seq` of the new session is that of this one, however short it
        is: no mark may name another message in a fork than it did before.

        Raises:
            StoreError: there is a session `new_id` already, or none `session_id`; or it is shorter than that.
        """
        ...

    async def sessions(self) -> list[SessionInfo]:
        """All sessions, the last changed first."""
        ...

    async def delete(self, session_id: str) -> None:
        """Erase a session, with archive, checkpoint and search index. Deleting one that is not there is a no-op."""
        ...

    async def close(self) -> None:
        """Release all sessions and give back what it holds open. Closing twice is a no-op; a later call opens anew."""
        ...


@runtime_checkable
class Searchable(Protocol):
    """A store that finds messages by words itself, so that a search need not load the history."""

    async def search(self, session_id: str, query: str, limit: int) -> list[int]:
        """Seqs of at most `limit` entries of the history that match words, best first."""
        ...


@runtime_checkable
class Checkable(Protocol):
    """A store that can look for damage that reading alone would not show."""

    async def verify(self, session_id: str) -> list[str]:
        """What is wrong with a session, a line each; empty when all is well. Changes nothing and claims nothing."""
        ...


@runtime_checkable
class Repairable(Protocol):
    """A store that can repair what reading and opening do not."""

    async def repair(self, session_id: str | None, on_repair: OnRepair | None = None) -> None:
        """Claim a session, and repair all that `Checkable.verify` reports of it; `on_repair` is called for each repair.

        Args:
            session_id: which session. None claims none, and repairs what sessions share.
            on_repair: called for each repair; also for those of what sessions share that no earlier call reported.

        Raises:
            StoreError: the damage cannot be repaired; the message says what else to do.
        """
        ...


def report_repair(repair: Repair, listener: OnRepair | None) -> None:
    """Report a repair to the listener, which logs it; log it here if there is no listener or the listener fails."""
    if listener is not None:
        try:
            listener(repair)
        except Exception as problem:  # noqa: BLE001 - the listener is the caller's code: log its failure and go on
            log.warning("a listener for repairs failed (%s)", type(problem).__name__)
        else:
            return
    log.warning("session %r: %s", repair.session_id, repair.summary)


def index_range(length: int, start: int, stop: int | None) -> range:
    """Return the indices that a `read` from `start` to `stop` selects in a history of this length."""
    return range(*slice(start, stop).indices(length))
