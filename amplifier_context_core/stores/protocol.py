"""The protocol of a store: it keeps the histories of sessions, behind a dozen methods.

A history is a list of entries. An *index* counts the entries of that list from 0. A *seq* identifies an entry and never
changes. Entries are appended, or the list is kept up to some index and continues differently from there. Entries that
no longer belong to it stay in the *archive*. A *checkpoint* is opaque bytes that cover the first entries of the list.

The contract, which `amplifier_context_testing.store_contract` tests for every store:

- What is read equals what was appended in every field, times and response included.
- The text of a `StoreError` holds the session id as ``repr`` shows it, ``'my session'``. It never quotes a message.
  `check_session_id`, `check_index`, `no_session` and `session_exists` (in `validation`) raise or return these errors.
- A call either does everything it was asked for, or raises `StoreError` and has no effect that a later call could see.
  One error differs: with `NotErased`, the entries were replaced. An invalid session id raises `ConfigError` instead.
- What was acknowledged (the call returned) is as durable as the store promises.
- Calls for one session are made one after another. Calls for different sessions may be made at the same time, from
  tasks of any event loop. No call blocks its event loop.
- A session has one writer: the first store that opens or changes it locks it, until that store releases the session
  or its process is gone. Reading needs no lock.
- A cancelled call may still be carried out. The next call for that session waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from ..transcript.entry import Entry

log = logging.getLogger(__name__)

Durability = Literal["fsync", "flush", "none"]

_BATCH_SIZE = 1_000  # entries read at once: some milliseconds of work
# `Entry.tokens` of a message that another program wrote; the session counts and rewrites it.
UNCOUNTED = -1


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a session there is."""

    length: int = 0  # entries of its history
    # The highest seq ever given, also to archived entries and, before a fork, in its parent. It never falls.
    last_seq: int = 0


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session in a list of sessions."""

    session_id: str
    length: int  # entries of its history
    updated: str = ""  # its last change, ISO 8601, UTC; empty if unknown
    size: int = 0  # bytes of its history, approximately
    holder: str = ""  # its current writer, e.g. ``pid 4711 on host-a``; empty if it has none


@dataclass(frozen=True, slots=True)
class Repair:
    """Damage that was found, and what was done about it."""

    session_id: str
    description: str  # one line; it quotes no content of messages
    lost: int = 0  # messages that can no longer be read
    quarantined_at: str = ""  # where the damaged bytes were moved to

    @property
    def summary(self) -> str:
        lost = f"; {self.lost:,} message{'' if self.lost == 1 else 's'} lost" if self.lost else ""
        return f"{self.description}{lost}{f'; kept in {self.quarantined_at}' if self.quarantined_at else ''}"


OnRepair = Callable[[Repair], None]


@runtime_checkable
class Store(Protocol):
    """Keeps the histories of sessions. Creating a store opens nothing; the first call does.

    Every method raises `StoreError` if it cannot do what it was asked for, and `ConfigError` for an invalid session id
    (empty, longer than 200 bytes of UTF-8, a path, control characters). A method that failed has changed nothing. Only
    with `OutcomeUnknown` it may have: then the next call for the session shows whether the change was made. A method
    that locks or changes a session raises `SessionInUse` if another writer has locked it, and `SessionLost` if another
    writer took the lock over.
    """

    async def open(self, session_id: str, on_repair: OnRepair | None = None) -> Extent:
        """Lock a session for writing, and return its extent. An unknown session is empty; it is not created yet.

        Damage that is found now, or by a later call for this session, is repaired and reported to `on_repair`, or is
        a `StoreError` that names the command that repairs it.
        Opening a session that is open in this store is a no-op.
        """
        ...

    async def release(self, session_id: str) -> None:
        """Write everything, and unlock a session. Releasing a session that is not open in this store is a no-op."""
        ...

    async def extent(self, session_id: str) -> Extent:
        """Return how much of a session there is, without locking it."""
        ...

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Append entries, all or none, whatever crashes. Appending nothing is a no-op, and creates nothing."""
        ...

    async def read(self, session_id: str, start: int = 0, stop: int | None = None) -> list[Entry]:
        """Return the entries from index `start` up to `stop` (excluded; None: to the end), in order.

        A negative `start` counts from the end: -20 selects the newest twenty. Indices outside the history select
        nothing. Fewer entries than selected inside it mean that some were damaged (see `open`): the session cannot be
        changed until it is repaired.
        """
        ...

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """Return the entries of the history with these seqs, in its order. Skip seqs that it does not hold."""
        ...

    async def replace(self, session_id: str, keep: int, entries: Sequence[Entry]) -> None:
        """Keep the first `keep` entries, move the later ones to the archive, and append `entries` in their place.

        `entries` may hold some of the later ones (they move, and are not archived). A checkpoint that covers more than
        `keep` entries is deleted. ``keep=0`` without entries clears the session; its seqs are still never given again.

        Raises:
            StoreError: also if `keep` is greater than the length of the history.
        """
        ...

    async def rewrite(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Replace the entries of the same seqs wherever they are kept, the archive included.

        This erases, as only `delete` does besides: the former messages are removed from everything the store keeps,
        search index, checkpoints and quarantined bytes included. (If only tokens differ, checkpoints stay.) Seqs that
        are kept nowhere are skipped. If there is such a seq, or no entry is given, quarantined bytes are erased as
        well: the message may be among them. A server may keep bytes until it clears them, if no entry is redacted.

        Raises:
            NotErased: the entries are replaced, but the former messages are not removed from everything yet.
        """
        ...

    async def archived(self, session_id: str) -> list[Entry]:
        """Return the entries that left the history, oldest replacement first; none if no archive is kept."""
        ...

    async def save_checkpoint(self, session_id: str, covered: int, data: bytes) -> None:
        """Keep bytes that cover the first `covered` entries, in place of the bytes saved before.

        With ``covered=0`` this creates a session that does not exist yet.

        Raises:
            StoreError: also if `covered` is greater than the length of the history.
        """
        ...

    async def load_checkpoint(self, session_id: str) -> bytes | None:
        """Return the checkpoint; None if there is none, or if it is damaged (reported to `on_repair`)."""
        ...

    async def fork(self, session_id: str, new_id: str, length: int | None = None) -> None:
        """Create a session from the first `length` entries (None: all) of this one.

        Seqs, and the session ids inside the entries, stay the same. The archive is not copied; the checkpoint is, if
        the new session holds all entries that it covers. The `last_seq` of the new session is that of this one,
        whatever its length: a mark must not name another message in a fork than in its parent.

        Raises:
            StoreError: also if session `new_id` exists, `session_id` does not, or it is shorter than `length`.
        """
        ...

    async def sessions(self) -> list[SessionInfo]:
        """Return all sessions, the last changed first."""
        ...

    async def delete(self, session_id: str) -> None:
        """Erase a session, with archive, checkpoint and search index. Deleting an unknown session is a no-op."""
        ...

    async def close(self) -> None:
        """Release all sessions, and close files and connections. Closing twice is a no-op; a later call opens again.

        An error keeps no session locked in this process. The lease of a server that cannot be asked expires.
        """
        ...


@runtime_checkable
class Searchable(Protocol):
    """A store that finds messages by words itself, so that a search does not load the history."""

    async def search(self, session_id: str, query: str, limit: int) -> list[int]:
        """Return the seqs of at most `limit` entries of the history that match words, best first."""
        ...


class KeptVector(NamedTuple):
    """The vector of a message."""

    seq: int  # of the message
    digest: bytes  # of its text; a vector of another text is not used
    vector: bytes  # little-endian float32


@runtime_checkable
class KeepsVectors(Protocol):
    """A store that keeps vectors of messages beside them, of one embedding model a session.

    A vector goes with its message: when `rewrite` changes the message, `replace` takes it out of the history, or the
    session is deleted. Forks begin without vectors.
    """

    async def vectors(self, session_id: str, model: str) -> list[KeptVector]:
        """Return the vectors of a model; none if those that are kept are of another one."""
        ...

    async def save_vectors(self, session_id: str, model: str, vectors: Sequence[KeptVector]) -> None:
        """Keep vectors, in place of those of the same seqs and of all those of other models.

        Seqs that the history does not hold are skipped.
        """
        ...


@runtime_checkable
class Checkable(Protocol):
    """A store that can find damage that reading alone does not show."""

    async def verify(self, session_id: str) -> list[str]:
        """Return what is wrong with a session, one line each. Changes nothing and locks nothing."""
        ...


@runtime_checkable
class Repairable(Protocol):
    """A store that can repair damage that reading and opening do not repair."""

    async def repair(self, session_id: str | None, on_repair: OnRepair | None = None) -> None:
        """Lock a session, and repair everything that `Checkable.verify` reports about it.

        Args:
            session_id: which session. None locks none, and repairs what sessions share.
            on_repair: called for each repair, and for repairs of what sessions share that no earlier call reported.

        Raises:
            StoreError: the damage cannot be repaired; the text of the error names what else to do.
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


async def read_in_batches(
    store: Store, session_id: str, start: int = 0, stop: int | None = None
) -> AsyncIterator[list[Entry]]:
    """Yield the entries from index `start` up to `stop` (None: to the end), a thousand at once."""
    length = (await store.extent(session_id)).length
    stop = length if stop is None else min(stop, length)
    for index in range(start, stop, _BATCH_SIZE):
        yield await store.read(session_id, index, min(index + _BATCH_SIZE, stop))
