"""The sessions that a store on a server has leased: locks, leases, and calls on the driver's loop.

Calls for one session run one after another. A call takes the session's lock and resolves an unknown outcome of an
earlier change. If it changes the session, it acquires the lease unless this store holds it. See `protocol`.
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

from ...errors import SessionInUse, SessionLost, StoreError
from ..protocol import OnRepair, Repair, report_repair
from ..validation import check_session_id
from .idempotency import lease_lost, resolve_outcome, retry_once
from .loop_thread import RefCounted
from .protocol import Driver, Lease, holder_name

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
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
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
            if self._pid != os.getpid():
                self._reset()  # a forked child: leases and connections are its parent's
            driver = self._driver
            if driver is None:
                if not begin:
                    return cast(T, None)
                driver = self._driver = cast(Driver, self._drivers.acquire(self._key))
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
                is_last_user = is_done and self._drivers.release(self._key, driver)
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
        """Resolve the outcome of an earlier change if it is unknown."""
        lease = self._leases.get(session_id)
        if lease is not None and lease.pending_outcome is not None and not lease.is_lost:
            await resolve_outcome(driver, lease, self._ttl, lease.pending_outcome)

    async def _lease(self, driver: Driver, session_id: str) -> Lease:
        """Return this store's lease of a session, acquired now if it has none."""
        lease = self._leases.get(session_id)
        if lease is None:
            # A request whose answer was lost is repeated under the same token.
            token = self._requested_tokens.setdefault(session_id, uuid.uuid4().hex)
            grant = await retry_once(lambda: driver.acquire(session_id, token, holder_name(), self._ttl))
            del self._requested_tokens[session_id]
            if isinstance(grant, str):
                raise SessionInUse(session_id, grant or "another writer")
            lease = self._leases[session_id] = Lease(session_id, token, grant)
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
