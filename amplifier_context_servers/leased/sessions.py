"""The sessions that a store on a server has leased: locks, leases, and calls on the driver's loop.

Calls for one session run one after another. A call takes the session's lock. If the outcome of an earlier change is
unknown, it leases the session again. If it changes the session, it acquires the lease unless this store holds it. See
`protocol`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from amplifier_context_core.errors import OutcomeUnknown, SessionInUse, SessionLost, StoreError
from amplifier_context_core.stores.protocol import Extent, OnRepair, Repair, report_repair
from amplifier_context_core.stores.validation import check_session_id

from .loop_thread import RefCounted
from .protocol import ConnectionLost, Driver, Lease, LeaseGrant, LeaseState, NotDurable, holder_name, new_revision

log = logging.getLogger(__name__)

T = TypeVar("T")

Change = Callable[[Driver, Lease], Awaitable[None]]


class LeasedSessions:
    """Leases sessions and runs calls for them. Each object leases for itself: two in one process are two writers.

    Args:
        drivers: the drivers of this process.
        key: of this store's driver among them.
        ttl: seconds until a lease that is not renewed expires.
    """

    def __init__(self, drivers: RefCounted[Any, Any], key: Any, *, ttl: float) -> None:
        self._drivers, self._key = drivers, key
        self._ttl = ttl
        self._lock = threading.Lock()
        self._pid = 0  # of the process that uses the driver
        self._driver: Driver | None = None
        self._running_calls = 0
        self._closing = False
        self._leases: dict[str, Lease] = {}
        self._requested_tokens: dict[str, str] = {}  # by session: of leases that were asked for without an answer yet
        self._session_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._renewal: asyncio.Task[None] | None = None
        self._repairs: list[tuple[Repair, OnRepair | None]] = []

    # -- calls ----------------------------------------------------------------------------------------------------

    async def _call(self, work: Callable[[Driver], Coroutine[Any, Any, T]], *, begin: bool = True) -> T:
        """Run work on the driver's loop, then report repairs. With `begin` false, only if this store has a driver."""
        with self._lock:
            driver = self._driver
            if driver is None or self._pid != os.getpid():
                if not begin:
                    return cast(T, None)
                if driver is not None:
                    raise StoreError("this store was in use when the process forked; open another one in the child")
                driver, self._pid = cast(Driver, self._drivers.acquire(self._key)), os.getpid()
                self._driver = driver
            self._running_calls += 1
        try:
            return await driver.loop_thread.run(self._run(driver, work))
        finally:
            while self._repairs:
                report_repair(*self._repairs.pop(0))

    async def _run(self, driver: Driver, work: Callable[[Driver], Coroutine[Any, Any, T]]) -> T:
        """Run work, and give the driver back after the last call of a store that is closing."""
        try:
            return await work(driver)
        finally:
            with self._lock:
                self._running_calls -= 1
                is_done = self._closing and not self._running_calls and not self._leases
                is_last_user = is_done and self._drivers.release(self._key)
                if is_done:
                    self._driver, self._closing = None, False
            if is_done and self._renewal is not None:
                self._renewal.cancel()
                self._renewal = None
            if is_last_user:
                await driver.stop()
                driver.loop_thread.stop()

    def _session_lock(self, session_id: str) -> asyncio.Lock:
        """Return the lock that calls for one session hold one after another. For the driver's loop."""
        lock = self._session_locks.get(session_id)
        if lock is None:
            lock = self._session_locks[session_id] = asyncio.Lock()
        return lock

    async def _read(self, session_id: str, ask: Callable[[Driver], Awaitable[T]]) -> T:
        """Run a request that changes nothing; it is repeated once if the connection breaks."""
        check_session_id(session_id)

        async def work(driver: Driver) -> T:
            async with self._session_lock(session_id):
                await self._resolve_outcome(driver, session_id)
                return await retry_once(lambda: ask(driver))

        return await self._call(work)

    async def _change(self, session_id: str, change: Change) -> None:
        """Run a change under the session's lock and lease."""

        async def work(driver: Driver) -> None:
            async with self._session_lock(session_id):
                await self._change_locked(driver, session_id, change)

        await self._call(work)

    async def _change_locked(self, driver: Driver, session_id: str, change: Change) -> None:
        """Run a change under a lock that the caller holds."""
        await self._resolve_outcome(driver, session_id)
        lease = await self._lease(driver, session_id)
        if lease.is_lost:
            raise SessionLost(session_id, lease.lost_to or "")
        await change(driver, lease)

    # -- leases ---------------------------------------------------------------------------------------------------

    async def _resolve_outcome(self, driver: Driver, session_id: str) -> None:
        """Lease a session again if the outcome of an earlier change is unknown."""
        lease = self._leases.get(session_id)
        if lease is None or lease.unknown is None or lease.is_lost:
            return
        before, unknown = lease.grant, lease.unknown
        try:
            lease.token, lease.grant = await self._acquire(driver, session_id, lease.token)
        except SessionInUse as problem:
            lease.lost_to = problem.holder
            return
        lease.unknown = None
        if lease.grant.revision == unknown:
            log.warning("session %r: a change whose outcome was unknown was made", session_id)
        elif lease.grant.revision != before.revision:
            lease.lost_to = "another writer, which has released it since" if lease.grant.created else ""
            await retry_once(lambda: driver.release(lease))

    async def _acquire(self, driver: Driver, session_id: str, former: str = "") -> tuple[str, LeaseGrant]:
        """Return the token of a new lease, and what the server granted with it."""
        # A request whose answer was lost is repeated under the same token.
        token = self._requested_tokens.setdefault(session_id, uuid.uuid4().hex)
        grant = await retry_once(lambda: driver.acquire(session_id, token, holder_name(), self._ttl, former))
        del self._requested_tokens[session_id]
        if isinstance(grant, str):
            raise SessionInUse(session_id, grant or "another writer")
        return token, grant

    async def _lease(self, driver: Driver, session_id: str) -> Lease:
        """Return this store's lease of a session, acquired now if it has none."""
        lease = self._leases.get(session_id)
        if lease is None:
            lease = self._leases[session_id] = Lease(session_id, *await self._acquire(driver, session_id))
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.get_running_loop().create_task(self._renew(driver))
        return lease

    async def _renew(self, driver: Driver) -> None:
        """Keep leases from expiring while nothing is written. The next change finds out whether one was lost."""
        while self._leases:
            await asyncio.sleep(self._ttl / 3)
            leases = [lease for lease in self._leases.values() if not lease.is_lost]
            if not leases:
                continue
            try:
                await retry_once(lambda leases=leases: driver.renew(leases, self._ttl))
            except StoreError as problem:
                log.warning("leases of %d sessions could not be renewed, trying again: %s", len(leases), problem)

    async def _release(self, driver: Driver, session_id: str) -> None:
        if session_id not in self._leases:
            return
        try:
            await self._resolve_outcome(driver, session_id)
            lease = self._leases[session_id]
            if not lease.is_lost:
                await retry_once(lambda: driver.release(lease))
        except StoreError as problem:
            raise StoreError(
                f"session {session_id!r} could not be released; it is free in {self._ttl:g} s at the latest: {problem}"
            ) from problem
        finally:
            del self._leases[session_id]

    async def _release_all(self, driver: Driver) -> None:
        """Release every session. After the first failure the others are dropped: their leases expire."""
        self._closing = True
        is_reachable = True
        for session_id in list(self._leases):
            async with self._session_lock(session_id):
                try:
                    if is_reachable:
                        await self._release(driver, session_id)
                except StoreError as problem:
                    is_reachable = False
                    log.warning("%s", problem)
                self._leases.pop(session_id, None)

    async def _verify_lease(self, driver: Driver, lease: Lease) -> None:
        """Ask the server whether a lease is still held, and mark it as lost if not."""
        state = await retry_once(lambda: driver.state(lease.session_id))
        if (state is None and lease.grant.created) or (state is not None and state.token != lease.token):
            lease_lost(lease, state)

    def _report(self, lease: Lease, repair: Repair) -> None:
        """Queue a repair, to be reported on the caller's loop when its call ends."""
        self._repairs.append((repair, lease.on_repair))

    # -- changes --------------------------------------------------------------------------------------------------

    async def _apply(
        self,
        driver: Driver,
        lease: Lease,
        send: Callable[[int], Awaitable[object]],
        after: Extent | None = None,
    ) -> None:
        """Apply a change once. Send it again if no answer came.

        Args:
            driver: of the server.
            lease: of the session; it advances with the change.
            send: sends the change under a revision, and returns a true value if it was applied.
            after: the session's extent once the change is applied, if it differs.

        Raises:
            OutcomeUnknown: no answer came, and the change may have been applied.
        """
        revision = new_revision()
        for attempt in (1, 2, 3):
            try:
                if await send(revision) or await self._was_applied(driver, lease, revision):
                    lease.advance(revision, after)
                    lease.unknown = None
                    return
            except SessionLost:
                raise
            except StoreError as problem:
                if isinstance(problem, (ConnectionLost, NotDurable)):
                    lease.unknown = revision
                if isinstance(problem, ConnectionLost) and attempt < 3:
                    continue
                if lease.unknown is not None:
                    raise OutcomeUnknown(
                        f"session {lease.session_id!r}: {problem}; the next call finds out whether the change was made"
                    ) from problem
                raise
        raise StoreError(f"session {lease.session_id!r} could not be leased again on {driver.display_name}; try again")

    async def _was_applied(self, driver: Driver, lease: Lease, revision: int) -> bool:
        """Return True if a change was refused because it had been applied before; raise if the lease is lost."""
        state = await driver.state(lease.session_id)
        if state is None and not lease.grant.created:
            # Nothing was ever written, and the lease itself has expired.
            grant = await driver.acquire(lease.session_id, lease.token, holder_name(), self._ttl)
            if isinstance(grant, str) or grant.created:
                raise lease_lost(lease, await driver.state(lease.session_id))
            lease.grant = grant
            return False
        if state is None or state.token != lease.token:
            raise lease_lost(lease, state)
        if state.revision != revision:
            raise StoreError(f"session {lease.session_id!r} was changed by a writer without a lease; open it again")
        return True


def lease_lost(lease: Lease, state: LeaseState | None) -> SessionLost:
    """Mark a lease as lost, to another writer or because the session is gone, and return the error for that."""
    lease.lost_to = "" if state is None else state.holder or "another writer, which has released it since"
    return SessionLost(lease.session_id, lease.lost_to)


async def retry_once(ask: Callable[[], Awaitable[T]]) -> T:
    """Send a request, and send it once more if the connection breaks. For requests that are harmless to repeat."""
    try:
        return await ask()
    except ConnectionLost:
        return await ask()
