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
from typing import Any, NamedTuple, Protocol

from amplifier_context_core.errors import SessionLost, StoreError
from amplifier_context_core.stores.codec import decode_entry, encode_extra, message_json
from amplifier_context_core.stores.protocol import Extent, OnRepair, SessionInfo
from amplifier_context_core.transcript.entry import Entry

from .loop_thread import LoopThread

_YIELD_EVERY = 32  # rows that are decoded before the loop's other tasks, and other threads, go on


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


GONE = EntryRow(0, 0, 0, b"", {})  # in place of a row that the session should have


class SessionRow(NamedTuple):
    key: Any  # the driver's own name for the session
    token: str  # of its lease; empty if it has none
    holder: str  # of its lease
    extent: Extent  # how much of the session there is
    revision: int  # of its last change
    created: bool  # anything was ever written to it


class Change(NamedTuple):
    """What a change of a session is sent with: its revision, and the seconds until the lease expires after it."""

    revision: int
    ttl: float


@dataclass(slots=True)
class Lease:
    session_id: str
    row: SessionRow  # after the last change of this store
    on_repair: OnRepair | None = None
    # The writer that took the lease over; empty if the session is gone; None while it is held here.
    lost_to: str | None = None
    unknown: int | None = None  # revision of a change whose outcome is unknown
    is_damaged: bool = False  # messages that were read were damaged, and left out

    @property
    def is_lost(self) -> bool:
        return self.lost_to is not None

    @property
    def length(self) -> int:
        return self.row.extent.length

    def extent_with(self, rows: Sequence[EntryRow], keep: int) -> Extent:
        return Extent(keep + len(rows), max((self.row.extent.last_seq, *(row.seq for row in rows))))

    def lose(self, row: SessionRow | None) -> SessionLost:
        """Note that the lease is lost, to another writer or because the session is gone. Return the error for that."""
        self.lost_to = "" if row is None else row.holder or "another writer, which has released it since"
        return SessionLost(self.session_id, self.lost_to)


class Driver(Protocol):
    """A server, as its store sees it. Its methods run on its loop thread only.

    A method that changes a session returns True if it did. It does so only if the lease's token and last revision are
    those of the session's row. Every method raises `Unreachable`, `ConnectionLost` or, if the server refused,
    `StoreError`.
    """

    loop_thread: LoopThread
    display_name: str

    async def stop(self) -> None: ...

    async def acquire(self, session_id: str, token: str, ttl: float, former: str = "") -> SessionRow | None:
        """Lease a session that is free, expired or leased under one of these tokens. Return its row in any case."""
        ...

    async def renew(self, leases: Sequence[Lease], ttl: float) -> None: ...
    async def release(self, lease: Lease) -> None: ...
    async def state(self, session_id: str) -> SessionRow | None: ...
    async def replace(self, lease: Lease, keep: int, rows: Sequence[EntryRow], archive: bool, change: Change) -> bool:
        """Keep the first `keep` rows, and put these after them. With all rows kept, this is an append."""
        ...

    async def rewrite(self, lease: Lease, rows: Sequence[EntryRow], change: Change) -> bool: ...
    async def erase(self, lease: Lease) -> None:
        """Erase what the server still keeps of messages that were rewritten; raise `NotErased` if it cannot."""
        ...

    async def save_checkpoint(self, lease: Lease, covered: int, data: bytes, change: Change) -> bool: ...
    async def fork(self, lease: Lease, parent: str, length: int, change: Change) -> bool: ...
    async def delete(self, lease: Lease) -> bool: ...
    async def read(self, session_id: str, start: int, stop: int | None) -> list[EntryRow]:
        """Return rows in order. One that is gone is left out, or is `GONE`."""
        ...

    async def find(self, session_id: str, seqs: Sequence[int]) -> list[EntryRow]: ...
    async def archived(self, session_id: str) -> list[EntryRow]: ...
    async def load_checkpoint(self, session_id: str) -> bytes | None: ...
    async def sessions(self) -> list[SessionInfo]: ...


def holder_name() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()}"


def new_revision() -> int:
    """Return a random name for a change: 62 bits, never 0.

    Not from `random`, which hosts may seed alike in two processes.
    """
    return secrets.randbits(62) or 1


def encode_rows(session_id: str, entries: Sequence[Entry]) -> list[EntryRow]:
    """Return entries as rows. Raise what `message_json` raises if JSON cannot hold a message."""
    return [
        EntryRow(one.seq, one.turn, one.tokens, message_json(one.message), encode_extra(one, session_id))
        for one in entries
    ]


def decode_row(session_id: str, row: EntryRow) -> Entry:
    """Raises `StoreError`: the row is damaged."""
    return decode_entry(session_id, row.seq, row.turn, row.tokens, row.message, row.extra)


async def decode_rows(session_id: str, rows: Sequence[EntryRow]) -> list[Entry]:
    """Leave damaged rows out."""
    entries: list[Entry] = []
    for index, row in enumerate(rows, 1):
        with contextlib.suppress(StoreError):
            entries.append(decode_row(session_id, row))
        if index % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
    return entries
