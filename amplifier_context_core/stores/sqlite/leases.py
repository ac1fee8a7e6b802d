"""One writer per session: a row holds the lease, and every change checks that the lease is still ours.

A lease carries a fencing token (the fence), a number assigned once in the life of the database. So a holder that was
taken for dead and returns cannot take the new lease for its own. On the same machine a lease ends with its holder's
process; a process is identified by its id and start time, because ids are reused. Another machine cannot observe the
process (each container counts as a machine), so there a lease expires when it is not renewed.
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

TTL = 60.0  # seconds a lease is valid where the holder's process cannot be observed

_SELECT_LEASE = "SELECT fence, token, expires, released FROM leases WHERE session = ?"
_live_tokens: set[str] = set()  # tokens of this process's store objects that may hold leases


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lease, from its row."""

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
        """True if the holder is a store object of this process."""
        return self.machine == machine_id() and self.pid == os.getpid() and self.started == process_start(self.pid)

    def is_gone(self) -> bool:
        """True if the lease may be taken over."""
        if self.released is not None:
            return True
        if self.is_this_process():
            return self.token not in _live_tokens
        if self.machine != machine_id():
            return self.expires < time.time()
        return process_start(self.pid) != self.started


class Leases:
    """The leases of one store object.

    Attributes:
        token: Marks the leases of this store object.
        held: Fences of its sessions.
        lost: The error for each session whose lease was lost, until the session is opened or released.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self.held: dict[str, int] = {}
        self.lost: dict[str, StoreError] = {}
        self._token_bytes = self.token.encode()  # as the database returns it
        # Changes of the current transaction: the fence of each acquired lease, None for each released one.
        self._staged: dict[str, int | None] = {}

    def ensure(self, db: sqlite3.Connection, session_id: str, *, reacquire: bool = False) -> None:
        """Acquire the lease of a session, or check that this store object still holds it.

        Args:
            db: A connection in a write transaction.
            session_id: The session.
            reacquire: Acquire the lease even if it was lost.

        Raises:
            SessionInUse: Another store object holds it.
            SessionLost: This store object held it, and another one has acquired it since.
            StoreError: It was held in a database that is gone.
        """
        if session_id in self.lost and not reacquire:
            raise self.lost[session_id].with_traceback(None)
        our_fence = self._staged[session_id] if session_id in self._staged else self.held.get(session_id)
        row = db.execute(_SELECT_LEASE, (session_id,)).fetchone()
        if (
            our_fence is not None
            and row is not None
            and row[0] == our_fence
            and row[1] == self._token_bytes
            and row[3] is None
        ):
            if time_in(row[2]) < time.time() + TTL / 2:
                self.renew(db)
            return
        holder = lease_holder(db, session_id) if row else None
        if our_fence is not None and not reacquire:
            self.lost[session_id] = SessionLost(session_id, str(holder) if holder else "another writer")
            self.held.pop(session_id, None)
            raise self.lost[session_id]
        if holder is not None and holder.token != self.token and not holder.is_gone():
            raise SessionInUse(session_id, str(holder))
        self._acquire(db, session_id)

    def orphan_all(self, change: str) -> None:
        """Mark all leases as orphaned: the database is gone, and the one at its path may hold something else."""
        for session_id in self.held:
            self.lost[session_id] = StoreError(
                f"session {session_id!r}: another program {change}, and nothing was written there; restore it if it "
                "is needed, then release the session and open it again to continue with its present content"
            )
        self.held.clear()

    def is_orphaned(self, session_id: str) -> bool:
        """True if the lease of a session was held in a database that is gone."""
        return session_id in self.lost and not isinstance(self.lost[session_id], SessionLost)

    def check_free(self, db: sqlite3.Connection, session_id: str) -> None:
        """Raise `SessionInUse` if another store object holds the lease of a session."""
        holder = lease_holder(db, session_id)
        if holder is not None and holder.token != self.token and not holder.is_gone():
            raise SessionInUse(session_id, str(holder))

    def is_free(self, db: sqlite3.Connection, session_id: str) -> bool:
        """True if this store object may change a session now without taking over a lease."""
        holder = lease_holder(db, session_id)
        return session_id not in self.lost and (holder is None or holder.token == self.token or holder.is_gone())

    def renew(self, db: sqlite3.Connection) -> None:
        """Extend all leases."""
        db.execute(
            "UPDATE leases SET expires = ? WHERE token = ? AND released IS NULL", (time.time() + TTL, self.token)
        )

    def release(self, db: sqlite3.Connection, session_id: str) -> None:
        """Release a lease, and forget that it was lost."""
        db.execute(
            "UPDATE leases SET released = ? WHERE session = ? AND token = ?", (time.time(), session_id, self.token)
        )
        self._staged[session_id] = None

    def staged_changes(self) -> dict[str, int | None]:
        """Return what the current transaction has changed so far, for `restore_staged`."""
        return dict(self._staged)

    def restore_staged(self, before: dict[str, int | None]) -> None:
        """Undo the changes of the current transaction since then."""
        self._staged = before

    def finish_transaction(self, committed: bool) -> None:
        """Make the changes of the ended transaction valid, or drop them."""
        for session_id, fence in self._staged.items() if committed else ():
            self.lost.pop(session_id, None)
            if fence is None:
                self.held.pop(session_id, None)
            else:
                self.held[session_id] = fence
        self._staged = {}

    def retire(self) -> None:
        """Declare that this store object holds no lease any more, whatever the database says."""
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
    """Return a number that was never assigned in this database."""
    db.execute("INSERT INTO facts VALUES ('fence', 1) ON CONFLICT(name) DO UPDATE SET value = value + 1")
    return number_in(required_row(db.execute("SELECT value FROM facts WHERE name = 'fence'"))[0])


_COLUMNS = "session, token, fence, pid, host, machine, started, expires, released"


def lease_holder(db: sqlite3.Connection, session_id: str) -> Holder | None:
    """Return the last holder of a session's lease, valid or not; None without one.

    Raises:
        sqlite3.Error: The database is damaged, or cannot be read.
    """
    row = db.execute(f"SELECT {_COLUMNS} FROM leases WHERE session = ?", (session_id,)).fetchone()  # noqa: S608 - constant
    return None if row is None else decode_lease_row(row)[1]


def decode_lease_row(row: tuple[Any, ...]) -> tuple[str, Holder]:
    """Return a session's id and its holder from a row of `leases`.

    Raises:
        sqlite3.Error: The row is damaged.
    """
    session, token, fence, pid, host, machine, started, expires, released = row
    holder = Holder(
        text_in(token),
        number_in(fence),
        number_in(pid),
        text_in(host),
        text_in(machine),
        text_in(started),
        time_in(expires),
        None if released is None else time_in(released),
    )
    return text_in(session), holder


def holder_names(db: sqlite3.Connection) -> dict[str, str]:
    """Return the holder of each session with a valid lease, by session id, as text."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM leases WHERE released IS NULL").fetchall()  # noqa: S608 - constant
    return {session: str(holder) for session, holder in map(decode_lease_row, rows) if not holder.is_gone()}


@functools.cache
def machine_id() -> str:
    """Return the scope of process ids: this host since its boot, and this container."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def process_start(pid: int) -> str:
    """Return the start time of a process as the system states it; empty if it does not run."""
    try:
        # The process name, in brackets, may hold anything; the fields after it are numbers.
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
