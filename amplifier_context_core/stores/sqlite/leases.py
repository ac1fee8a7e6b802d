"""One writer a session: a row says who it is, and every change looks whether that is still us.

A claim carries a number that is given once in the life of the database (the fence), so that a holder who was taken for
dead and comes back cannot take the new claim for its own. On the same machine a holder is gone when its process is; a
process is known by its id and the time it began, for ids are given again. Another machine (containers are machines of
their own) cannot see that, so there a claim ends when it was not renewed for a while.
"""

from __future__ import annotations

import functools
import os
import secrets
import socket
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import SessionInUse, SessionLost, StoreError
from .columns import number_in, text_in, time_in
from .driver import required_row

TTL = 60.0  # seconds a claim is good for where nobody can see whether its holder lives

_SELECT_LEASE = "SELECT fence, token, expires, released FROM leases WHERE session = ?"
_live_tokens: set[str] = set()  # tokens of this process's store objects that may hold claims


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a claim, as its row says."""

    token: str
    fence: int
    pid: int
    host: str
    machine: str
    started: str
    expires: float
    released: float | None

    def __str__(self) -> str:
        here = " (another store object of this process)" if self.is_this_process() else ""
        return f"pid {self.pid} on {self.host}{here}"

    def is_this_process(self) -> bool:
        """Is it a store object of this very process?"""
        return self.machine == machine_id() and self.pid == os.getpid() and self.started == process_start(self.pid)

    def is_gone(self) -> bool:
        """May the claim be taken over?"""
        if self.released is not None:
            return True
        if self.is_this_process():
            return self.token not in _live_tokens
        if self.machine != machine_id():
            return self.expires < time.time()
        return process_start(self.pid) != self.started


class Leases:
    """The claims of one store object.

    Attributes:
        token: what its claims are marked with.
        held: fences of the sessions it has claimed.
        lost: what is to be said of the sessions that were taken from it, until it opens or releases them.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self.held: dict[str, int] = {}
        self.lost: dict[str, StoreError] = {}
        self._token_bytes = self.token.encode()  # as the database gives it
        # Of the transaction that is under way: what it claimed, and (None) gave back. True when it is committed.
        self._staged: dict[str, int | None] = {}

    def ensure(self, db: sqlite3.Connection, session_id: str, *, reacquire: bool = False) -> None:
        """Claim a session, or make sure that it is still ours; inside a transaction that writes.

        Args:
            db: in a transaction that writes.
            session_id: which.
            anew: claim it also when it was lost.

        Raises:
            SessionInUse: another holds it.
            SessionLost: it was ours, and another has it now, or had it since.
            StoreError: it was ours in a database that is not there any more.
        """
        if session_id in self.lost and not reacquire:
            raise self.lost[session_id].with_traceback(None)
        ours = self._staged[session_id] if session_id in self._staged else self.held.get(session_id)
        row = db.execute(_SELECT_LEASE, (session_id,)).fetchone()
        if ours is not None and row is not None and row[0] == ours and row[1] == self._token_bytes and row[3] is None:
            if time_in(row[2]) < time.time() + TTL / 2:
                self.renew(db)
            return
        holder = lease_holder(db, session_id) if row else None
        if ours is not None and not reacquire:
            self.lost[session_id] = SessionLost(session_id, str(holder) if holder else "another writer")
            self.held.pop(session_id, None)
            raise self.lost[session_id]
        if holder is not None and holder.token != self.token and not holder.is_gone():
            raise SessionInUse(session_id, str(holder))
        self._acquire(db, session_id)

    def orphan_all(self, change: str) -> None:
        """The database went away, and the claims with it: what is there now is not what their holders know."""
        for session_id in self.held:
            self.lost[session_id] = StoreError(
                f"session {session_id!r}: another program {change}, and nothing was written there; put it back if it "
                "is missed, then release the session and open it again: what it holds then is taken over"
            )
        self.held.clear()

    def is_orphaned(self, session_id: str) -> bool:
        """Was a session claimed in a database that went away?"""
        return session_id in self.lost and not isinstance(self.lost[session_id], SessionLost)

    def check_free(self, db: sqlite3.Connection, session_id: str) -> None:
        """Raise `SessionInUse` if another holds a session."""
        holder = lease_holder(db, session_id)
        if holder is not None and holder.token != self.token and not holder.is_gone():
            raise SessionInUse(session_id, str(holder))

    def is_free(self, db: sqlite3.Connection, session_id: str) -> bool:
        """May this store object change a session now, without taking it from anybody?"""
        holder = lease_holder(db, session_id)
        return session_id not in self.lost and (holder is None or holder.token == self.token or holder.is_gone())

    def renew(self, db: sqlite3.Connection) -> None:
        """Make all claims good for another while."""
        db.execute(
            "UPDATE leases SET expires = ? WHERE token = ? AND released IS NULL", (time.time() + TTL, self.token)
        )

    def release(self, db: sqlite3.Connection, session_id: str) -> None:
        """Give a claim back; that it was lost is not held against whoever opens it again."""
        db.execute(
            "UPDATE leases SET released = ? WHERE session = ? AND token = ?", (time.time(), session_id, self.token)
        )
        self._staged[session_id] = None

    def reacquire_all(self, db: sqlite3.Connection) -> None:
        """Claim all that was ours: the database was written anew, and nobody else was at it."""
        for session_id in self.held:
            self._acquire(db, session_id)

    def staged_changes(self) -> dict[str, int | None]:
        """What the transaction under way has done so far; for `take_back`."""
        return dict(self._staged)

    def restore_staged(self, before: dict[str, int | None]) -> None:
        """What the transaction did since is taken back."""
        self._staged = before

    def finish_transaction(self, committed: bool) -> None:
        """The transaction ended."""
        for session_id, fence in self._staged.items() if committed else ():
            self.lost.pop(session_id, None)
            if fence is None:
                self.held.pop(session_id, None)
            else:
                self.held[session_id] = fence
        self._staged = {}

    def retire(self) -> None:
        """Nothing of this store object holds a claim any more, whatever stands in the database."""
        _live_tokens.discard(self.token)

    def _acquire(self, db: sqlite3.Connection, session_id: str) -> None:
        _live_tokens.add(self.token)
        self._staged[session_id] = fence = next_fence(db)
        pid = os.getpid()
        db.execute(
            "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (
                session_id,
                self.token,
                fence,
                pid,
                socket.gethostname(),
                machine_id(),
                process_start(pid),
                time.time() + TTL,
            ),
        )


def next_fence(db: sqlite3.Connection) -> int:
    """A number that was never given in this database."""
    db.execute("INSERT INTO facts VALUES ('fence', 1) ON CONFLICT(name) DO UPDATE SET value = value + 1")
    return number_in(required_row(db.execute("SELECT value FROM facts WHERE name = 'fence'"))[0])


_COLUMNS = "session, token, fence, pid, host, machine, started, expires, released"


def lease_holder(db: sqlite3.Connection, session_id: str) -> Holder | None:
    """Return the last claim on a session, whether it still holds or not; None where there was none.

    Raises:
        sqlite3.Error: the database is damaged, or cannot be read.
    """
    row = db.execute(f"SELECT {_COLUMNS} FROM leases WHERE session = ?", (session_id,)).fetchone()  # noqa: S608 - constant
    return None if row is None else decode_lease_row(row)[1]


def decode_lease_row(row: tuple[Any, ...]) -> tuple[str, Holder]:
    """Return a session's id and its holder, as a row of `leases` says.

    Raises:
        sqlite3.Error: the row is damaged.
    """
    session, token, fence, pid, host, where, began, expires, released = row
    holder = Holder(
        text_in(token),
        number_in(fence),
        number_in(pid),
        text_in(host),
        text_in(where),
        text_in(began),
        time_in(expires),
        None if released is None else time_in(released),
    )
    return text_in(session), holder


def holder_names(db: sqlite3.Connection) -> dict[str, str]:
    """Return for each session that is written to now, by its id, the holder of its claim in words."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM leases WHERE released IS NULL").fetchall()  # noqa: S608 - constant
    return {session: str(holder) for session, holder in map(decode_lease_row, rows) if not holder.is_gone()}


@functools.cache
def machine_id() -> str:
    """What a process id is good in: this host, since it was started, and this container of it."""
    known = [socket.gethostname()]
    with suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        known.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(known)


def process_start(pid: int) -> str:
    """When the process with an id began, in words of the system's own; empty when there is none."""
    try:
        # The name of a process, in brackets, may hold anything; the fields after it are numbers.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "alive"
