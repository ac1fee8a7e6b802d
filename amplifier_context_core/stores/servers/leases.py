"""Stores on a server: one writer a session by a lease, and no change made twice or half.

A server outlives its writers and connections break, so a claim is a *lease*: a row on the server that names its holder
and expires unless it is renewed. Each claim has a *fence* of its own, a name nobody else knows; every change asks for
it in the same transaction, so a writer that lost its claim while it was stopped or cut off can write nothing.

Each change also has a name, and is made only if the last one was the one its writer knows. When a connection breaks
before the answer has come, the change is simply sent again: it is made now, or it was made before, and the session's
row says which. What cannot be found out, because the server stays away, is remembered as a *doubt*; the next call for
the session settles it before anything else, and takes back an append that its caller was told had failed.

This module says what a store on a server (`leased_store`) and its server (`Line`) tell each other. All stores of a
process with the same address share one line, with an event loop of its own (see `owner`).
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from ...errors import StoreError
from ...locks import Gate
from ...transcript.transcript import Entry
from ..codec import encode_extra, message_json
from ..protocol import Extent, OnRepair, SessionInfo
from .owner import Owner

GONE = "nobody: it is gone from the server (deleted, or the server lost its data)"
CHUNK = 32  # rows that are worked on before others get their turn


class Unreachable(StoreError):
    """The server could not be asked: nothing was sent."""


class Cut(StoreError):
    """The connection broke before the answer came: the server may have done what it was asked, or still do it."""


class Unconfirmed(StoreError):
    """A change was made, but the server did not say in time that it is on disk."""


class Row(NamedTuple):
    """An entry as servers keep it: see `rows`. `extra` is mostly empty."""

    seq: int
    turn: int
    tokens: int
    message: bytes | str
    extra: dict[str, Any]


class Held(NamedTuple):
    """What a session's row says when it was claimed. `key` is what the line calls the session.

    `sound` is false where the line saw that something is lost: that is mended before anything is changed.
    """

    key: Any
    extent: Extent
    change: int
    created: bool
    sound: bool = True


class State(NamedTuple):
    """What a session's row says."""

    fence: str
    holder: str
    change: int
    extent: Extent


class Rewritten(Enum):
    """What a rewrite did. Anything but a refusal is true."""

    REFUSED = 0
    SAME_MESSAGES = 1
    OTHER_MESSAGES = 2

    def __bool__(self) -> bool:
        return self is not Rewritten.REFUSED


@dataclass(slots=True)
class Doubt:
    """A change that may have been made, though nobody was told so: it is under way from its caller's loop, or was
    reported as failed. `settled` names the change that ends the doubt.
    """

    change: int
    settled: int
    appended: int  # entries, if it was an append


@dataclass(slots=True)
class Claim:
    """A session that is open here."""

    session_id: str
    fence: str
    held: Held
    turn: Gate  # kept for as long as the session is open here
    on_repair: OnRepair | None = None
    lost_to: str = ""
    doubt: Doubt | None = None

    @property
    def extent(self) -> Extent:
        return self.held.extent

    def moved(self, change: int, extent: Extent | None = None) -> None:
        """A change was made."""
        self.held = Held(self.held.key, extent or self.extent, change, True)


class Line(Protocol):
    """A server, as its store asks it. Called on the background loop only, `append_here` on any.

    Methods that change something return whether they did; they do so only if the claim's fence and last change are
    those of the session's row. All raise `Unreachable`, `Cut` or, for what the server refused, `StoreError`.
    """

    owner: Owner
    where: str

    async def stop(self) -> None: ...

    async def claim(self, session_id: str, fence: str, holder: str, ttl: float) -> Held | str:
        """Claim a session that is free, expired or ours; otherwise who holds it."""
        ...

    async def renew(self, claims: Sequence[Claim], ttl: float) -> None: ...
    async def release(self, claim: Claim) -> None: ...
    async def state(self, session_id: str) -> State | None: ...
    async def settle(self, claim: Claim, change: int, ttl: float) -> bool: ...
    async def undo(self, claim: Claim, undone: int, change: int) -> bool: ...
    async def append(self, claim: Claim, change: int, rows: Sequence[Row], ttl: float) -> bool: ...
    def append_here(self, claim: Claim, change: int, row: Row, ttl: float) -> Coroutine[Any, Any, bool] | None:
        """Append one row from the running loop; to be awaited at once. None where that cannot be, or not now."""
        ...

    async def replace(
        self, claim: Claim, change: int, keep: int, rows: Sequence[Row], archive: bool, ttl: float
    ) -> bool: ...
    async def rewrite(self, claim: Claim, change: int, rows: Sequence[Row], ttl: float) -> Rewritten: ...
    async def erase(self, claim: Claim) -> None:
        """Erase what the server keeps of messages that were rewritten.

        Raises:
            NotErased: it could not.
        """
        ...

    async def save_checkpoint(self, claim: Claim, change: int, covered: int, data: bytes, ttl: float) -> bool: ...
    async def fork(self, claim: Claim, change: int, parent: str, length: int, ttl: float) -> bool: ...
    async def delete(self, claim: Claim) -> bool: ...
    async def mend(self, claim: Claim, change: int, damaged: Sequence[int], ttl: float) -> bool: ...
    async def extent(self, session_id: str) -> Extent | None: ...
    async def read(self, session_id: str, start: int, stop: int | None) -> list[Row]: ...
    async def find(self, session_id: str, seqs: Sequence[int]) -> list[Row]: ...
    async def archived(self, session_id: str) -> list[Row]: ...
    async def load_checkpoint(self, session_id: str) -> bytes | None: ...
    async def sessions(self) -> list[SessionInfo]: ...
    async def verify(self, session_id: str) -> list[str]: ...


def holder() -> str:
    """Who claims sessions in this process."""
    return f"pid {os.getpid()} on {socket.gethostname()}"


def new_change() -> int:
    """A name for a change; 62 random bits."""
    return random.getrandbits(62) or 1


def rows_of(session_id: str, entries: Sequence[Entry]) -> list[Row]:
    """Entries as rows. Raises what `message_json` raises for what JSON cannot hold."""
    rows: list[Row] = []
    for index, entry in enumerate(entries, 1):
        message = message_json(entry.message)
        rows.append(Row(entry.seq, entry.turn, entry.tokens, message, encode_extra(entry, session_id)))
        if index % CHUNK == 0:
            breathe()
    return rows


def breathe() -> None:
    """Let the callers' threads run: without it Python would let them wait 5 ms and more for a thread that is busy."""
    time.sleep(0.00002)
