"""Leases, revisions, and the protocol between a store on a server and its driver.

A session has one writer. A server outlives its writers and connections break, so a session is locked by a *lease*: a
row on the server that names its holder and expires unless it is renewed. Each lease has a *token*, a random name that
only its holder knows; servers keep it as `fence`. Every change checks the token in its own transaction. So a writer
that lost its lease while it was stopped or disconnected can write nothing.

Each change also has a random *revision*. A change is applied only if the revision of the session's last change is the
one that its writer knows. If a connection breaks before the answer has come, the change is sent again. It is applied
now, or the session's row says that it was applied before.

If the server stays unreachable, the outcome is unknown and the caller gets `OutcomeUnknown`. The next call for the
session leases it again under a new token. Then the server refuses a change that is still on its way, and the extent
that it returns with the lease shows whether the change was applied.

This module holds what a store (`store.LeasedStore`) and its server (`Driver`) exchange. All stores of a process with
the same URL share one driver, which has an event loop of its own (see `loop_thread`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from amplifier_context_core.errors import StoreError
from amplifier_context_core.stores.codec import decode_entry, encode_extra, message_json
from amplifier_context_core.stores.protocol import Extent, OnRepair, SessionInfo
from amplifier_context_core.stores.yielding import yield_gil
from amplifier_context_core.transcript.entry import Entry

from .loop_thread import LoopThread

YIELD_EVERY = 32  # rows that are processed before other threads get the interpreter


class Unreachable(StoreError):
    """No connection to the server could be made: nothing was sent."""


class ConnectionLost(StoreError):
    """The connection broke before the answer came: the server may have carried out the request, or still do so."""


class NotDurable(StoreError):
    """A change was applied, but the server did not confirm in time that it is on disk."""


class EntryRow(NamedTuple):
    """An entry as servers keep it (see `codec`). `extra` is mostly empty."""

    seq: int
    turn: int
    tokens: int
    message: bytes | str
    extra: dict[str, Any]


class LeaseGrant(NamedTuple):
    """What a session's row says when the lease is granted.

    Attributes:
        key: the driver's own name for the session.
        extent: how much of the session there is.
        revision: of its last change.
        created: whether anything was ever written to it.
    """

    key: Any
    extent: Extent
    revision: int
    created: bool


class LeaseState(NamedTuple):
    """What a session's row says. `created` is False if nothing was ever written to the session."""

    token: str
    holder: str
    revision: int
    extent: Extent
    created: bool


class RewriteResult(Enum):
    """What a rewrite did. Anything but a refusal is true."""

    REFUSED = 0
    SAME_MESSAGES = 1
    OTHER_MESSAGES = 2

    def __bool__(self) -> bool:
        return self is not RewriteResult.REFUSED


@dataclass(slots=True)
class Lease:
    """A session that is open in this store.

    Attributes:
        lost_to: the writer that took the lease over; empty if the session is gone; None while it is held here.
        unknown: revision of a change whose outcome is unknown.
        is_damaged: True if messages that were read were damaged, and left out.
    """

    session_id: str
    token: str
    grant: LeaseGrant
    on_repair: OnRepair | None = None
    lost_to: str | None = None
    unknown: int | None = None
    is_damaged: bool = False

    @property
    def is_lost(self) -> bool:
        """True if nothing may be written with it any more."""
        return self.lost_to is not None

    @property
    def extent(self) -> Extent:
        return self.grant.extent

    def extent_with(self, rows: Sequence[EntryRow], keep: int) -> Extent:
        """Return the extent with these rows after the first `keep` ones."""
        return Extent(keep + len(rows), max((self.extent.last_seq, *(row.seq for row in rows))))

    def advance(self, revision: int, extent: Extent | None = None) -> None:
        """Record that a change was applied."""
        self.grant = LeaseGrant(self.grant.key, extent or self.extent, revision, True)


class Driver(Protocol):
    """A server, as its store sees it. Its methods run on its loop thread only.

    A method that changes a session returns True if it did. It does so only if the lease's token and last revision are
    those of the session's row. Every method raises `Unreachable`, `ConnectionLost` or, if the server refused,
    `StoreError`.
    """

    loop_thread: LoopThread
    display_name: str

    async def stop(self) -> None: ...

    async def acquire(self, session_id: str, token: str, holder: str, ttl: float, former: str = "") -> LeaseGrant | str:
        """Lease a session that is free, expired or leased under one of these tokens; otherwise return its holder."""
        ...

    async def renew(self, leases: Sequence[Lease], ttl: float) -> None: ...
    async def release(self, lease: Lease) -> None: ...
    async def state(self, session_id: str) -> LeaseState | None: ...
    async def append(self, lease: Lease, revision: int, rows: Sequence[EntryRow], ttl: float) -> bool: ...
    async def replace(
        self, lease: Lease, revision: int, keep: int, rows: Sequence[EntryRow], archive: bool, ttl: float
    ) -> bool: ...
    async def rewrite(self, lease: Lease, revision: int, rows: Sequence[EntryRow], ttl: float) -> RewriteResult: ...
    async def erase(self, lease: Lease) -> None:
        """Erase what the server still keeps of messages that were rewritten.

        Raises:
            NotErased: it could not.
        """
        ...

    async def save_checkpoint(self, lease: Lease, revision: int, covered: int, data: bytes, ttl: float) -> bool: ...
    async def fork(self, lease: Lease, revision: int, parent: str, length: int, ttl: float) -> bool: ...
    async def delete(self, lease: Lease) -> bool: ...
    async def read(self, session_id: str, start: int, stop: int | None) -> list[EntryRow]: ...
    async def find(self, session_id: str, seqs: Sequence[int]) -> list[EntryRow]: ...
    async def archived(self, session_id: str) -> list[EntryRow]: ...
    async def load_checkpoint(self, session_id: str) -> bytes | None: ...
    async def sessions(self) -> list[SessionInfo]: ...
    async def verify(self, session_id: str) -> list[str]: ...


def holder_name() -> str:
    """Return the name under which this process leases sessions."""
    return f"pid {os.getpid()} on {socket.gethostname()}"


def new_revision() -> int:
    """Return a random name for a change: 62 bits, never 0.

    Not from `random`, which hosts may seed alike in two processes.
    """
    return secrets.randbits(62) or 1


def encode_rows(session_id: str, entries: Sequence[Entry]) -> list[EntryRow]:
    """Return entries as rows. Raise what `message_json` raises if JSON cannot hold a message."""
    rows: list[EntryRow] = []
    for index, entry in enumerate(entries, 1):
        message = message_json(entry.message)
        rows.append(EntryRow(entry.seq, entry.turn, entry.tokens, message, encode_extra(entry, session_id)))
        if index % YIELD_EVERY == 0:
            yield_gil()
    return rows


async def decode_rows(session_id: str, rows: Sequence[EntryRow]) -> list[Entry]:
    """Return the entries of the rows that are not damaged."""
    entries: list[Entry] = []
    for index, row in enumerate(rows, 1):
        with contextlib.suppress(StoreError):
            entries.append(decode_entry(session_id, row.seq, row.turn, row.tokens, row.message, row.extra))
        if index % YIELD_EVERY == 0:
            yield_gil()
            await asyncio.sleep(0)
    return entries
